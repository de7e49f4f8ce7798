"""What becomes of a schema when the data has more than the table."""

from __future__ import annotations

from headwater.log.schema import (
    INTEGER,
    LONG,
    SHORT,
    STRING,
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)
from headwater.spark.write.schema import as_data_schema, merged


def struct(**types: DataType) -> StructType:
    return StructType(StructField(name, type_) for name, type_ in types.items())


def test_new_columns_come_last_at_every_level() -> None:
    table = struct(id=LONG, a=struct(b=LONG), items=ArrayType(struct(x=LONG)), m=MapType(STRING, struct(v=LONG)))
    data = struct(
        new=STRING,
        A=struct(c=STRING, B=LONG),
        items=ArrayType(struct(y=LONG)),
        m=MapType(STRING, struct(w=LONG)),
    )
    assert merged(table, data, widening=False) == struct(
        id=LONG,
        a=struct(b=LONG, c=STRING),
        items=ArrayType(struct(x=LONG, y=LONG)),
        m=MapType(STRING, struct(v=LONG, w=LONG)),
        new=STRING,
    )


def test_what_the_table_says_about_its_columns_stays() -> None:
    field = StructField("ID", LONG, nullable=False, metadata={"comment": "key", "delta.columnMapping.id": 1})
    result = merged(StructType([field]), struct(id=LONG, more=LONG), widening=False)
    assert result.fields[0] == field


def test_types_widen_only_where_the_table_allows_it() -> None:
    table, data = struct(a=SHORT, b=struct(c=INTEGER)), struct(a=LONG, b=struct(c=LONG))
    assert merged(table, data, widening=False) == table
    assert merged(table, data, widening=True) == data


def test_types_never_narrow() -> None:
    assert merged(struct(a=LONG), struct(a=SHORT), widening=True) == struct(a=LONG)


def test_a_column_without_a_type_takes_the_type_of_the_data() -> None:
    assert merged(struct(a=VOID), struct(a=SHORT), widening=False) == struct(a=SHORT)


def test_data_brings_no_rules_along() -> None:
    metadata = {"comment": "c", "delta.generationExpression": "1", "parquet.field.id": 3, "CURRENT_DEFAULT": "1"}
    inner = StructType([StructField("x", LONG, nullable=False, metadata=metadata)])
    schema = StructType([StructField("a", ArrayType(inner, contains_null=False), nullable=False)])
    [field] = as_data_schema(schema).fields
    expected = StructType([StructField("x", LONG, metadata={"comment": "c"})])
    assert field == StructField("a", ArrayType(expected))
