"""Disks that fail while Spark writes: a typed error that says so, and no commit."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

import headwater as hw
from headwater.errors import StorageError, StorageRefusedError
from headwater.spark.errors import explained_failures
from headwater.spark.write.files import _flush_directory

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

JAVA = """An error occurred while calling o77.parquet.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/data/t.
Caused by: java.io.IOException: No space left on device
\tat java.base/sun.nio.ch.FileDispatcherImpl.write0(Native Method)
"""
PYTHON = """Traceback (most recent call last):
  File "pyarrow/error.pxi", line 92, in pyarrow.lib.check_status
OSError: [Errno 122] Error writing bytes to file. Detail: [errno 122] Disk quota exceeded
"""


@pytest.mark.parametrize(
    ("text", "said"), [(JAVA, "No space left on device"), (PYTHON, "Disk quota exceeded")], ids=["java", "python"]
)
def test_what_a_disk_of_an_executor_says_is_an_error_of_storage(text: str, said: str) -> None:
    expected = pytest.raises(StorageRefusedError, match=rf"could not write the files of s3://b/t: {said}")
    with expected as caught, explained_failures("write the files of s3://b/t"):
        raise RuntimeError(text)
    assert len(str(caught.value)) < 1_000


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="division by zero"), explained_failures():
        raise RuntimeError("division by zero")


def test_a_directory_that_cannot_be_flushed_after_a_write_is_an_error_of_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError, match=r"could not flush the directory .*Input/output error"):
        _flush_directory(str(tmp_path))


@pytest.mark.spark
@pytest.mark.parametrize("partitioned", [False, True], ids=["by Spark", "by Python workers"])
def test_a_write_whose_executors_run_out_of_space_commits_nothing(
    spark: SparkSession, tmp_path: Path, partitioned: bool
) -> None:
    from pyspark.sql import functions as sf

    def fail(value: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    full = sf.udf(fail, "bigint", useArrow=False)
    hw.write(spark.range(3).selectExpr("id", "id AS p"), tmp_path, partition_by="p" if partitioned else None)
    rows = spark.range(3).select(full("id").alias("id"), sf.col("id").alias("p"))
    with pytest.raises(StorageRefusedError, match=f"could not write the files of .*{tmp_path.name}.*No space left"):
        hw.write(rows, tmp_path, mode="append")
    assert hw.open_log(tmp_path).version == 0
