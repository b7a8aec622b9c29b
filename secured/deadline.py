"""Deadlines of `time.monotonic()`."""

from __future__ import annotations

import time


def remaining(deadline: float) -> float:
    """Seconds until the deadline; TimeoutError if it has passed."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds
