"""What a second of this machine is worth now: others may share it."""

from __future__ import annotations

import time


def loop_seconds() -> float:
    """The processor time of a fixed loop."""
    begin = time.thread_time()
    for _ in range(1_000_000):
        pass
    return time.thread_time() - begin
