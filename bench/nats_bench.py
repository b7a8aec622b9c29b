"""`nats bench`, NATS's own tool for measurements: an installed one, or one that Go builds once into `build/bench`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from bench.load import LoadError
from bench.native import BUILD, BuildError

MODULE: Final = "github.com/nats-io/natscli/nats@v0.5.0"
BUILD_SECONDS: Final = 1_200
RUN_SECONDS: Final = 300
CLIENTS: Final = 50
RATE: Final = re.compile(r"stats: ([\d,]+) msgs/sec")
LATENCIES: Final = re.compile(r"P50:? ([\d.,]+)us .*P99:? ([\d.,]+)us")


class Raw(NamedTuple):
    """The rate and latency of appends without a broker."""

    rate: float
    p50_ms: float
    p99_ms: float


def nats_tool() -> Path:
    """Raises BuildError."""
    found = shutil.which("nats")
    if found is not None:
        return Path(found)
    program = BUILD / "nats"
    if program.exists():
        return program
    if shutil.which("go") is None:
        raise BuildError("`nats` is not installed, and Go, which would build it, is not either")
    try:
        done = subprocess.run(
            ["go", "install", MODULE], env={**os.environ, "GOBIN": str(BUILD)}, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"go install {MODULE}: {error}") from None
    if done.returncode != 0:
        raise BuildError(f"go install {MODULE}: {done.stderr.strip().rpartition(chr(10))[2]}")
    return program


def publish(tool: Path, url: str, stream: str, messages: int, size: int) -> Raw:
    """Publish this number of messages to one stream with three replicas, from `CLIENTS` clients that each wait for every acknowledgement.

    Raises LoadError.
    """
    command = [
        tool, "--server", url, "--no-context", "bench", "js", "pub", "sync", f"{stream}.all", "--stream", stream, "--create", "--storage", "file",
        "--replicas", "3", "--clients", str(CLIENTS), "--msgs", str(messages), "--size", str(size), "--no-progress",
    ]  # fmt: skip
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise LoadError(f"nats bench: {error}") from None
    if done.returncode != 0:
        _failed(done.stderr or done.stdout)
    return parse(done.stdout)


def parse(output: str) -> Raw:
    """The figures of all clients together."""
    rate = RATE.search(output)
    latencies = LATENCIES.search(output, rate.end()) if rate is not None else None
    if rate is None or latencies is None:
        _failed(output)
    p50, p99 = (_number(latencies[group]) / 1000 for group in (1, 2))
    return Raw(_number(rate[1]), p50, p99)


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _failed(output: str) -> NoReturn:
    raise LoadError(f"nats bench: {output.strip()[-500:]}")
