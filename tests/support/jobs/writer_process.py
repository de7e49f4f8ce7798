"""A writer in a process of its own: `race` for keys against others, or `write` until it is killed.

Reads one line of JSON from standard input (so that no credential is on a command line), prints `ready`, and
starts at the next line.
"""

from __future__ import annotations

import hashlib
import json
import sys
from itertools import count

from headwater.errors import ObjectAlreadyExistsError
from headwater.storage import ObjectStore, open_store

SIZE_BYTES = 2_000_000


def content(key: str) -> bytes:
    """What the object of that key has to hold, all of it."""
    digest = hashlib.sha256(key.encode()).digest()
    return digest * (SIZE_BYTES // len(digest))


def race(store: ObjectStore, keys: list[str], name: str) -> list[str]:
    """The keys that this writer won."""
    won = []
    for key in keys:
        try:
            store.put_if_absent(key, name.encode())
            won.append(key)
        except ObjectAlreadyExistsError:
            pass
    return won


def write_for_ever(store: ObjectStore, first: int) -> None:
    """New objects and replaced objects in turn."""
    for number in count(first):
        for key in (f"new/{number}", f"replaced/{number % 3}"):
            data = content(key)
            (store.put_if_absent if key.startswith("new/") else store.put)(key, data)


def main() -> None:
    order = json.loads(sys.stdin.readline())
    store = open_store(order["root"], order["options"] or None)
    print("ready", flush=True)
    sys.stdin.readline()
    if order["do"] == "race":
        print(json.dumps(race(store, order["keys"], order["name"])), flush=True)
    else:
        write_for_ever(store, order["first"])


if __name__ == "__main__":
    main()
