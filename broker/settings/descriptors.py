"""How the open files that the system allows are shared out: to logs, to work under way, and the rest to connections."""

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
FIXED: Final = 24  # standard streams, the loop's own, the lock of the data directory; listening sockets come on top
WORKING_MIN: Final = 20
WORKING_MAX: Final = 96  # what threads open for moments: openings, flushes, snapshots, checkpoints, the pipes of a cleaner
LOGS_MIN: Final = 8
LOGS_MAX: Final = 512
CONNECTION_BYTES: Final = 16_384  # what an idle connection takes of memory, here and in the kernel, and some more
_CGROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")


class Descriptors(NamedTuple):
    """`logs` files of logs stay open; beyond `reserve_from` every descriptor is for work under way."""

    limit: int
    logs: int
    connections: int
    reserve_from: int


def shared_out(limit: int, listening: int) -> Descriptors:
    """Raises StartError for a limit that is too small to serve anybody."""
    if limit < LIMIT_MIN + listening:
        raise StartError(
            f"{limit} open files are allowed, and a broker needs {LIMIT_MIN + listening}: raise the limit (ulimit -n, LimitNOFILE)", ExitCode.PLATFORM
        )
    fixed = FIXED + listening
    working = min(max(limit // 4, WORKING_MIN), WORKING_MAX)
    left = limit - fixed - working
    logs = min(max(left // 4, LOGS_MIN), LOGS_MAX)
    return Descriptors(limit, logs, left - logs, limit - working)


def raise_limit() -> int:
    """Open-file limit to its hard value: thousands of clients are ordinary here, and the soft default is 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # macOS says unlimited and means less
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


def with_connections(config: Config, descriptors: Descriptors, memory: int) -> Config:
    """`max.connections` as far as it fits: by default what descriptors and memory allow, else no more than the descriptors."""
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
    """What this process may take: of the machine, or of its container."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(machine, int(_CGROUP_LIMIT.read_text()))
    except (OSError, ValueError):  # none, or "max"
        return machine
