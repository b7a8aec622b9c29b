"""Rows of the pipeline: every figure is measured, or has a reason why not."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from bench import pipeline_row, rows, table
from bench.pipeline import measure


def test_a_run_without_spark_has_every_figure_of_its_row() -> None:
    row = measure(20_000, 20, 4, 1, None)
    assert row["records"] >= 20_000
    assert {figure.field for figure in rows.PIPELINE.figures} - {"to_loop"} <= row.keys()
    assert all(len(row[name]) == 1 and row[name][0] > 0 for name in ("all", "all_cpu", "loop_cpu"))


def test_the_prefix_pipeline_selects_both_rows() -> None:
    assert rows.chosen(["pipeline"]) == {row.name for row in rows.PIPELINE_ROWS}


def test_without_pyspark_the_row_has_that_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_row, "find_spec", lambda name: None if name == "pyspark" else find_spec(name))
    result = pipeline_row.measured(rows.PIPELINE_SPARK, None)
    assert result == {"status": "not measured", "reason": "pyspark is not installed: make setup-analyze adds it"}
    lines = table.pipeline_lines({"rows": {rows.PIPELINE_SPARK.name: result}})
    assert lines == ["pipeline on Spark, local[1]: not measured: pyspark is not installed: make setup-analyze adds it"]


def test_a_missed_pipeline_target_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_row, "_run", lambda *arguments: rates(0.07))
    result = pipeline_row.measured(rows.PIPELINE, None)
    table_lines = table.pipeline_lines({"rows": {rows.PIPELINE.name: result}})
    verdicts = [line.split()[-1] for line in table_lines[1:]]
    assert verdicts[0] == "MISSED"
    assert list(table._missed_by_the_pipeline({"rows": {rows.PIPELINE.name: result}})) == ["pipeline-process all tables: 0.07 M/CPU s, to be >= 0.08"]


def rates(rate: float) -> dict[str, Any]:
    return {"all_cpu": [rate], "loop_cpu": [0.05], "records": 1_000_000, "peak_mib": 500.0}
