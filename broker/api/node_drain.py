"""The setting `node.drained` of one of several nodes: IncrementalAlterConfigs changes it, DescribeConfigs shows it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol

from broker.api.refused import Refused
from broker.runtime.node import DRAINED
from protocol.errors import ErrorCode

DRAINED_DOC: Final = "Whether this node has handed its logs over to the other nodes (tenure node drain). A restart of the node ends that."
_VALUES: Final = {"true": True, "false": False}


class NodeDrain(Protocol):
    """One of several nodes, as it drains."""

    @property
    def drained(self) -> bool: ...

    @property
    def live_nodes(self) -> Collection[int]: ...

    def set_drained(self, drained: bool) -> None:
        """Hand this node's logs over to the other nodes, or acquire its share again."""
        ...


def drained_value(value: str) -> bool:
    """Parse a value of the setting; raises Refused."""
    drained = _VALUES.get(value.strip().lower())
    if drained is None:
        raise Refused(ErrorCode.INVALID_CONFIG, f"Invalid value {value} for configuration {DRAINED}: Expected value to be either true or false")
    return drained


def check_live(drain: NodeDrain, name: str) -> None:
    """Raise Refused unless the name of the broker resource is that of a live node."""
    live = sorted(drain.live_nodes)
    if not name:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{DRAINED} is a setting of one node, and the resource names none.")
    if name not in map(str, live):
        raise Refused(ErrorCode.INVALID_REQUEST, f"Node {name} is not live, so it cannot be drained or undrained; live nodes: {', '.join(map(str, live))}.")
