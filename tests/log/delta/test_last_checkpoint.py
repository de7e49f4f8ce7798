"""The `_last_checkpoint` hint and its checksum (spec: "Last Checkpoint File Schema", "JSON checksum")."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.log.delta.dialect import DELTA
from headwater.log.segment import canonical_json, hinted_version, json_checksum, parse_hint
from support.log_settings import examined
from support.stores.log_store import DictStore

SPEC_SAMPLE = (
    '{"k0":"\'v 0\'", "checksum": "adsaskfljadfkjadfkj", "k1":{"k2": 2, "k3": ["v3", [1, 2], '
    '{"k4": "v4", "k5": ["v5", "v6", "v7"]}]}}'
)
SPEC_CANONICAL = (
    '"k0"="%27v%200%27","k1"+"k2"=2,"k1"+"k3"+0="v3","k1"+"k3"+1+0=1,"k1"+"k3"+1+1=2,"k1"+"k3"+2+"k4"="v4",'
    '"k1"+"k3"+2+"k5"+0="v5","k1"+"k3"+2+"k5"+1="v6","k1"+"k3"+2+"k5"+2="v7"'
)
SPEC_CHECKSUM = "6a92d155a59bf2eecbd4b4ec7fd1f875"


def test_the_sample_of_the_spec_has_its_canonical_form_and_checksum() -> None:
    assert canonical_json(json.loads(SPEC_SAMPLE)) == SPEC_CANONICAL
    assert json_checksum(json.loads(SPEC_SAMPLE)) == SPEC_CHECKSUM


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (
            '{"a": 10, "b": {"y": null, "x": "https://delta.io"} }',
            '"a"=10,"b"+"x"="https%3A%2F%2Fdelta.io","b"+"y"=null',
        ),
        ('{"a": [null, "hi ho", 2.71, true]}', '"a"+0=null,"a"+1="hi%20ho","a"+2=2.71,"a"+3=true'),
        ('{"k1": "v1", "checksum": "<anything>", "k3": 23}', '"k1"="v1","k3"=23'),
        ('{"é~-._": "😀"}', '"%C3%A9~-._"="%F0%9F%98%80"'),
        ('{"a": {"checksum": 1}}', '"a"+"checksum"=1'),  # only the top level one is left out
    ],
)
def test_values_are_made_canonical_by_the_rules_of_the_spec(text: str, canonical: str) -> None:
    assert canonical_json(json.loads(text)) == canonical


def with_checksum(canonical: str, text: str) -> bytes:
    checksum = hashlib.md5(canonical.encode(), usedforsecurity=False).hexdigest()
    return (text[:-1] + f', "checksum": "{checksum}"}}').encode()


@pytest.mark.parametrize(
    ("canonical", "text"),
    [
        ('"size"=10,"version"=3', '{"version": 3, "size": 10}'),
        ('"size"=1.0,"version"=3', '{"version": 3, "size": 1.0}'),  # numbers are as they were written
        ('"size"=1e2,"version"=3', '{"version": 3, "size": 1e2}'),
        ('"tags"+"a"="b","version"=3', '{"version": 3, "tags": {"a": "b"}}'),
        ('"size"=123456789012345678901,"version"=3', '{"version": 3, "size": 123456789012345678901}'),
    ],
)
def test_a_right_checksum_is_accepted_whatever_the_numbers_look_like(canonical: str, text: str) -> None:
    assert parse_hint(with_checksum(canonical, text)) == 3


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"   ",
        b"{",
        b"null",
        b"[3]",
        b'"3"',
        b"3",
        b"{}",
        b'{"size": 3}',
        b'{"version": "3"}',
        b'{"version": null}',
        b'{"version": true}',
        b'{"version": 3.5}',
        b'{"version": -1}',
        b'{"version": 1e1}',
        b'{"version": NaN}',
        b'{"version": 123456789012345678901234567890}',
        b'{"version": ' + b"9" * 5000 + b"}",
        b'{"version": 3, "version": 3}',  # duplicate keys make it invalid
        b'{"version": 3, "tags": {"a": 1, "a": 1}}',
        b'{"version": 3, "checksum": "00000000000000000000000000000000"}',
        b'{"version": 3, "checksum": 5}',
        b'{"version": 3} trailing',
        b"\xff\xfe\x00",
        b'{"version": 3, "tags": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"version": 3, "checksum": "x", "tags": ' + b'{"a":' * 900 + b"1" + b"}" * 900 + b"}",
    ],
    ids=lambda text: repr(text[:40]),
)
def test_what_cannot_be_believed_is_no_hint(text: bytes) -> None:
    assert parse_hint(text) is None


def test_one_changed_character_breaks_the_checksum() -> None:
    good = with_checksum('"size"=10,"version"=3', '{"version": 3, "size": 10}')
    assert parse_hint(good) == 3
    assert parse_hint(good.replace(b'"version": 3', b'"version": 2')) is None


def test_unknown_fields_are_part_of_the_checksum_but_no_reason_to_distrust() -> None:
    assert parse_hint(b'{"version": 7, "size": 1, "v2Checkpoint": {"path": "x"}, "new": [1]}') == 7


def test_a_missing_file_is_no_hint() -> None:
    assert hinted_version(DictStore(), DELTA.last_checkpoint_key) is None


@examined
@given(st.binary(max_size=60))
def test_no_bytes_at_all_raise(data: bytes) -> None:
    found = parse_hint(data)
    assert found is None or found >= 0


@examined
@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
        max_leaves=8,
    )
)
def test_a_hint_with_the_checksum_of_its_content_is_believed(extra: object) -> None:
    hint = {"version": 12, "size": 4, "extra": extra}
    assert parse_hint(json.dumps({**hint, "checksum": json_checksum(json.loads(json.dumps(hint)))}).encode()) == 12
