"""`tenure store` as a process, and empty clusters in JetStream to copy to."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import count
from typing import Any

from tests.running import environment
from tests.support.nats_engine import NatsEngine

NUMBERS = count()


def command(action: str, *arguments: object) -> list[str]:
    return [sys.executable, "-P", "-m", "tenure", "store", action, *map(str, arguments)]


def store(action: str, *arguments: object, code: int = 0) -> Any:
    """Run `tenure store ACTION`; returns the JSON that it prints, or, if `code` is not 0, its error text."""
    ended = subprocess.run([*command(action, *arguments), "--json"], env=environment(), capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == code, (ended.returncode, ended.stdout, ended.stderr)
    return json.loads(ended.stdout) if not code else ended.stderr


class TenureCluster:
    """A new cluster in started NATS servers."""

    def __init__(self, engine: NatsEngine) -> None:
        self.url = engine.url
        self.name = f"moved{next(NUMBERS)}"
        self.replicas = len(engine.servers)

    @property
    def place(self) -> tuple[str, ...]:
        return self.url, "--cluster", self.name, "--set", f"store.replicas={self.replicas}"
