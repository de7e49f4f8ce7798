"""Random schemas for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from headwater.log.schema import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    UserDefinedType,
)

SIMPLE = [
    STRING,
    LONG,
    INTEGER,
    SHORT,
    BYTE,
    FLOAT,
    DOUBLE,
    BOOLEAN,
    BINARY,
    DATE,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
metadata = st.dictionaries(st.sampled_from(["comment", "delta.invariants", "é", "a.b"]), json_values, max_size=2)

decimals = st.integers(1, 38).flatmap(
    lambda precision: st.builds(DecimalType, st.just(precision), st.integers(0, precision))
)
chars = st.builds(
    lambda kind, n: PrimitiveType(f"{kind}({n})"), st.sampled_from(["char", "varchar"]), st.integers(1, 99)
)
simple_types = st.sampled_from(SIMPLE) | decimals
arrow_types = st.sampled_from([t for t in SIMPLE if t != VOID]) | decimals | chars | st.just(VARIANT)
known_types = simple_types | chars | st.just(VARIANT)
all_types = known_types | st.sampled_from(
    [PrimitiveType("geometry(OGC:CRS84)"), PrimitiveType("interval year to month"), PrimitiveType("time(6)")]
)


def schemas(
    leaves: st.SearchStrategy[DataType],
    field_metadata: st.SearchStrategy[dict[str, object]] = metadata,
    *,
    with_extra: bool = False,
) -> st.SearchStrategy[StructType]:
    """Schemas over some leaf types; `with_extra` adds user-defined types and keys unknown to the spec."""
    extra = (
        st.dictionaries(st.sampled_from(["x-new", "x-other"]), json_values, max_size=1) if with_extra else st.just({})
    )

    def deeper(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
        types = (
            st.builds(ArrayType, inner, st.booleans(), extra=extra)
            | st.builds(MapType, inner, inner, st.booleans(), extra=extra)
            | structs(inner, max_size=3)
        )
        return types | st.builds(UserDefinedType, inner, st.just({"class": "some.UDT"})) if with_extra else types

    def structs(types: st.SearchStrategy[DataType], max_size: int) -> st.SearchStrategy[StructType]:
        fields = st.builds(StructField, names, types, st.booleans(), field_metadata, extra=extra)
        return st.builds(StructType, st.lists(fields, max_size=max_size), extra=extra)

    return structs(st.recursive(leaves, deeper, max_leaves=6), max_size=4)
