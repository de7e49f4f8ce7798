"""Files in another bucket are read with options of their own; and what Spark shows of such reads holds no secret."""

from __future__ import annotations

import http.client
import json
import traceback
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import ForeignLocationError
from headwater.storage import open_store
from support.stores.storage_servers import moto_server
from support.tables.delta_tables import DeltaTable, field

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from support.stores.storage_servers import Endpoint

pytestmark = pytest.mark.spark
OTHER = "s3://headwater-other"


@pytest.fixture(scope="module")
def s3() -> Iterator[Endpoint]:
    with moto_server() as endpoint:
        address = urlsplit(endpoint.options["AWS_ENDPOINT_URL"])
        connection = http.client.HTTPConnection(str(address.hostname), address.port)
        connection.request("PUT", "/headwater-other", headers={"Content-Length": "0"})
        assert connection.getresponse().status == 200
        connection.close()
        yield endpoint


@pytest.fixture
def clone(s3: Endpoint, tmp_path: Path) -> str:
    """A table with one file of its own and one in another bucket; its URI."""
    table = DeltaTable(tmp_path / "t", field("id", "long"))
    table.append(pa.table({"id": [1, 2]}))
    table.append(pa.table({"id": [3, 4]}))
    uri = f"{s3.root}/{tmp_path.name}"
    store, other = open_store(uri, s3.options), open_store(f"{OTHER}/{tmp_path.name}", s3.options)
    for file in sorted(Path(tmp_path / "t").rglob("*.parquet")):
        store.put(file.name, file.read_bytes())
    for commit in sorted(Path(tmp_path / "t" / "_delta_log").glob("*.json")):
        lines = [json.loads(line) for line in commit.read_text().splitlines()]
        if commit.name.startswith(f"{2:020}"):
            for line in lines:
                if "add" in line:
                    data = Path(tmp_path / "t" / line["add"]["path"]).read_bytes()
                    other.put("far away.parquet", data)
                    line["add"]["path"] = f"{OTHER}/{tmp_path.name}/far%20away.parquet"
        store.put(f"_delta_log/{commit.name}", "\n".join(map(json.dumps, lines)).encode())
    return uri


def test_another_bucket_is_read_only_with_options_for_it(spark: SparkSession, s3: Endpoint, clone: str) -> None:
    with pytest.raises(ForeignLocationError, match=f"{OTHER}/credentials"):
        hw.read(spark, clone, storage_options=s3.options).collect()
    with pytest.raises(ForeignLocationError, match=f"{OTHER}/credentials"):
        hw.DeltaTable.forPath(spark, clone, storage_options=s3.options).delete("id = 4")
    same = {**s3.options, f"{OTHER}/credentials": "same"}
    assert sorted(row.id for row in hw.read(spark, clone, storage_options=same).collect()) == [1, 2, 3, 4]
    own = s3.options | {f"{OTHER}/{name}": value for name, value in s3.options.items()}
    table = hw.DeltaTable.forPath(spark, clone, storage_options=own)
    table.delete("id = 4")
    assert sorted(row.id for row in table.toDF().collect()) == [1, 2, 3]


def test_a_shallow_clone_across_buckets_can_be_read(spark: SparkSession, s3: Endpoint, tmp_path: Path) -> None:
    source = f"{s3.root}/{tmp_path.name}/source"
    hw.write(spark.range(3), source, storage_options=s3.options)
    table = hw.DeltaTable.forPath(spark, source, storage_options=s3.options)
    clone = table.clone(f"{OTHER}/{tmp_path.name}/clone", isShallow=True)
    assert clone.toDF().count() == 3
    near = table.clone(f"{s3.root}/{tmp_path.name}/clone", isShallow=True)
    assert hw.read(spark, near.detail().first().location, storage_options=s3.options).count() == 3


CANARY = "canary-sings-loudly"


def test_no_plan_and_no_value_shows_a_secret(
    spark: SparkSession, s3: Endpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {**s3.options, "AWS_SECRET_ACCESS_KEY": CANARY, "AWS_ACCESS_KEY_ID": f"id-{CANARY}"}
    options["AWS_SESSION_TOKEN"] = f"token-{CANARY}"
    options |= {f"{OTHER}/{name}": value for name, value in options.items()}
    uri = f"{s3.root}/{tmp_path.name}/table"
    hw.write(spark.range(10), uri, storage_options=options, properties={"delta.enableDeletionVectors": "true"})
    table = hw.DeltaTable.forPath(spark, uri, storage_options=options)
    table.delete("id = 3")
    table.update("id = 4", {"id": "40"})
    merge = table.alias("t").merge(spark.range(20, 22).alias("s"), "t.id = s.id").whenNotMatchedInsertAll()
    merge.execute()
    clone = table.clone(f"{OTHER}/{tmp_path.name}/clone")
    table.optimize().executeCompaction()
    frame = table.toDF()
    assert frame.count() == 11
    for mode in ("simple", "extended", "codegen", "cost", "formatted"):
        frame.explain(mode=mode)
    said = [repr(value) for value in (table, clone, merge, table.optimize(), frame, hw.scans(frame))]
    said += [str(capsys.readouterr()), frame._jdf.queryExecution().toString()]
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    for i in range(executions.size()):
        execution = executions.apply(i)
        said += [execution.description(), execution.details(), execution.physicalPlanDescription()]
    store = spark._jsc.sc().statusStore()
    jobs = store.jobsList(spark._jvm.java.util.ArrayList())
    said += [f"{jobs.apply(i).name()} {jobs.apply(i).description()}" for i in range(jobs.size())]
    frame = table.toDF()
    files = open_store(uri, options)
    files.delete_many([meta.key for meta in files.list_from("") if meta.key.endswith(".parquet")])
    with pytest.raises(Exception, match="parquet") as raised:
        frame.collect()
    said += [str(raised.value), repr(raised.value), "".join(traceback.format_exception(raised.value))]
    for text in said:
        assert CANARY not in str(text)
