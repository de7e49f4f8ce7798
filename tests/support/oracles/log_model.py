"""The oracle: action reconciliation in plain Python over plain dictionaries, one action after the other.

Written from the spec alone ("Action Reconciliation"), slow and obvious on purpose. It shares no code with
`headwater.log`; `observed` brings a snapshot into the same form.
"""

from __future__ import annotations

import copy
import json
import posixpath
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headwater.log.snapshot import Snapshot

Action = dict[str, Any]


def path_key(path: str) -> bytes:
    """Scheme off, decoded once, then dot segments and empty segments resolved (RFC 3986, 5.2.4)."""
    if re.match("(?i)file:/", path):
        path = "/" + re.sub("(?i)^//localhost/", "", path[5:]).lstrip("/")
    authority = re.match(r"[A-Za-z][A-Za-z0-9+.\-]+://[^/]*", path)
    before = unquote_to_bytes(authority[0] if authority else "")
    rest = unquote_to_bytes(path)[len(before) :]
    return before + _without_dots(rest)


def _without_dots(path: bytes) -> bytes:
    names = path.lstrip(b"/").split(b"/")
    if not {b"", b".", b".."} & set(names[:-1]) and names[-1] not in (b".", b"..") and not path.startswith(b"//"):
        return path
    resolved = posixpath.normpath(path)
    return resolved[1:] if resolved.startswith(b"//") else resolved


def vector_id(action: dict[str, Any]) -> str | None:
    vector = action.get("deletionVector")
    if vector is None:
        return None
    unique = vector["storageType"] + vector["pathOrInlineDv"]
    return unique if vector.get("offset") is None else f"{unique}@{vector['offset']}"


@dataclass
class Model:
    """The state of a table after some commits."""

    protocol: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    txns: dict[str, dict[str, Any]] = field(default_factory=dict)
    domains: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: dict[tuple[bytes, str | None], Action] = field(default_factory=dict)

    def apply(self, actions: Iterable[Action]) -> None:
        for line in actions:
            for name, action in line.items():
                if action is None:
                    continue
                if name == "protocol":
                    self.protocol = action
                elif name == "metaData":
                    self.metadata = action
                elif name == "txn":
                    self.txns[action["appId"]] = action
                elif name == "domainMetadata":
                    self.domains[action["domain"]] = action
                elif name in ("add", "remove"):
                    self.files[path_key(action["path"]), vector_id(action)] = {name: action}

    def copy(self) -> Model:
        return copy.deepcopy(self)

    def actions(self) -> list[Action]:
        """What a checkpoint of this state holds."""
        rows: list[Action] = []
        if self.protocol is not None:
            rows.append({"protocol": self.protocol})
        if self.metadata is not None:
            rows.append({"metaData": self.metadata})
        rows += [{"txn": txn} for txn in self.txns.values()]
        rows += [{"domainMetadata": domain} for domain in self.domains.values()]
        return rows + list(self.files.values())

    @property
    def adds(self) -> list[dict[str, Any]]:
        return [line["add"] for line in self.files.values() if "add" in line]

    @property
    def removes(self) -> list[dict[str, Any]]:
        return [line["remove"] for line in self.files.values() if "remove" in line]

    def state(self) -> dict[str, Any]:
        """Everything that a snapshot must say about this state."""
        assert self.protocol is not None
        assert self.metadata is not None
        return {
            "protocol": (self.protocol["minReaderVersion"], self.protocol["minWriterVersion"]),
            "id": self.metadata["id"],
            "schema": self.metadata["schemaString"],
            "configuration": self.metadata.get("configuration", {}),
            "txns": {app: txn["version"] for app, txn in self.txns.items()},
            "domains": {
                name: domain["configuration"]
                for name, domain in self.domains.items()
                if not domain.get("removed", False)
            },
            "files": sorted((_comparable(add) for add in self.adds), key=repr),
            "tombstones": sorted((a["path"], vector_id(a) or "") for a in self.removes),
            "num_files": len(self.adds),
            "size_bytes": sum(add["size"] for add in self.adds),
        }


def replay(commits: Iterable[Iterable[Action]]) -> Model:
    """The state after commits in ascending order."""
    model = Model()
    for commit in commits:
        model.apply(commit)
    return model


def parse_lines(data: bytes) -> list[Action]:
    """The actions of a commit."""
    return [json.loads(line) for line in data.decode().split("\n") if line.strip()]


def observed(snapshot: Snapshot) -> dict[str, Any]:
    """What a snapshot says, in the form of `Model.state`."""
    files = snapshot.files().to_pylist(maps_as_pydicts="strict")
    tombstones = snapshot.tombstones(include_expired=True).to_pylist()
    return {
        "protocol": (snapshot.protocol.min_reader_version, snapshot.protocol.min_writer_version),
        "id": snapshot.metadata.id,
        "schema": snapshot.metadata.schema_string,
        "configuration": snapshot.properties,
        "txns": snapshot.app_transactions,
        "domains": snapshot.domain_metadata,
        "files": sorted((_comparable(row) for row in files), key=repr),
        "tombstones": sorted((row["path"], vector_id(row) or "") for row in tombstones),
        "num_files": snapshot.num_files,
        "size_bytes": snapshot.size_bytes,
    }


def _comparable(add: dict[str, Any]) -> tuple[Any, ...]:
    return (
        add["path"],
        vector_id(add) or "",
        add["size"],
        add.get("modificationTime"),
        sorted((add.get("partitionValues") or {}).items()),
        add.get("stats"),
        (add.get("deletionVector") or {}).get("cardinality"),
        add.get("baseRowId"),
    )
