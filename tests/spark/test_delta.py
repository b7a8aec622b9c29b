"""Delta tables written without Spark are read by Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.spark import packages
from tests.spark.session import has_delta

pytestmark = pytest.mark.spark


@pytest.fixture
def delta(spark: Any) -> Any:
    jars = packages.find()
    if isinstance(jars, str) or not has_delta(jars):
        pytest.skip(packages.NO_DELTA)
    return spark


def test_a_table_is_read_by_its_path_and_in_sql(delta: Any, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    schema = pa.schema([("group", pa.string()), ("day", pa.int32()), ("members", pa.list_(pa.string())), ("lag", pa.int64())])
    rows = [{"group": "a", "day": 1, "members": ["x", "y"], "lag": 7}, {"group": "b", "day": 2, "members": [], "lag": None}]
    later = {"group": "c", "day": 2, "members": None, "lag": 2**40}
    write_deltalake(table, pa.Table.from_pylist(rows, schema), partition_by=["day"])
    write_deltalake(table, pa.Table.from_pylist([later], schema), mode="append")
    frame = delta.read.format("delta").load(table)
    assert [row.asDict() for row in frame.orderBy("group").collect()] == [*rows, later]
    assert delta.sql(f"SELECT sum(lag) AS lag FROM delta.`{table}` WHERE day = 2").first().lag == 2**40
    first = delta.read.format("delta").option("versionAsOf", 0).load(table)
    assert first.count() == 2
