"""A broker for tests that does what a test tells it: `Broker` starts one, its clusters have verbs for faults, restarts, time and assertions.

    from tenure.testing import Broker

    with Broker(topics={"orders": 6}) as kafka:
        run_my_service(bootstrap=kafka.bootstrap)
        with kafka.no_rebalance("billing"):
            ...
"""

from __future__ import annotations

from .aio import AsyncBroker, AsyncCluster
from .assertions import Group, RebalanceSeen
from .broker import Broker
from .cluster import Cluster
from .control import Control, ControlError, NotReached
from .process import NoBroker, Process
from .verbs import FaultNotFired, InstalledFault

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
    "NoBroker",
    "NotReached",
    "Process",
    "RebalanceSeen",
]
