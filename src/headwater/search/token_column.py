"""The tokens of a column of text, as Arrow arrays: what the index has, made from plain rows.

Text is cut at the characters at which the field's analyser cuts, then each distinct word is analysed once. So the cost
in Python is that of the vocabulary, and everything about tokens (patterns, edit distances) is asked of the vocabulary.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log import columns as build
from headwater.search.analysis import tokens
from headwater.search.query_patterns import is_separator

_ASCII = "".join(map(chr, range(128)))


@dataclass(frozen=True)
class TokenColumn:
    """The tokens of some texts. A row may have any number of texts (in JSON); a phrase is always within one of them.

    Attributes:
        terms: the distinct tokens.
        codes: of every token in order, its place in `terms`.
        texts: of every token, the text it is in; ascending.
        rows: of every text, its row; ascending.
    """

    terms: pa.StringArray
    codes: pa.Int32Array
    texts: pa.Int64Array
    rows: pa.Int64Array

    def token_rows(self, chosen: pa.BooleanArray) -> pa.Int64Array:
        """The row of every token whose term is chosen, once for each."""
        return self.rows.take(self.texts.filter(chosen.take(self.codes)))

    @functools.cached_property
    def lengths(self) -> tuple[pa.Array, pa.Array]:
        """The rows that have a token, and how many."""
        counted = pc.value_counts(self.rows.take(self.texts))
        return counted.field(0), counted.field(1)


def token_column(texts: pa.StringArray, rows: pa.Int64Array, tokenizer: str) -> TokenColumn:
    """The tokens of texts without nulls.

    Args:
        texts: the texts.
        rows: the row of each of them, ascending.
        tokenizer: the field's.
    """
    if tokenizer == "raw":
        encoded = texts.dictionary_encode()
        return TokenColumn(encoded.dictionary, encoded.indices, counting(len(texts)), rows)
    pieces = pc.split_pattern_regex(texts, _separators(texts, tokenizer))
    words, owners = pieces.flatten(), pc.list_parent_indices(pieces).cast(pa.int64())
    real = pc.not_equal(words, build.EMPTY)  # before a leading and behind a trailing separator stands no word
    encoded = words.filter(real).dictionary_encode()
    analysed = _analysed(encoded.dictionary, tokenizer).dictionary_encode()
    return TokenColumn(analysed.dictionary, analysed.indices.take(encoded.indices), owners.filter(real), rows)


def counting(length: int) -> pa.Int64Array:
    """0, 1, 2, ..."""
    return pc.subtract(pc.cumulative_sum(pa.repeat(build.int64s([1])[0], length)), build.int64s([1])[0])


def row_mask(rows: pa.Int64Array, num_rows: int) -> pa.BooleanArray:
    """True for each of these rows."""
    if len(rows) == 0:
        return pa.repeat(build.bools([False])[0], num_rows)
    return pc.is_in(counting(num_rows), value_set=pc.unique(rows))


def _analysed(words: pa.StringArray, tokenizer: str) -> pa.StringArray:
    """The token of each word: there is exactly one in a text without separators."""
    if tokenizer == "whitespace":
        return words
    if tokenizer == "default" and pc.all(pc.string_is_ascii(words), min_count=0).as_py():
        return pc.ascii_lower(words)
    return build.strings([tokens(tokenizer, word)[0] for word in words.to_pylist()])


def _separators(texts: pa.StringArray, tokenizer: str) -> str:
    """The regular expression of the separators that occur in these texts."""
    found = set(_ASCII)
    foreign = texts.filter(pc.invert(pc.string_is_ascii(texts)))
    for text in foreign.to_pylist():
        found.update(text)
    cutting = sorted(ord(c) for c in found if is_separator(tokenizer, c))
    listed = "".join(rf"\x{{{code:x}}}" for code in cutting)
    return f"[{listed}]+"
