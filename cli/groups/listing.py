"""`tenure group list`: the groups of every broker."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cli import health
from cli.client import Cluster, Exit, Failure
from cli.failure import NOT_READY
from cli.groups.described import CLASSIC, describe
from cli.groups.everywhere import TYPES_VERSION, list_everywhere
from cli.shown import Column, Painted, Role, Screen

if TYPE_CHECKING:
    from cli.groups.described import Group
    from cli.groups.everywhere import Listing

NOTES = "__coordinator_notes"  # an internal topic that only Tenure has
# Describe the groups of longer lists only if an option needs it, since each group may have thousands of members.
DESCRIBED_MAX = 200
STATES = ("Stable", "PreparingRebalance", "CompletingRebalance", "Empty", "Dead", "Assigning", "Reconciling", "NotReady")
TYPES = ("classic", "consumer", "share", "streams")


class ListedGroup:
    """One group of ListGroups, completed by its description."""

    __slots__ = ("coordinator", "error", "group", "members", "protocol", "protocol_type", "state", "static_count", "type")

    def __init__(self, group: str, state: str | None, type: str | None, protocol_type: str, coordinator: int) -> None:
        self.group = group
        self.state = state
        self.type = type
        self.protocol_type = protocol_type
        self.coordinator = coordinator
        self.protocol: str | None = None
        self.members: int | None = None
        self.static_count: int | None = None
        self.error: Failure | None = None  # why it cannot be described

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
            "error": self.error and self.error.document(),
        }


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    states, types = protocol_names(options.states, STATES, "state"), protocol_names(options.types, TYPES, "type")
    with Cluster.of(options) as cluster:
        listing = list_everywhere(cluster, states, types)
        groups = list_groups(listing, types)
        describe_groups(cluster, groups, everything=options.members, states_wanted=bool(states))
        brokers = {id: f"{broker.host}:{broker.port}" for id, broker in cluster.brokers.items()}
        troubles = list(listing.problems)
        unready = unready_brokers(cluster, [answer.broker for answer in listing.answers])
        troubles += [Failure(Exit.AGAIN, f"{line}: its groups are missing here", kind=NOT_READY) for line in unready]
    complete = not troubles
    troubles += undescribed(groups)
    if states:
        wanted_states = {state.lower() for state in states}
        groups = [group for group in groups if group.state is not None and group.state.lower() in wanted_states]
    groups.sort(key=lambda group: group.group)
    if screen.json:
        screen.document({"complete": complete, "groups": [group.document() for group in groups]})
    else:
        show(screen, groups, brokers, filtered=bool(states or types), complete=complete)
    return max([screen.fail(trouble) for trouble in troubles], default=Exit.DONE)


def unready_brokers(cluster: Cluster, ids: Iterable[int]) -> list[str]:
    """A line for each of these brokers that cannot read or has not loaded some partitions, and so lists none of their groups. Asks as `tenure health` does."""
    if cluster.topics([NOTES])[NOTES].error:
        return []
    lines = []
    for broker in [cluster.brokers[id] for id in ids if id in cluster.brokers]:
        code, text = health.probe(broker.host, broker.port, cluster.patience.grace)
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


def list_groups(listing: Listing, types: list[str]) -> list[ListedGroup]:
    groups: dict[str, ListedGroup] = {}
    for broker_id, version, reply in listing.answers:
        for group in reply.groups:
            type = group.group_type.lower() if version >= TYPES_VERSION else CLASSIC  # older versions of ListGroups list only this type
            if not types or type in types:
                groups[group.group_id] = ListedGroup(group.group_id, group.group_state or None, type, group.protocol_type, broker_id)
    return list(groups.values())


def describe_groups(cluster: Cluster, listed: list[ListedGroup], *, everything: bool, states_wanted: bool) -> None:
    stateless = any(entry.state is None for entry in listed)
    if len(listed) <= DESCRIBED_MAX or everything or (stateless and states_wanted):
        problems: dict[str, Failure] = {}
        groups = describe(cluster, [entry.group for entry in listed], problems) if listed else {}
        for entry in listed:
            group = groups[entry.group]
            entry.error = problems.get(entry.group)
            if group is not None:
                entry.complete(group)


def undescribed(listed: list[ListedGroup]) -> list[Failure]:
    """One Failure for each reason why groups of the list are not described."""
    reasons: dict[str, list[tuple[str, Failure]]] = {}
    for entry in listed:
        if entry.error is not None:
            reasons.setdefault(entry.error.line.removeprefix(f"group {entry.group}: "), []).append((entry.group, entry.error))
    failures = []
    for reason, entries in reasons.items():
        name, error = entries[0]
        others = "" if len(entries) == 1 else " and 1 other" if len(entries) == 2 else f" and {len(entries) - 1} others"
        failures.append(error.with_line(f"group {name}{others} listed without members: {reason}"))
    return failures


def show(screen: Screen, groups: list[ListedGroup], brokers: dict[int, str], *, filtered: bool, complete: bool) -> None:
    if not groups:
        screen.line(("no group has this state and type" if filtered else "there are no groups") if complete else "no groups are known")
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
