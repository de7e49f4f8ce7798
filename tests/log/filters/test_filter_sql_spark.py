from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.log.filters.expressions import Unknown
from headwater.log.filters.sql import parse_filter
from support.oracles import filter_oracle

TESTS = Path(__file__).parents[2]
HAS_JAVA = bool(os.environ.get("JAVA_HOME") or shutil.which("java"))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.skipif(not HAS_JAVA, reason="needs a Java runtime")
def test_filters_mean_what_spark_says_they_mean() -> None:
    texts = filter_oracle.conditions(count=160, seed=20)
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])

    run = subprocess.run(
        [sys.executable, str(TESTS / "support" / "jobs" / "spark_answers.py")],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
    )

    compared = exact = 0
    for text, answers in zip(texts, json.loads(run.stdout), strict=True):
        if answers is None:
            continue  # Spark refuses it
        tree = parse_filter(text)
        for row, answer in zip(filter_oracle.ROWS, answers, strict=True):
            allowed = filter_oracle.possible(tree, row)
            assert answer in allowed, f"{text}: Spark says {answer} for {row}, {tree} says {set(allowed)}"
            exact += len(allowed) == 1
        compared += not isinstance(tree, Unknown)
    assert compared > 100
    assert exact > 500
