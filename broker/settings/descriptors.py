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
FIXED: Final = 24  # standard streams, the event loop, the directory lock; listening sockets are not included
WORKING_MIN: Final = 20
WORKING_MAX: Final = 96  # opened briefly by workers: log opening, flushes, snapshots, checkpoints, the cleaner's pipes
LOGS_MIN: Final = 8
LOGS_MAX: Final = 512
CONNECTION_BYTES: Final = 16_384  # memory of an idle connection, kernel buffers included, rounded up
FORWARDING_LINKS_MAX: Final = 8  # connections over which one node forwards clients' requests to another
LINKS_MAX: Final = FORWARDING_LINKS_MAX + 4  # connections that one node opens to another
SPARE_LINKS: Final = 16  # probes of the supervisor, and links whose node has ended
_CGROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")


class Descriptors(NamedTuple):
    """How many descriptors each use gets. `logs`: log files kept open. Descriptor numbers from `reserve_from` on are for workers."""

    limit: int
    logs: int
    connections: int
    reserve_from: int


def divide_descriptors(limit: int, always_open: int) -> Descriptors:
    """`always_open`: permanent descriptors in addition to `FIXED`. Raises StartError if the limit is too small for any client."""
    if limit < LIMIT_MIN + always_open:
        raise StartError(
            f"{limit} open files are allowed, and a broker needs {LIMIT_MIN + always_open}: raise the limit (ulimit -n, LimitNOFILE)", ExitCode.PLATFORM
        )
    working = min(max(limit // 4, WORKING_MIN), WORKING_MAX)
    available = limit - FIXED - always_open - working
    logs = min(max(available // 4, LOGS_MIN), LOGS_MAX)
    return Descriptors(limit, logs, available - logs, limit - working)


def accepted_links_max(nodes: int) -> int:
    """How many connections of other nodes one node accepts."""
    return nodes * LINKS_MAX + SPARE_LINKS


def descriptors_of_links(nodes: int, limit: int) -> int:
    """Permanent descriptors for the connections between this node and the others; less for a great many nodes."""
    return min(2 * (nodes - 1) * LINKS_MAX + SPARE_LINKS, limit // 4)


def raise_limit() -> int:
    """Raise the open-file limit to its hard value, since the soft default (1024) allows too few clients; returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # macOS reports unlimited but refuses it
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return open_files_limit()


def open_files_limit() -> int:
    """How many files this process may open."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


def with_connections(config: Config, descriptors: Descriptors, memory: int) -> Config:
    """Lower `max.connections` to the descriptors for connections; by default also to what the memory allows."""
    allowed = descriptors.connections
    if "max.connections" not in config.given:
        allowed = min(allowed, max(memory // CONNECTION_BYTES, 1))
    elif config.max_connections > allowed:
        log.warning(
            "max.connections is lowered to the open-file limit", configured=config.max_connections, used=allowed, limit=descriptors.limit
        )
    if config.max_connections <= allowed:
        return config
    return replace(config, max_connections=allowed, given={**config.given, "max.connections": str(allowed)})


def memory_bytes() -> int:
    """The memory of the machine or, if less, of the container."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(machine, int(_CGROUP_LIMIT.read_text()))
    except (OSError, ValueError):  # no cgroup, or "max"
        return machine
