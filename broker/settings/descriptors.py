"""Divide the process's file descriptors among log files, temporary use by workers, and connections."""

from __future__ import annotations

import contextlib
import os
import resource
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from broker.logging.logs import log
from broker.runtime.start import ExitCode, StartError
from broker.settings.config import Config

LIMIT_MIN: Final = 64
FIXED: Final = 24  # standard streams, the event loop's, the directory lock; without listening sockets
WORKING_MIN: Final = 20
WORKING_MAX: Final = 96  # opened briefly by workers: log opening, flushes, snapshots, checkpoints, the cleaner's pipes
LOGS_MIN: Final = 8
LOGS_MAX: Final = 512
CONNECTION_BYTES: Final = 16_384  # memory of an idle connection, kernel buffers included, rounded up
_CGROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")


class Descriptors(NamedTuple):
    """`logs`: log files kept open. Descriptors numbered from `reserve_from` are kept for workers."""

    limit: int
    logs: int
    connections: int
    reserve_from: int


def divide_descriptors(limit: int, kept: int) -> Descriptors:
    """`kept`: open all the time besides `FIXED`. Raises StartError when the limit is too small for any client."""
    if limit < LIMIT_MIN + kept:
        raise StartError(
            f"{limit} open files are allowed, and a broker needs {LIMIT_MIN + kept}: raise the limit (ulimit -n, LimitNOFILE)", ExitCode.PLATFORM
        )
    fixed = FIXED + kept
    working = min(max(limit // 4, WORKING_MIN), WORKING_MAX)
    left = limit - fixed - working
    logs = min(max(left // 4, LOGS_MIN), LOGS_MAX)
    return Descriptors(limit, logs, left - logs, limit - working)


def raise_limit() -> int:
    """Raise the open-file limit to its hard value, since the soft default (1024) allows too few clients; the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # macOS reports unlimited but refuses it
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


def with_connections(config: Config, descriptors: Descriptors, memory: int) -> Config:
    """Limit `max.connections` to the descriptors; its default also to the memory."""
    fits = descriptors.connections
    given = "max.connections" in config.given
    if given and config.max_connections > fits:
        log.warning("max.connections is lowered to what the open-file limit allows", configured=config.max_connections, used=fits, limit=descriptors.limit)
    if not given:
        fits = min(fits, max(memory // CONNECTION_BYTES, 1))
    if config.max_connections <= fits:
        return config
    return replace(config, max_connections=fits, given={**config.given, "max.connections": str(fits)})


def memory_bytes() -> int:
    """The memory of the machine or, if less, of the container."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(machine, int(_CGROUP_LIMIT.read_text()))
    except (OSError, ValueError):  # no cgroup, or "max"
        return machine
