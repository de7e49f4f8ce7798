"""Starting sessions: quick local defaults for a new one, hands off one that is already there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from headwater.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCRIPT = """
import json, os
from headwater.spark.session import session

first = session("mine", **{"spark.sql.shuffle.partitions": 3, "spark.master": "local[1]"})
conf = first.sparkContext.getConf()
print(json.dumps({
    "app": first.sparkContext.appName,
    "ui": conf.get("spark.ui.enabled"),
    "zone": first.conf.get("spark.sql.session.timeZone"),
    "adaptive": first.conf.get("spark.sql.adaptive.enabled"),
    "partitions": first.conf.get("spark.sql.shuffle.partitions"),
    "java_home": os.environ.get("JAVA_HOME"),
    "rows": first.range(3).count(),
}))
"""


@pytest.mark.spark
@pytest.mark.slow
def test_a_new_session_is_quiet_local_and_what_was_asked_for() -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("JAVA_HOME", "PYSPARK_GATEWAY_PORT")}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, env=environment, timeout=300, check=True
    )
    assert json.loads(done.stdout) == {
        "app": "mine",
        "ui": "false",
        "zone": "UTC",
        "adaptive": "true",
        "partitions": "3",
        "java_home": None,
        "rows": 3,
    }
    assert "WARN" not in done.stderr.replace("WARNING: Using incubator modules", "")


@pytest.mark.spark
def test_a_running_session_is_returned_with_nothing_changed(spark: SparkSession) -> None:
    before = dict(spark.conf.getAll)
    assert session.session("other name") is spark
    assert dict(spark.conf.getAll) == before


@pytest.mark.spark
def test_a_running_session_gets_what_is_asked_for_by_name(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        assert session.session(**{"spark.sql.shuffle.partitions": 5}) is spark
        assert spark.conf.get("spark.sql.shuffle.partitions") == "5"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", str(before))


@pytest.mark.parametrize(
    ("conf", "environment", "local"),
    [
        ({}, {}, True),
        ({"spark.master": "local[4]"}, {}, True),
        ({"spark.master": "local-cluster[2,1,1024]"}, {}, False),
        ({"spark.master": "spark://host:7077"}, {}, False),
        ({}, {"MASTER": "yarn"}, False),
        ({}, {"PYSPARK_GATEWAY_PORT": "1"}, False),
        ({}, {"PYSPARK_SUBMIT_ARGS": "--master yarn pyspark-shell"}, False),
    ],
)
def test_local_defaults_are_for_one_machine_only(
    monkeypatch: pytest.MonkeyPatch, conf: dict[str, object], environment: dict[str, str], local: bool
) -> None:
    for name in ("MASTER", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    defaults = session._new_session_defaults(conf)
    assert ("spark.driver.extraJavaOptions" in defaults) == local
    assert defaults["spark.sql.session.timeZone"] == "UTC"


def test_a_remote_session_gets_the_time_zone_only() -> None:
    assert session._new_session_defaults({"spark.remote": "sc://x"}) == {"spark.sql.session.timeZone": "UTC"}
