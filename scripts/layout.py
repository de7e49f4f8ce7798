"""Report the shape of the source: modules, folders, import cycles, files with one importer. `--check` sets limits.

    python scripts/layout.py            # the report
    python scripts/layout.py --check    # the same, and exit code 1 where a limit is broken

Imports inside functions count as imports; those under `if TYPE_CHECKING` do not, since nothing runs through them.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
MAX_MODULES = 240
MAX_ENTRIES = 14
MAX_LINES = 54_000
MAX_FUNCTION_LINES = 60


def modules(source: Path = SOURCE) -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of the package that a file imports when it runs, at once or later."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for other in node.orelse:
                visit(other)
            return
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in known else node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text(encoding="utf-8")))
    return found & known.keys()


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, directly or not (Tarjan's strongly connected components)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in order:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                groups.append(sorted(group))

    for name in graph:
        if name not in order:
            visit(name)
    return groups


def folders(source: Path = SOURCE) -> dict[str, int]:
    """How many entries each folder has, `__init__.py` and caches aside."""
    ignored = {"__init__.py", "__pycache__", "py.typed"}
    names = [path for path in [source, *sorted(source.rglob("*"))] if path.is_dir() and path.name != "__pycache__"]
    return {str(path.relative_to(source)): sum(e.name not in ignored for e in path.iterdir()) for path in names}


def long_functions(known: dict[str, Path]) -> list[str]:
    """Functions that do not fit on a screen, docstrings aside."""
    found = []
    for name, path in known.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
                if (node.end_lineno or 0) - first.lineno >= MAX_FUNCTION_LINES:
                    found.append(f"{name}.{node.name}")
    return found


def main(source: Path = SOURCE) -> int:
    known = modules(source)
    graph = {name: imports(path, known) - {name} for name, path in known.items()}
    importers: dict[str, list[str]] = defaultdict(list)
    for name, imported in graph.items():
        for other in imported:
            importers[other].append(name)
    lines = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in known.items()}
    plain = [count for name, count in lines.items() if known[name].name != "__init__.py"]
    entries = folders(source)
    large = any(count > MAX_ENTRIES for count in entries.values())
    rings = cycles(graph)
    single = [name for name in plain_names(known) if len(importers[name]) == 1 and lines[name] < 150]
    longest = long_functions(known)

    print(f"modules           {len(known)} (at most {MAX_MODULES}), median of {statistics.median(plain):.0f} lines")
    print(f"lines             {sum(lines.values()):,} (at most {MAX_LINES:,})")
    print(f"largest folders   {', '.join(f'{f} {n}' for f, n in top(entries))} (at most {MAX_ENTRIES})")
    print(f"import cycles     {len(rings)}")
    for ring in rings:
        print(f"                  {', '.join(ring)}")
    print(f"one importer      {len(single)} modules below 150 lines: {', '.join(single) or 'none'}")
    print(f"long functions    {len(longest)} above {MAX_FUNCTION_LINES} lines: {', '.join(longest) or 'none'}")

    broken = len(known) > MAX_MODULES or sum(lines.values()) > MAX_LINES or large or bool(rings)
    if broken and "--check" in sys.argv:
        print("The layout breaks its limits (scripts/layout.py).", file=sys.stderr)
        return 1
    return 0


def plain_names(known: dict[str, Path]) -> list[str]:
    return [name for name, path in known.items() if path.name not in ("__init__.py", "__main__.py")]


def top(counts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: -item[1])[:5]


if __name__ == "__main__":
    sys.exit(main())
