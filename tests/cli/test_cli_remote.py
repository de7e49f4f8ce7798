"""Tables in an object store: storage options reach the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import boto3
import pytest
from moto.server import ThreadedMotoServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from conftest import Ended

BUCKET = "rivers"


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def test_storage_options_reach_the_store(run: Callable[..., Ended], tiny: Path, endpoint: str) -> None:
    client = boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="k", aws_secret_access_key="s"
    )
    client.create_bucket(Bucket=BUCKET)
    for file in sorted((tiny / "_delta_log").iterdir()):
        client.put_object(Bucket=BUCKET, Key=f"some/table/_delta_log/{file.name}", Body=file.read_bytes())
    pairs = {
        "aws_endpoint_url": endpoint,
        "aws_access_key_id": "k",
        "aws_secret_access_key": "s=with=equals",
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
    }
    options = [argument for key, value in pairs.items() for argument in ("--option", f"{key}={value}")]

    shown = run("show", f"s3://{BUCKET}/some/table", "--json", *options).json

    assert shown["uri"] == f"s3://{BUCKET}/some/table"
    assert shown["num_files"] == 2
