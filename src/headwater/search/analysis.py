"""Analysers: how text becomes terms, in the index and everywhere that must agree with it.

The names are those users know (default, raw, whitespace, en_stem). The chains are our own, registered at every open of
an index: tantivy's drop every token of 40 bytes or more without a word, ours keep all that a term can hold.

>>> tokens("default", "Über-Failure in web-1")
['über', 'failure', 'in', 'web', '1']
>>> tokens("en_stem", "connections failed")
['connect', 'fail']
"""

from __future__ import annotations

import functools
import ipaddress
from typing import Final

import tantivy

from headwater.errors import SearchConfigError

TOKENIZERS: Final = ("default", "raw", "whitespace", "en_stem")
"""The analysers a field can have: words in lower case; the whole value; between blanks, as written; stems of words."""

MAX_TERM_BYTES: Final = 65_530
"""tantivy drops longer terms silently; rows that have one are found by reading them (see `Split.partial_fields`)."""


def register_tokenizers(index: tantivy.Index) -> None:
    """Give an index our analysers: needed each time an index is created or opened."""
    for name in TOKENIZERS:
        index.register_tokenizer(name, _analyzer(name))


def tokens(tokenizer: str, text: str) -> list[str]:
    """Return the terms that the index has for a text, in order; also a term that is too long for the index."""
    return _analyzer(tokenizer).analyze(text)


def check_tokenizer(name: str, column: str) -> str:
    """Return the name of a tokenizer in lower case, or raise `SearchConfigError`."""
    folded = name.strip().lower()
    if folded not in TOKENIZERS:
        raise SearchConfigError(f"column {column!r}: there is no tokenizer {name!r}; there are {', '.join(TOKENIZERS)}")
    return folded


def ip_text(value: str) -> str | None:
    """Return an IP address in the one form that the index knows (IPv4 dotted, also `::ffff:a.b.c.d`), or None.

    >>> ip_text("::FFFF:10.0.0.1"), ip_text("2001:DB8::1"), ip_text("10.0.0.256")
    ('10.0.0.1', '2001:db8::1', None)
    """
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            return None  # a zone is no part of the address, and two zones are two addresses
        address = address.ipv4_mapped or address
    return str(address)


@functools.cache
def _analyzer(name: str) -> tantivy.TextAnalyzer:
    if name == "raw":
        return tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.raw()).build()
    if name == "whitespace":
        return tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()
    if name in ("default", "en_stem"):
        words = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple()).filter(tantivy.Filter.lowercase())
        return words.filter(tantivy.Filter.stemmer("english")).build() if name == "en_stem" else words.build()
    raise SearchConfigError(f"there is no tokenizer {name!r}; there are {', '.join(TOKENIZERS)}")
