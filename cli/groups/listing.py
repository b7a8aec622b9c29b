"""`tenure group list`: the groups of every broker."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from cli import health
from cli.client import EXIT, Cluster, Failure, check
from cli.failure import NOT_READY
from cli.groups.described import CLASSIC, TYPES_VERSION, describe
from cli.shown import Column, Painted, Role, Screen
from protocol.messages.list_groups import ListGroupsRequest

if TYPE_CHECKING:
    from cli.groups.described import Group

NOTES = "__coordinator_notes"  # a topic that Tenure alone has
STATES_VERSION = 4
LOADING = (14, 15)
PAUSE_SECONDS = 0.2
# More than these are not described for their members alone: each may have thousands.
MEMBERS_CHEAP = 200
STATES = ("Stable", "PreparingRebalance", "CompletingRebalance", "Empty", "Dead", "Assigning", "Reconciling", "NotReady")
TYPES = ("classic", "consumer", "share", "streams")


class Listed:
    """One group of ListGroups; other fields are added later."""

    __slots__ = ("coordinator", "group", "members", "protocol", "protocol_type", "state", "static", "type")

    def __init__(self, group: str, state: str | None, type: str | None, protocol_type: str, coordinator: int) -> None:
        self.group = group
        self.state = state
        self.type = type
        self.protocol_type = protocol_type
        self.coordinator = coordinator
        self.protocol: str | None = None
        self.members: int | None = None
        self.static: int | None = None

    def take(self, found: Group) -> None:
        self.state = found.state
        if found.readable:
            self.protocol = found.protocol
            self.members = len(found.members)
            self.static = found.static

    def document(self) -> dict[str, object]:
        return {
            "group": self.group,
            "state": self.state,
            "type": self.type,
            "protocol_type": self.protocol_type or None,
            "protocol": self.protocol or None,
            "coordinator": self.coordinator,
            "members": self.members,
            "static_members": self.static,
        }


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    states, types = named(options.states, STATES, "state"), named(options.types, TYPES, "type")
    missing: dict[int, Failure] = {}
    with Cluster.of(options) as cluster:
        found = listed(cluster, states, types, missing)
        fill_in(cluster, found, everything=options.members, states_wanted=bool(states))
        brokers = {id: f"{broker.host}:{broker.port}" for id, broker in cluster.brokers.items()}
        troubles = [Failure(EXIT.AGAIN, f"{failure.line}: its groups are missing here", word=failure.word) for failure in missing.values()]
        troubles += unserved(cluster)
    if states:
        wanted = {state.lower() for state in states}
        found = [one for one in found if one.state is not None and one.state.lower() in wanted]
    found.sort(key=lambda one: one.group)
    if screen.json:
        screen.document({"groups": [one.document() for one in found]})
    else:
        show(screen, found, brokers, filtered=bool(states or types))
    return max([screen.fail(trouble) for trouble in troubles], default=EXIT.DONE)


def unserved(cluster: Cluster) -> list[Failure]:
    """The partitions whose groups a Tenure broker cannot list because they are unreadable, as `tenure health` reports them; other brokers do not report any."""
    if cluster.topics([NOTES])[NOTES].error:
        return []
    troubles = []
    for broker in cluster.brokers.values():
        code, text = health.probe(broker.host, broker.port, cluster.timeout)
        if code == health.NOT_READY:
            troubles.append(Failure(EXIT.AGAIN, f"{broker.host}:{broker.port} {text}: its groups are missing here", word=NOT_READY))
    return troubles


def named(given: list[str], known: tuple[str, ...], what: str) -> list[str]:
    """As the protocol writes them."""
    by_lower = {one.lower(): one for one in known}
    for one in given:
        if one.lower() not in by_lower:
            raise Failure(EXIT.USAGE, f"there is no {what} {one!r} of groups: {', '.join(known)}")
    return [by_lower[one.lower()] for one in given]


def listed(cluster: Cluster, states: list[str], types: list[str], missing: dict[int, Failure]) -> list[Listed]:
    found: dict[str, Listed] = {}
    for broker_id in sorted(cluster.brokers):
        version = cluster_version(cluster, broker_id, missing)
        if version is None:
            continue
        request = ListGroupsRequest(states if version >= STATES_VERSION else [], types if version >= TYPES_VERSION else [])
        reply = patiently(cluster, broker_id, request)
        check(reply.error_code, f"broker {broker_id}")
        for group in reply.groups:
            type = group.group_type.lower() if version >= TYPES_VERSION else CLASSIC  # before this version there was only one
            if not types or type in types:
                found[group.group_id] = Listed(group.group_id, group.group_state or None, type, group.protocol_type, broker_id)
    return list(found.values())


def cluster_version(cluster: Cluster, broker_id: int, missing: dict[int, Failure]) -> int | None:
    """None: the broker does not answer."""
    try:
        return cluster.version(ListGroupsRequest.API_KEY, broker_id)
    except Failure as failure:
        if failure.code != EXIT.UNREACHABLE or len(cluster.brokers) == 1:
            raise
        missing[broker_id] = failure
        return None


def patiently(cluster: Cluster, broker_id: int, request: ListGroupsRequest) -> Any:
    """A broker that loads groups does not know them all yet."""
    until = time.monotonic() + cluster.timeout
    while True:
        reply = cluster.node(broker_id, request)
        if reply.error_code not in LOADING or time.monotonic() + PAUSE_SECONDS >= until:
            return reply
        time.sleep(PAUSE_SECONDS)


def fill_in(cluster: Cluster, found: list[Listed], *, everything: bool, states_wanted: bool) -> None:
    stateless = any(one.state is None for one in found)
    if len(found) <= MEMBERS_CHEAP or everything or (stateless and states_wanted):
        groups = describe(cluster, [one.group for one in found]) if found else {}
        for one in found:
            group = groups[one.group]
            if group is not None:
                one.take(group)


def show(screen: Screen, found: list[Listed], brokers: dict[int, str], *, filtered: bool) -> None:
    if not found:
        screen.line("no group is of this state and type" if filtered else "there are no groups")
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
            one.group,
            Painted(one.state, state_role(one.state)),
            one.type,
            protocol(one),
            one.members,
            one.static,
            f"{one.coordinator} ({brokers[one.coordinator]})" if one.coordinator in brokers else one.coordinator,
        ]
        for one in found
    ]
    screen.table(columns, rows)
    if any(one.members is None for one in found) and len(found) > MEMBERS_CHEAP:
        screen.line(f"{len(found)} groups; --members counts their members too")


def protocol(one: Listed) -> str | None:
    """`range` for consumers; others say whose protocol it is: `connect/compatible`."""
    if one.protocol_type in ("", "consumer"):
        return one.protocol or None
    return f"{one.protocol_type}/{one.protocol}" if one.protocol else one.protocol_type


def state_role(state: str | None) -> Role | None:
    return {"Stable": Role.GOOD, "Empty": Role.DIM, "Dead": Role.BAD, None: None}.get(state, Role.CAREFUL)
