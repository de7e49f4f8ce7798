"""Decode and encode structs of Thrift's compact protocol, as far as footers of Parquet files need it.

The meaning of fields does not matter here, so fields that newer writers add are kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
"""The types of fields; a boolean field has its value in its type."""
_LONG_LIST = 15


class Field(NamedTuple):
    """A value with its type."""

    type: int
    value: Any


class Items(NamedTuple):
    """A list or set of values of one type."""

    type: int
    values: list[Any]


class _Pairs(NamedTuple):
    key_type: int
    value_type: int
    values: list[tuple[Any, Any]]


Struct = dict[int, Field]
"""Fields by their numbers."""


class ThriftError(ValueError):
    """The bytes are not a struct."""


def decoded(data: bytes | memoryview) -> Struct:
    """Decode the struct that begins with the first byte.

    >>> decoded(bytes([0x15, 0x06, 0x00]))
    {1: Field(type=5, value=3)}
    """
    try:
        found: Struct = _Decoder(bytes(data)).value(STRUCT)
    except IndexError as error:
        raise ThriftError("a struct ends too early") from error
    except RecursionError as error:
        raise ThriftError("structs and lists are in each other too deep") from error
    return found


def encoded(fields: Struct) -> bytes:
    """Encode a struct.

    >>> encoded({1: Field(I32, 3)}).hex()
    '150600'
    """
    out = bytearray()
    _write(out, STRUCT, fields)
    return bytes(out)


class _Decoder:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def value(self, type_: int) -> Any:
        match type_:
            case 5 | 6 | 4:
                number = self._varint()
                return (number >> 1) ^ -(number & 1)
            case 8:
                return self._take(self._varint())
            case 12:
                return self._struct()
            case 9 | 10:
                return self._items()
            case 1 | 2:  # an item: as a field the type says it all
                return self._byte() == TRUE
            case 3:
                return self._byte()
            case 7:
                return self._take(8)
            case 11:
                return self._pairs()
        raise ThriftError(f"there is no type {type_}")

    def _struct(self) -> Struct:
        fields: Struct = {}
        number = 0
        while head := self._byte():
            type_ = head & 15
            number = number + (head >> 4) if head >> 4 else self.value(I16)
            fields[number] = Field(type_, type_ == TRUE if type_ in (TRUE, FALSE) else self.value(type_))
        return fields

    def _items(self) -> Items:
        head = self._byte()
        count, type_ = head >> 4, head & 15
        count = self._varint() if count == _LONG_LIST else count
        return Items(type_, [self.value(type_) for _ in range(count)])

    def _pairs(self) -> _Pairs:
        count = self._varint()
        head = self._byte() if count else 0
        key, value = head >> 4, head & 15
        return _Pairs(key, value, [(self.value(key), self.value(value)) for _ in range(count)])

    def _byte(self) -> int:
        byte = self._data[self._at]
        self._at += 1
        return byte

    def _take(self, count: int) -> bytes:
        found = self._data[self._at : self._at + count]
        if len(found) < count:
            raise ThriftError("a value ends too early")
        self._at += count
        return found

    def _varint(self) -> int:
        data, at = self._data, self._at
        byte = data[at]
        at += 1
        number, shift = byte & 127, 7
        while byte & 128:
            byte = data[at]
            at += 1
            number |= (byte & 127) << shift
            shift += 7
            if number >> 64:
                raise ThriftError("a number has more than 64 bits")
        self._at = at
        return number


def _write(out: bytearray, type_: int, value: Any) -> None:
    match type_:
        case 5 | 6 | 4:
            _varint(out, (value << 1) ^ (value >> 63))
        case 8:
            _varint(out, len(value))
            out += value
        case 12:
            _write_struct(out, value)
        case 9 | 10:
            count = len(value.values)
            out.append(min(count, _LONG_LIST) << 4 | value.type)
            if count >= _LONG_LIST:
                _varint(out, count)
            for item in value.values:
                _write(out, value.type, item)
        case 1 | 2:
            out.append(TRUE if value else FALSE)
        case 3:
            out.append(value)
        case 7:
            out += value
        case 11:
            _varint(out, len(value.values))
            if value.values:
                out.append(value.key_type << 4 | value.value_type)
            for key, item in value.values:
                _write(out, value.key_type, key)
                _write(out, value.value_type, item)
        case _:
            raise ThriftError(f"there is no type {type_}")


def _write_struct(out: bytearray, fields: Struct) -> None:
    last = 0
    for number in sorted(fields):
        type_, value = fields[number]
        if type_ in (TRUE, FALSE):
            type_ = TRUE if value else FALSE
        step = number - last
        if 0 < step < _LONG_LIST + 1:
            out.append(step << 4 | type_)
        else:
            out.append(type_)
            _write(out, I16, number)
        if type_ not in (TRUE, FALSE):
            _write(out, type_, value)
        last = number
    out.append(0)


def _varint(out: bytearray, number: int) -> None:
    number &= (1 << 64) - 1
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
