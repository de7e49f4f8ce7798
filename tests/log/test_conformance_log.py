"""Every table of the conformance corpus, at the level of the log: what a correct reader must make of it.

Rows are checked by the tests of the Spark reader; everything here is known without opening a data file.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.log.schema import ArrayType, DataType, MapType, StructType
from support.corpus import CORPUS, MISSING, table_id, tables

Entry = dict[str, Any]
_ENTRIES = tables()

if CORPUS is None:
    pytest.skip(MISSING, allow_module_level=True)


@pytest.fixture(params=_ENTRIES, ids=table_id)
def entry(request: pytest.FixtureRequest) -> Entry:
    return request.param


@pytest.fixture
def path(entry: Entry, tmp_path: Path) -> Path:
    """The table; a prepared copy where the manifest asks for one."""
    source = Path(CORPUS or "") / entry["path"]
    if not entry.get("setup"):
        return source
    copy = tmp_path / "table"
    shutil.copytree(source, copy)
    commit = copy / "_delta_log" / "00000000000000000000.json"
    folder = f"{copy}/folder&with%25special%20char"
    commit.write_text(commit.read_text().replace("{{FOLDER_WITH_SPECIAL_CHAR}}", folder))
    return copy


def test_table_is_understood_from_its_log(entry: Entry, path: Path) -> None:
    if entry["expect"] == "error" and not entry.get("disputed"):
        with pytest.raises(hw.HeadwaterError):
            hw.open_log(path)
        return
    try:
        snap = hw.open_log(path)
    except hw.HeadwaterError:
        assert entry.get("disputed"), "the manifest says that this table can be read"
        return
    _check_state(entry, snap)
    _check_versions(entry, path)
    _check_predicates(entry, snap)
    assert snap.verify() == []


def _check_state(entry: Entry, snap: hw.Snapshot) -> None:
    assert snap.version == entry["latest_version"]
    assert snap.num_files == entry["num_files"] == snap.files().num_rows
    assert [snap.protocol.min_reader_version, snap.protocol.min_writer_version] == entry["protocol"]
    assert sorted(snap.protocol.reader_features or ()) == sorted(entry.get("reader_features") or ())
    assert sorted(snap.protocol.writer_features or ()) == sorted(entry.get("writer_features") or ())
    declared = [(f["name"], f["type"], f["nullable"]) for f in entry["columns"]]
    assert [(f.name, _spelled(f.type), f.nullable) for f in snap.schema] == declared
    assert snap.partition_columns == entry["partition_columns"]
    assert snap.properties == entry["configuration"]
    if "txn" in entry:
        assert snap.app_transactions == entry["txn"]
    if "domain_metadata" in entry:
        assert snap.domain_metadata == entry["domain_metadata"]


def _spelled(type_: DataType) -> str:
    """A type as the manifest spells it: Delta's names, nested in angle brackets."""
    match type_:
        case ArrayType():
            return f"array<{_spelled(type_.element_type)}>"
        case MapType():
            return f"map<{_spelled(type_.key_type)},{_spelled(type_.value_type)}>"
        case StructType():
            return f"struct<{','.join(f'{f.name}:{_spelled(f.type)}' for f in type_)}>"
    return type_.json_name


def _check_versions(entry: Entry, path: Path) -> None:
    for version, expected in (entry.get("version_files") or {}).items():
        if expected is None:
            with pytest.raises(hw.HeadwaterError):
                hw.open_log(path, version=int(version))
        else:
            snap = hw.open_log(path, version=int(version))
            assert (snap.version, snap.num_files) == (int(version), expected)
    for version, timestamp in (entry.get("in_commit_timestamps") or {}).items():
        assert hw.open_log(path, version=int(version)).timestamp == timestamp


def _check_predicates(entry: Entry, snap: hw.Snapshot) -> None:
    for predicate in entry.get("predicates") or []:
        kept = snap.files(predicate["sql"])
        assert kept.num_rows <= predicate.get("files", snap.num_files), predicate
        # A file with a matching row is never dropped: no rows expected is the only reason to keep none.
        assert kept.num_rows > 0 or predicate["rows"] == 0, predicate


def _growing(entry: Entry) -> bool:
    """The manifest tells the files of every version, and the log still has all of them from the first on."""
    files = entry.get("version_files") or {}
    return entry["expect"] == "ok" and bool(files) and next(iter(files)) == "0" and None not in files.values()


@pytest.mark.parametrize("entry", [e for e in _ENTRIES if _growing(e)], ids=table_id)
def test_refresh_walks_through_every_version(entry: Entry, tmp_path: Path) -> None:
    """A reader that sees the commits appear one by one ends with the same files at every version."""
    log = tmp_path / "_delta_log"
    log.mkdir()
    source = Path(CORPUS or "") / entry["path"] / "_delta_log"
    commits = sorted(p for p in source.glob("*.json") if p.stem.isdigit())
    shutil.copy(commits[0], log)
    snap = hw.open_log(tmp_path)
    for commit in commits[1:]:
        shutil.copy(commit, log)
        snap = snap.refresh()
        version = int(commit.stem)
        assert (snap.version, snap.num_files) == (version, entry["version_files"][str(version)])
