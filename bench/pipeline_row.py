"""The pipeline rows: run `python -m bench.pipeline` in a child process, and convert its output to figures."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

from bench.load import spread
from bench.machine import pinned
from bench.native import ROOT
from bench.rows import PIPELINE, PipelineRow
from bench.servers import environment

SECONDS_MAX = 900
REMEDY = "make setup-analyze adds it"


class Failed(Exception):
    """The figures could not be measured; the message is the reason, in one line."""


class Lacking(Exception):
    """Java or a package that Spark needs is missing."""


def measured(row: PipelineRow, core: int | None) -> dict[str, Any]:
    """The figures of a row. Spark is not pinned to the core, since its JVM has many threads."""
    for package in ("numpy", "pyarrow", "deltalake", *(("pyspark",) if row.master else ())):
        if find_spec(package) is None:
            return {"status": "not measured", "reason": f"{package} is not installed: {REMEDY}"}
    try:
        if row is PIPELINE:
            with pinned(core):
                result = _run()
                result["peak_mib"] = [_run("--groups", "1", "--rounds", "0")["peak_mib"]]
        else:
            result = _run("--spark", "local[1]")
            two_cores = _run("--spark", "local[2]")
            result["speed_up"] = [max(two_cores["all"]) / max(result["all"])]
    except Failed as error:
        return {"status": "failed", "reason": str(error)}
    except Lacking as error:
        return {"status": "not measured", "reason": str(error)}
    result["to_loop"] = [rate / loop for rate, loop in zip(result["all_cpu"], result["loop_cpu"], strict=True)]
    figures = [{"figure": figure.name, "unit": figure.unit, "ours": spread(result[figure.field])} for figure in row.figures]
    return {"status": "measured", "records": result["records"], "figures": figures}


def _run(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-P", "-m", "bench.pipeline", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False, env=environment(), cwd=ROOT)
    except subprocess.TimeoutExpired:
        raise Failed(f"not done within {SECONDS_MAX} s") from None
    if done.returncode != 0:
        error_lines = done.stderr.strip().splitlines()
        raise Failed(error_lines[-1] if error_lines else f"exit {done.returncode}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if "lacking" in result:
        raise Lacking(result["lacking"])
    return result
