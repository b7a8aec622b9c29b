"""The status of the nodes of a Tenure cluster, and `tenure node drain|undrain`."""

from __future__ import annotations

import argparse
import time
from typing import Any, Final, NamedTuple

from broker.runtime.node import DRAINED
from cli.client import Cluster, Exit, Failure, check
from cli.logs.text import time_text
from cli.shown import Screen, counted
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest

BROKER: Final = 4  # resource type
STATUS_PREFIX: Final = "status."
SET: Final = 0  # the operation of IncrementalAlterConfigs
STATUS_SECONDS: Final = 2.0
PAUSE_SECONDS: Final = 0.1


class StoreStatus(NamedTuple):
    """The state of a node's access to its logs in JetStream."""

    connected: bool
    lease_left_ms: int | None
    appends: int | None  # number of appends that JetStream has not acknowledged yet
    oldest_append_ms: int | None
    quarantined: list[str]  # damaged logs, each with the damage and the remedy


class NodeStatus(NamedTuple):
    draining: bool
    controller: bool
    groups_partitions: int  # of __consumer_offsets
    topics_partitions: int
    settled: bool  # whether each log is owned by the node that should own it, as far as this node knows
    started_ms: int | None
    since_ms: int | None  # when it took over its newest log
    groups_owned: list[int]
    topics_owned: list[str]  # the first thousand partitions of topics
    store: StoreStatus | None  # for a node whose logs are in JetStream

    @property
    def owned_text(self) -> str:
        texts = [f"{counted(self.groups_partitions, 'partition')} of groups", f"{self.topics_partitions} of topics"]
        return " and ".join(texts) + (" and is the controller" if self.controller else "")

    @property
    def empty(self) -> bool:
        return not (self.groups_partitions or self.topics_partitions or self.controller)

    def document(self) -> dict[str, Any]:
        return {
            "draining": self.draining,
            "settled": self.settled,
            "groups_partitions": self.groups_partitions,
            "topics_partitions": self.topics_partitions,
            "groups_owned": self.groups_owned,
            "topics_owned": self.topics_owned,
            "store": self.store._asdict() if self.store else None,
            "started": time_if_known(self.started_ms),
            "since": time_if_known(self.since_ms),
        }


def time_if_known(ms: int | None) -> str | None:
    """The time in UTC; None if unknown."""
    return None if ms is None else time_text(ms)


def node_status(cluster: Cluster, id: int) -> NodeStatus | None:
    """The status of a node; None for a broker that is not one of several nodes, or does not answer."""
    try:
        request = DescribeConfigsRequest([DescribeConfigsResource(BROKER, str(id), None)])
        reply = cluster.send_to_broker(id, request, timeout=STATUS_SECONDS, retry=False)
    except Failure:
        return None
    entries = {config.name.removeprefix(STATUS_PREFIX): config.value or "" for config in reply.results[0].configs if config.name.startswith(STATUS_PREFIX)}
    if "node" not in entries:
        return None
    newest = [time for name in ("controller.since.ms", "groups.newest.ms", "topics.newest.ms") if (time := number(entries, name)) is not None]
    return NodeStatus(
        entries["node"] == "draining",
        entries.get("controller") == "true",
        number(entries, "groups.partitions") or 0,
        number(entries, "topics.partitions") or 0,
        entries.get("settled") == "true",
        number(entries, "started.ms"),
        max(newest, default=None),
        [int(text) for text in listed(entries, "groups.owned")],
        listed(entries, "topics.owned"),
        store_status(entries) if "store.connected" in entries else None,
    )


def store_status(entries: dict[str, str]) -> StoreStatus:
    lease_left_ms, appends, oldest_append_ms = (number(entries, f"store.{name}") for name in ("lease.left.ms", "appends", "oldest.append.ms"))
    return StoreStatus(entries["store.connected"] == "true", lease_left_ms, appends, oldest_append_ms, listed(entries, "store.quarantined", "\n"))


def listed(entries: dict[str, str], name: str, separator: str = ",") -> list[str]:
    return [text for text in entries.get(name, "").split(separator) if text]


def number(entries: dict[str, str], name: str) -> int | None:
    text = entries.get(name, "")
    return int(text) if text.isdecimal() else None


# tenure node drain, tenure node undrain


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    drain = options.action == "drain"
    with Cluster.of(options) as cluster:
        before = checked_node(cluster, options.node, drain)
        if options.dry_run:
            after = before
            line = f"node {options.node} would {'give up' if drain else 'get'} its share of the logs; now it owns {before.owned_text}"
        else:
            send(cluster, options.node, drain)
            after = await_moved(cluster, options.node, drain)
            line = f"node {options.node} owns nothing and can be stopped" if drain else f"node {options.node} owns {after.owned_text}"
    if screen.json:
        screen.document({"node": options.node, "dry_run": options.dry_run, **after.document()})
    else:
        screen.line(line)
    return Exit.DONE


def checked_node(cluster: Cluster, id: int, drain: bool) -> NodeStatus:
    """The status of the node. Raises Failure if it is not one of several nodes or, with `drain`, if no other node could own its logs."""
    if id not in cluster.brokers:
        raise Failure(Exit.MISSING, f"there is no node {id} at the moment; there is {', '.join(map(str, sorted(cluster.brokers)))}")
    status = node_status(cluster, id)
    if status is None:
        raise Failure(Exit.UNSUPPORTED, f"broker {id} is not one of several nodes of Tenure (tenure serve --nodes N)")
    other_nodes = [status_of_other for other in cluster.brokers if other != id and (status_of_other := node_status(cluster, other)) is not None]
    if drain and all(other.draining for other in other_nodes):
        raise Failure(Exit.REFUSED, f"node {id} is the only node that is not drained: no node would own the logs")
    return status


def send(cluster: Cluster, id: int, drain: bool) -> None:
    """Send the request to the node itself, which informs the others."""
    resource = AlterConfigsResource(BROKER, str(id), [AlterableConfig(DRAINED, SET, str(drain).lower())])
    reply = cluster.send_to_broker(id, IncrementalAlterConfigsRequest([resource]))
    (response,) = reply.responses
    check(response.error_code, f"node {id}", response.error_message)


def await_moved(cluster: Cluster, id: int, drain: bool) -> NodeStatus:
    """Wait until a drained node owns no logs, or an undrained one its share again. Returns its status."""
    deadline = time.monotonic() + cluster.timeout
    while True:
        status = node_status(cluster, id)
        if status is not None and status.draining == drain and (status.empty if drain else status.settled):
            return status
        if time.monotonic() + PAUSE_SECONDS >= deadline:
            owned = "does not answer" if status is None else f"owns {status.owned_text} after {cluster.timeout:g} s"
            raise Failure(Exit.AGAIN, f"node {id} {owned}; tenure cluster shows its progress")
        time.sleep(PAUSE_SECONDS)
