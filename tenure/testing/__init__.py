"""A broker for tests that does what a test tells it: `Broker` starts one, its clusters have verbs for faults, restarts, time and assertions.

    from tenure.testing import Broker

    with Broker(topics={"orders": 6}) as kafka:
        run_my_service(bootstrap=kafka.bootstrap)
        with kafka.no_rebalance("billing"):
            ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .assertions import Group, RebalanceSeen
from .broker import Broker
from .cluster import Cluster, Namespace
from .control import Control, ControlError, NotReached
from .process import NoBroker, Process, image_command
from .verbs import FaultNotFired, InstalledFault

if TYPE_CHECKING:
    from .aio import AsyncBroker, AsyncCluster

__all__ = [
    "AsyncBroker",
    "AsyncCluster",
    "Broker",
    "Cluster",
    "Control",
    "ControlError",
    "FaultNotFired",
    "Group",
    "InstalledFault",
    "Namespace",
    "NoBroker",
    "NotReached",
    "Process",
    "RebalanceSeen",
    "image_command",
]


def __getattr__(name: str) -> Any:
    """Import asyncio only for those who use it."""
    if name in ("AsyncBroker", "AsyncCluster"):
        from . import aio

        return getattr(aio, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
