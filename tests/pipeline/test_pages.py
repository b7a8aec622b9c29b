"""The listings of docs/analyze.md and docs/spark.md that read the tables of an analysis."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import duckdb
import polars
import pytest
from deltalake import DeltaTable

from pipeline.tables import Tables
from tests.pipeline.report_rows import filled
from tests.project.listings import listings
from tests.running import ROOT

pytestmark = pytest.mark.once  # pages of this checkout

(READERS,) = listings(ROOT / "docs/analyze.md", "python")
LINES = [line.partition("  #")[0] for line in READERS.text.splitlines() if not line.startswith("spark.")]  # Spark's: tests/spark
(QUERIES,) = listings(ROOT / "docs/spark.md", "sql")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    filled(folder / "analysis")
    return folder


@pytest.mark.parametrize("line", LINES)
def test_each_reader_that_the_page_names_reads_the_tables(folder: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    if "to_pandas" in line and importlib.util.find_spec("pandas") is None:
        pytest.skip("needs pandas: make setup-analyze")
    monkeypatch.chdir(folder)
    rows: Any = eval(line, {"DeltaTable": DeltaTable, "duckdb": duckdb, "polars": polars, "Tables": Tables})
    assert len(rows) > 0


@pytest.mark.parametrize("query", QUERIES.text.splitlines())
def test_each_query_of_the_page_names_tables_and_columns_that_exist(folder: Path, query: str) -> None:
    connection = duckdb.connect()
    query = query.replace("(cluster, group)", '(cluster, "group")')  # a keyword in DuckDB, and none in Spark
    for number, path in enumerate(re.findall(r"delta\.`([^`]+)`", query)):
        connection.register(f"table{number}", DeltaTable(folder / path).to_pyarrow_dataset())
        query = query.replace(f"delta.`{path}`", f"table{number}")
    assert connection.execute(query).description
