"""Pipeline rows: `python -m bench.pipeline` in a child process, and its output as figures."""

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
LACKING = "make setup-analyze adds it"


class Failed(Exception):
    """The reason for missing figures, in one line."""


class Lacking(Exception):
    """A requirement of Spark is missing."""


def measured(row: PipelineRow, core: int | None) -> dict[str, Any]:
    """Without Spark on one core; Spark's JVM has threads of its own, and is not pinned."""
    for package in ("numpy", "pyarrow", *(("pyspark",) if row.master else ())):
        if find_spec(package) is None:
            return {"status": "not measured", "reason": f"{package} is not installed: {LACKING}"}
    try:
        if row is PIPELINE:
            with pinned(core):
                found = _run()
                found["peak_mib"] = [_run("--groups", "1", "--rounds", "0")["peak_mib"]]
        else:
            found = _run("--spark", "local[1]")
            two = _run("--spark", "local[2]")
            found["speed_up"] = [max(two["all"]) / max(found["all"])]
    except Failed as error:
        return {"status": "failed", "reason": str(error)}
    except Lacking as error:
        return {"status": "not measured", "reason": str(error)}
    found["to_loop"] = [bronze / loop for bronze, loop in zip(found["bronze_cpu"], found["loop_cpu"], strict=True)]
    figures = [{"figure": figure.name, "unit": figure.unit, "ours": spread(found[figure.field])} for figure in row.figures]
    return {"status": "measured", "records": found["records"], "figures": figures}


def _run(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-P", "-m", "bench.pipeline", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False, env=environment(), cwd=ROOT)
    except subprocess.TimeoutExpired:
        raise Failed(f"not done within {SECONDS_MAX} s") from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise Failed(said[-1] if said else f"exit {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if "lacking" in found:
        raise Lacking(found["lacking"])
    return found
