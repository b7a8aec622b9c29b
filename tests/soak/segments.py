"""Checks the segments of a data directory with `tenure log verify` and, if Java and Kafka's jars are there, with Kafka's dump tool."""

from __future__ import annotations

import subprocess
from pathlib import Path

import cli
from tests.oracle import JAVA, find_jars

DUMP = "org.apache.kafka.tools.DumpLogSegments"
SECONDS = 300


def unreadable(data: Path, topic: str, tell: bool = True) -> list[str]:
    """The problems that the tools report, one line each."""
    wrong = ["tenure log verify found problems"] if cli.main(["log", "verify", str(data)]) else []
    jars = find_jars()
    if isinstance(jars, str):
        if tell:
            print(f"soak: Kafka's dump tool was not asked: {jars}")
        return wrong
    segments = sorted(str(segment) for segment in data.glob(f"{topic}-*/*.log"))
    command = [*JAVA, "-cp", f"{jars}/*", DUMP, "--deep-iteration", "--files", ",".join(segments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    batches = [line for line in done.stdout.splitlines() if line.startswith("baseOffset: ")]
    wrong += [f"Kafka's dump tool: {line}" for line in batches if not line.endswith("isvalid: true")][:10]
    if done.returncode or not batches or "Found" in done.stdout:
        wrong.append(f"Kafka's dump tool ended with {done.returncode}: {(done.stdout + done.stderr)[-300:]}")
    if tell:
        print(f"soak: Kafka's dump tool read {len(batches)} batches in {len(segments)} segments")
    return wrong
