"""The machine that measures: the cores of server and generator, and the load of other processes and virtual machines."""

from __future__ import annotations

import mmap
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

# Limits of noise: the figures are noisy if a value is above its limit, or below BUSY_NOISY.
STEAL_NOISY = 0.02  # share of the time in which the host ran other virtual machines on our cores
LOAD_NOISY = 1.0  # runnable tasks before the measurement
BUSY_NOISY = 0.7  # share of its core that the broker uses; below, the generator did not keep the broker busy
SPREAD_NOISY = 0.15  # how much the floor's cost, which should be constant, varies between rounds


class Cores(NamedTuple):
    """The cores of server and generator; None: not pinned."""

    server: int | None
    generator: int | None
    note: str


def choose_cores() -> Cores:
    if not hasattr(os, "sched_setaffinity"):
        return Cores(None, None, f"not pinned: {sys.platform} cannot pin a process to a core")
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return Cores(None, None, "not pinned: server and generator share the only core")
    server = cores[0]
    other_cores = [core for core in cores[1:] if core not in _siblings(server)]
    if not other_cores:
        return Cores(server, cores[1], f"server on core {server}, generator on core {cores[1]}: two threads of one physical core")
    return Cores(server, other_cores[0], f"server on core {server}, generator on core {other_cores[0]}")


def _siblings(core: int) -> set[int]:
    """The logical cores on the same physical core."""
    try:
        text = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list").read_text()
    except OSError:
        return {core}
    siblings: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        siblings |= set(range(int(first), int(last or first) + 1))
    return siblings


@contextmanager
def pinned(core: int | None) -> Iterator[None]:
    """Pin processes started in this context to this core, from their start on."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def touch_memory(size: int) -> None:
    """Write to `size` bytes of free memory once, so that the files of the next measurement use memory that the host has provided.

    A virtual machine gets a page of memory from its host at the first write to it. That costs several times as much as the copy, and would
    count for the server that fills the page cache first.
    """
    with mmap.mmap(-1, size) as memory:
        for at in range(0, size, mmap.PAGESIZE):
            memory[at] = 1


class Watch:
    """The load of the machine before the measurement, and its steal time since."""

    def __init__(self) -> None:
        self.load = os.getloadavg()[0]
        self._begin = _jiffies()

    def steal(self) -> float:
        """The share of processor time that the host gave to other virtual machines; 0 if the system does not report it."""
        spent = [now - then for now, then in zip(_jiffies(), self._begin, strict=True)]
        return spent[7] / total if (total := sum(spent)) else 0.0


def _jiffies() -> list[int]:
    """Ticks of all processors since boot: user, nice, system, idle, iowait, irq, softirq, steal."""
    try:
        return [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except OSError:
        return [0] * 8


def describe() -> dict[str, Any]:
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
