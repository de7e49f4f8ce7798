"""A DataFrame in a session of its own: settings for one job that the user's session never sees.

A clone shares what is expensive (the context, catalogs, cached data) and has a copy of the rest, so a setting on it
changes nothing elsewhere, not even for another thread. Only classic PySpark can clone sessions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.spark.jvm import jvm_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

_DATASET = "org.apache.spark.sql.classic.Dataset"


def in_private_session(df: DataFrame, settings: Mapping[str, str]) -> DataFrame:
    """The same rows, computed with other settings.

    Args:
        df: a DataFrame of classic PySpark.
        settings: Spark's, for the private session.
    """
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    spark = df.sparkSession
    clone = df._jdf.sparkSession().cloneSession()
    for name, value in settings.items():
        clone.conf().set(name, value)
    rows = jvm_of(spark).static(_DATASET).ofRows(clone, df._jdf.logicalPlan())
    return ClassicDataFrame(rows, spark)
