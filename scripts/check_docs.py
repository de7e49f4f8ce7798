"""Checks the Markdown of this project: relative links lead somewhere, and what says it runs, runs.

A fence that opens with ```python run is executed, all of one document in one process; of a fence that opens
with ```console run, each line that starts with `$ ` is. They run in a directory that holds one small Delta
table, `rivers`, written by another implementation (delta-rs).
"""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^(?P<mark>`{3,}|~{3,})[ ]*(?P<info>[^`\n]*)\n(?P<body>.*?)^(?P=mark)[ ]*$", re.M | re.S)
LINK = re.compile(r"\[[^\]\n]*\]\(<?(?P<target>[^)>\s]+)>?(?:\s+\"[^\"]*\")?\)")
HEADING = re.compile(r"^#{1,6}[ ]+(?P<text>.+?)[ #]*$", re.M)
EXAMPLE_TIMEOUT_S = 300


@dataclass(frozen=True)
class Problem:
    """Something wrong in a document, and where."""

    document: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}: {self.text}"


def main() -> None:
    documents = list(find_documents())
    problems = [problem for document in documents for problem in broken_links(document)]
    problems += unreachable_pages(documents)
    with tempfile.TemporaryDirectory() as directory:
        write_rivers(Path(directory, "rivers"))
        for document in documents:
            problems += failing_examples(document, Path(directory))
    for problem in problems:
        print(problem)
    if problems:
        sys.exit(1)
    print(f"{len(documents)} documents: every link leads somewhere, every example runs")


def find_documents() -> Iterator[Path]:
    """Every Markdown file of the project that .gitignore does not name."""
    lines = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    ignored = [".git", *(line.strip("/") for line in lines if line)]
    for directory, names, files in os.walk(ROOT):
        names[:] = sorted(name for name in names if not any(fnmatch.fnmatch(name, rule) for rule in ignored))
        yield from (Path(directory, file) for file in sorted(files) if file.endswith(".md"))


def broken_links(document: Path) -> Iterator[Problem]:
    for line, target in links(document):
        path, _, anchor = target.partition("#")
        leads_to = (document.parent / unquote(path)).resolve() if path else document
        if not leads_to.is_relative_to(ROOT) or not leads_to.exists():
            yield Problem(document, line, f"broken link: {target}")
        elif anchor and leads_to.suffix == ".md" and anchor not in anchors(leads_to):
            yield Problem(document, line, f"no such heading: {target}")


def links(document: Path) -> Iterator[tuple[int, str]]:
    """The line and target of every relative link; code is no text."""
    text = blank_out(FENCE, document.read_text(encoding="utf-8"))
    text = blank_out(re.compile(r"`[^`\n]+`"), text)
    for match in LINK.finditer(text):
        if not re.match(r"[a-z][a-z+.-]*:", match["target"]):
            yield line_of(text, match.start()), match["target"]


def anchors(document: Path) -> set[str]:
    """The names that a heading can be linked by: lower case, blanks as hyphens, no punctuation."""
    text = blank_out(FENCE, document.read_text(encoding="utf-8"))
    return {
        re.sub(r"[^\w\- ]", "", match["text"]).strip().lower().replace(" ", "-") for match in HEADING.finditer(text)
    }


def unreachable_pages(documents: list[Path]) -> Iterator[Problem]:
    """A page under docs/ that no other document links to is a page that nobody finds."""
    linked = {
        (document.parent / unquote(target.partition("#")[0])).resolve()
        for document in documents
        for _, target in links(document)
        if not target.startswith("#")
    }
    for document in documents:
        if document.is_relative_to(ROOT / "docs") and document not in linked:
            yield Problem(document, 1, "no document links to this page")


def failing_examples(document: Path, directory: Path) -> Iterator[Problem]:
    text = document.read_text(encoding="utf-8")
    source: list[str] = []
    for fence in FENCE.finditer(text):
        line = line_of(text, fence.start("body"))
        if fence["info"].split() == ["python", "run"]:
            source += [""] * (line - 1 - len(source)) + fence["body"].splitlines()  # keeps the line numbers true
        elif fence["info"].split() == ["console", "run"]:
            for number, command in enumerate(fence["body"].splitlines(), line):
                if command.startswith("$ ") and (error := run(["sh", "-c", command[2:]], directory)):
                    yield Problem(document, number, f"failed: {command}\n{error}")
    if source and (error := run([sys.executable, "-W", "error", "-"], directory, "\n".join(source))):
        yield Problem(document, 1, f"an example failed (<stdin> is this document)\n{error}")


def run(command: list[str], directory: Path, stdin: str = "") -> str | None:
    """What the command printed, when it failed."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        command,
        cwd=directory,
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=EXAMPLE_TIMEOUT_S,
        env=os.environ | {"PATH": path},
    )
    return (done.stdout or f"exit status {done.returncode}") if done.returncode else None


def write_rivers(path: Path) -> None:
    """Three commits: two appends and a delete, partitioned by continent."""
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    def rivers(*rows: tuple[str, str, int]) -> pa.Table:
        river, continent, length_km = zip(*rows, strict=True)
        return pa.table({"river": river, "continent": continent, "length_km": length_km})

    first = rivers(("Nile", "Africa", 6650), ("Congo", "Africa", 4700), ("Danube", "Europe", 2850))
    second = rivers(("Amazon", "South America", 6400), ("Rhine", "Europe", 1233))
    write_deltalake(path, first, partition_by=["continent"])
    write_deltalake(path, second, mode="append")
    DeltaTable(path).delete("river = 'Congo'")


def blank_out(pattern: re.Pattern[str], text: str) -> str:
    """The text with every match replaced by blanks, its lines kept."""
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


if __name__ == "__main__":
    main()
