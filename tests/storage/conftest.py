"""Fresh stores of every kind for the storage tests."""

from __future__ import annotations

import itertools
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from headwater.storage import open_store
from support.stores.storage_servers import Endpoint, Unavailable, azurite_server, moto_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headwater.storage import ObjectStore

_numbers = itertools.count()


@pytest.fixture(autouse=True)
def no_cloud_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is configured on this machine must not reach the tests."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def s3() -> Iterator[Endpoint]:
    with moto_server() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def azure() -> Iterator[Endpoint]:
    with ExitStack() as stack:
        try:
            endpoint = stack.enter_context(azurite_server())
        except Unavailable as reason:
            pytest.skip(str(reason))
        yield endpoint


@pytest.fixture(params=["local", "memory", "s3", "azure"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def new_place(
    kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], Endpoint]:
    """Gives a location where nothing is yet, at every call."""
    if kind == "local":
        return lambda: Endpoint(str(tmp_path_factory.mktemp("store") / "table"), {})
    if kind == "memory":
        return lambda: Endpoint(f"memory://test-{os.getpid()}-{next(_numbers)}/table", {})
    server: Endpoint = request.getfixturevalue(kind)
    return lambda: Endpoint(f"{server.root}/{os.getpid()}-{next(_numbers)}/table", server.options)


@pytest.fixture
def place(new_place: Callable[[], Endpoint]) -> Endpoint:
    return new_place()


@pytest.fixture
def store(place: Endpoint) -> ObjectStore:
    return open_store(place.root, place.options)
