"""Figures without a floor: start time, idle memory, and the codec compared with kio's."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from bench.kafka import kafka
from bench.load import spread
from bench.machine import pinned
from bench.native import ROOT
from bench.rows import SingleRow
from bench.servers import Server, broker, environment, resident_mib, served_versions

STARTS = 7
IDLE_SECONDS = 1.0
CODEC_SECONDS = 120


def measured(row: SingleRow, each: list[float]) -> dict[str, Any]:
    return {"status": "measured", "unit": row.unit, "at_most": row.at_most, "ours": spread(each)}


class Start(NamedTuple):
    seconds: float  # from before the start of the process to its first reply
    mib: float  # resident memory, one idle second after the first reply
    import_uvloop_seconds: float  # of a Python process that only imports uvloop, run right after the broker


def starts(core: int | None) -> list[Start]:
    return [Start(*first_answer(broker(core)), import_uvloop(core)) for _ in range(STARTS)]


def import_uvloop(core: int | None) -> float:
    with pinned(core):
        begun = time.monotonic()
        subprocess.run([sys.executable, "-P", "-c", "import uvloop"], check=True, env=environment())
        return time.monotonic() - begun


def first_answer(starting: AbstractContextManager[Server]) -> tuple[float, float]:
    with starting as server:
        served_versions(server.port)
        seconds = time.monotonic() - server.born
        time.sleep(IDLE_SECONDS)
        return seconds, resident_mib(server.pid)


def kafka_start_and_memory(jars: Path, core: int | None) -> tuple[float, float]:
    return first_answer(kafka(jars, core))


def codec(core: int | None) -> dict[str, Any]:
    """The output of `python -m bench.codec --json`, run in a child process on the server's core."""
    command = [sys.executable, "-P", "-m", "bench.codec", "--json"]
    try:
        with pinned(core):
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=CODEC_SECONDS, check=False, env=environment(), cwd=ROOT
            )
    except subprocess.TimeoutExpired:
        return {"status": "failed", "reason": f"not done within {CODEC_SECONDS} s"}
    if done.returncode != 0 and not done.stdout.startswith("{"):
        error_lines = done.stderr.strip().splitlines()
        return {"status": "failed", "reason": error_lines[-1] if error_lines else f"exit {done.returncode}"}
    return {"status": "measured", **json.loads(done.stdout)}
