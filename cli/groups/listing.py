"""`tenure group list`: the groups of every broker."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from cli import health
from cli.client import Cluster, Exit, Failure, check
from cli.failure import NOT_READY
from cli.groups.described import CLASSIC, TYPES_VERSION, describe
from cli.shown import Column, Painted, Role, Screen
from protocol.messages.list_groups import ListGroupsRequest

if TYPE_CHECKING:
    from cli.groups.described import Group

NOTES = "__coordinator_notes"  # an internal topic that only Tenure has
STATES_VERSION = 4
LOADING = (14, 15)
PAUSE_SECONDS = 0.2
# Describe the groups of longer lists only if an option needs it, since each group may have thousands of members.
DESCRIBED_MAX = 200
STATES = ("Stable", "PreparingRebalance", "CompletingRebalance", "Empty", "Dead", "Assigning", "Reconciling", "NotReady")
TYPES = ("classic", "consumer", "share", "streams")


class ListedGroup:
    """One group of ListGroups, completed by its description."""

    __slots__ = ("coordinator", "group", "members", "protocol", "protocol_type", "state", "static_count", "type")

    def __init__(self, group: str, state: str | None, type: str | None, protocol_type: str, coordinator: int) -> None:
        self.group = group
        self.state = state
        self.type = type
        self.protocol_type = protocol_type
        self.coordinator = coordinator
        self.protocol: str | None = None
        self.members: int | None = None
        self.static_count: int | None = None

    def complete(self, description: Group) -> None:
        self.state = description.state
        if description.readable:
            self.protocol = description.protocol
            self.members = len(description.members)
            self.static_count = description.static_count

    def document(self) -> dict[str, object]:
        return {
            "group": self.group,
            "state": self.state,
            "type": self.type,
            "protocol_type": self.protocol_type or None,
            "protocol": self.protocol or None,
            "coordinator": self.coordinator,
            "members": self.members,
            "static_members": self.static_count,
        }


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    states, types = protocol_names(options.states, STATES, "state"), protocol_names(options.types, TYPES, "type")
    missing: dict[int, Failure] = {}
    with Cluster.of(options) as cluster:
        groups = list_groups(cluster, states, types, missing)
        describe_groups(cluster, groups, everything=options.members, states_wanted=bool(states))
        brokers = {id: f"{broker.host}:{broker.port}" for id, broker in cluster.brokers.items()}
        troubles = [Failure(Exit.AGAIN, f"{failure.line}: its groups are missing here", kind=failure.kind) for failure in missing.values()]
        troubles += [Failure(Exit.AGAIN, f"{line}: its groups are missing here", kind=NOT_READY) for line in unready_brokers(cluster, cluster.brokers)]
    if states:
        wanted_states = {state.lower() for state in states}
        groups = [group for group in groups if group.state is not None and group.state.lower() in wanted_states]
    groups.sort(key=lambda group: group.group)
    if screen.json:
        screen.document({"groups": [group.document() for group in groups]})
    else:
        show(screen, groups, brokers, filtered=bool(states or types))
    return max([screen.fail(trouble) for trouble in troubles], default=Exit.DONE)


def unready_brokers(cluster: Cluster, ids: Iterable[int]) -> list[str]:
    """A line for each of these brokers that cannot read or has not loaded some partitions, and so lists none of their groups. Asks as `tenure health` does."""
    if cluster.topics([NOTES])[NOTES].error:
        return []
    lines = []
    for broker in map(cluster.brokers.__getitem__, ids):
        code, text = health.probe(broker.host, broker.port, cluster.timeout)
        if code == health.NOT_READY:
            lines.append(f"{broker.host}:{broker.port} {text}")
    return lines


def protocol_names(requested: list[str], known: tuple[str, ...], kind: str) -> list[str]:
    """The requested names in the protocol's spelling; Failure for an unknown name."""
    by_lower = {name.lower(): name for name in known}
    for name in requested:
        if name.lower() not in by_lower:
            raise Failure(Exit.USAGE, f"there is no {kind} {name!r} of groups: {', '.join(known)}")
    return [by_lower[name.lower()] for name in requested]


def list_groups(cluster: Cluster, states: list[str], types: list[str], missing: dict[int, Failure]) -> list[ListedGroup]:
    groups: dict[str, ListedGroup] = {}
    for broker_id in sorted(cluster.brokers):
        version = list_groups_version(cluster, broker_id, missing)
        if version is None:
            continue
        request = ListGroupsRequest(states if version >= STATES_VERSION else [], types if version >= TYPES_VERSION else [])
        reply = list_loaded_groups(cluster, broker_id, request)
        check(reply.error_code, f"broker {broker_id}")
        for group in reply.groups:
            type = group.group_type.lower() if version >= TYPES_VERSION else CLASSIC  # older versions of ListGroups list only this type
            if not types or type in types:
                groups[group.group_id] = ListedGroup(group.group_id, group.group_state or None, type, group.protocol_type, broker_id)
    return list(groups.values())


def list_groups_version(cluster: Cluster, broker_id: int, missing: dict[int, Failure]) -> int | None:
    """The version of ListGroups; None, and an entry in `missing`, if one of several brokers does not answer."""
    try:
        return cluster.version(ListGroupsRequest.API_KEY, broker_id)
    except Failure as failure:
        if failure.exit_code != Exit.UNREACHABLE or len(cluster.brokers) == 1:
            raise
        missing[broker_id] = failure
        return None


def list_loaded_groups(cluster: Cluster, broker_id: int, request: ListGroupsRequest) -> Any:
    """Send ListGroups; repeat it while the broker loads groups, and so does not list all."""
    deadline = time.monotonic() + cluster.timeout
    while True:
        reply = cluster.send_to_broker(broker_id, request)
        if reply.error_code not in LOADING or time.monotonic() + PAUSE_SECONDS >= deadline:
            return reply
        time.sleep(PAUSE_SECONDS)


def describe_groups(cluster: Cluster, listed: list[ListedGroup], *, everything: bool, states_wanted: bool) -> None:
    stateless = any(entry.state is None for entry in listed)
    if len(listed) <= DESCRIBED_MAX or everything or (stateless and states_wanted):
        groups = describe(cluster, [entry.group for entry in listed]) if listed else {}
        for entry in listed:
            group = groups[entry.group]
            if group is not None:
                entry.complete(group)


def show(screen: Screen, groups: list[ListedGroup], brokers: dict[int, str], *, filtered: bool) -> None:
    if not groups:
        screen.line("no group has this state and type" if filtered else "there are no groups")
        return
    columns: list[Column | str] = [
        Column("GROUP", False),
        Column("STATE", False),
        "TYPE",
        "PROTOCOL",
        "MEMBERS",
        "STATIC",
        Column("COORDINATOR", False),
    ]
    rows = [
        [
            group.group,
            Painted(group.state, state_role(group.state)),
            group.type,
            protocol(group),
            group.members,
            group.static_count,
            f"{group.coordinator} ({brokers[group.coordinator]})" if group.coordinator in brokers else group.coordinator,
        ]
        for group in groups
    ]
    screen.table(columns, rows)
    if any(group.members is None for group in groups) and len(groups) > DESCRIBED_MAX:
        screen.line(f"{len(groups)} groups; --members also counts their members")


def protocol(group: ListedGroup) -> str | None:
    """The assignor of a group of consumers (`range`); of other groups with the protocol type before it (`connect/compatible`)."""
    if group.protocol_type in ("", "consumer"):
        return group.protocol or None
    return f"{group.protocol_type}/{group.protocol}" if group.protocol else group.protocol_type


def state_role(state: str | None) -> Role | None:
    return {"Stable": Role.GOOD, "Empty": Role.DIM, "Dead": Role.BAD, None: None}.get(state, Role.CAREFUL)
