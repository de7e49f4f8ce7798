"""A reader of logs as plain as possible, for comparison: no laziness, no hints, no statistics, no shortcuts.

Whatever is wrong with a log raises some exception or other here; what can be read is read by the letter of the spec.
"""

from __future__ import annotations

import io
import re
from collections import defaultdict
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from support.oracles.log_model import Action, Model, parse_lines

LOG = "_delta_log/"


def sort_out(objects: dict[str, bytes]) -> tuple[dict[int, bytes], dict[int, list[list[bytes]]]]:
    """Commits, and the files of each complete checkpoint, by version."""
    commits: dict[int, bytes] = {}
    checkpoints: dict[int, list[list[bytes]]] = defaultdict(list)
    parts: dict[tuple[int, int], dict[int, bytes]] = defaultdict(dict)
    for key, data in objects.items():
        name = key.removeprefix(LOG)
        if found := re.fullmatch(r"([0-9]{20})\.json", name):
            commits[int(found[1])] = data
        elif found := re.fullmatch(r"([0-9]{20})\.checkpoint\.([0-9]{10})\.([0-9]{10})\.parquet", name):
            parts[int(found[1]), int(found[3])][int(found[2])] = data
        elif found := re.fullmatch(r"([0-9]{20})\.checkpoint\.(?:[0-9a-f-]+\.)?(json|parquet)", name):
            checkpoints[int(found[1])].append([data])
    for (at, count), group in parts.items():
        if set(group) == set(range(1, count + 1)):
            checkpoints[at].append([group[n] for n in range(1, count + 1)])
    return commits, checkpoints


def latest(objects: dict[str, bytes]) -> int:
    """The newest version."""
    commits, checkpoints = sort_out(objects)
    return max((*commits, *checkpoints))


def read(objects: dict[str, bytes], *, sidecars: bool = True) -> Model:
    """The state of the table in these objects at its newest version; without sidecars, its files are not known."""
    commits, checkpoints = sort_out(objects)
    start = max(checkpoints, default=-1)
    model = Model()
    if start >= 0:
        [files] = checkpoints[start]
        actions = [action for data in files for action in _actions(data)]
        paths = [action["sidecar"]["path"] for action in actions if action.get("sidecar")]
        for path in dict.fromkeys(paths if sidecars else []):
            actions += _actions(objects[f"{LOG}_sidecars/{unquote(path).split('/')[-1]}"])
        model.apply(actions)
        assert model.protocol is not None
        assert model.metadata is not None
    for version in range(start + 1, latest(objects) + 1):
        actions = parse_lines(commits[version])
        assert actions
        model.apply(actions)
    return model


def _actions(data: bytes) -> list[Action]:
    if not data.startswith(b"PAR1"):
        return parse_lines(data)
    file = pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True)
    rows = file.read(use_threads=False).to_pylist(maps_as_pydicts="strict")
    required = {"protocol": "minReaderVersion", "metaData": "id", "txn": "appId", "domainMetadata": "domain"}
    return [
        {name: _without_nulls(value)}
        for row in rows
        for name, value in row.items()
        if isinstance(value, dict) and value.get(required.get(name, "path")) is not None
    ]


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return value


def history(objects: dict[str, bytes], version: int) -> list[tuple[int, Any]]:
    """The `commitInfo` of each commit up to a version, newest first."""
    found = []
    for key in sorted(objects, reverse=True):
        if (match := re.fullmatch(rf"{LOG}([0-9]{{20}})\.json", key)) and int(match[1]) <= version:
            infos = [a["commitInfo"] for a in parse_lines(objects[key]) if a.get("commitInfo") is not None]
            found.append((int(match[1]), infos[0] if infos else {}))
    return found
