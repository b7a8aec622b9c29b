"""`tenure group list`: the groups of every broker."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from cli import health
from cli.client import Cluster, Exit, Failure
from cli.failure import NOT_READY, in_part
from cli.groups.described import CLASSIC, SHARE, describe
from cli.groups.everywhere import TYPES_VERSION, list_everywhere
from cli.groups.finding import unknown_group_failure
from cli.groups.lag import report_unknown, total_lag
from cli.selection import selected
from cli.shown import Column, Painted, Role, Screen
from cli.watching import watched

if TYPE_CHECKING:
    from cli.client import TopicPartition
    from cli.groups.described import Group
    from cli.groups.everywhere import Listing
    from cli.groups.lag import TotalLag

NOTES = "__coordinator_notes"  # an internal topic that only Tenure has
# Describe the groups of longer lists only if an option needs it, since each group may have thousands of members.
DESCRIBED_MAX = 200
STATES = ("Stable", "PreparingRebalance", "CompletingRebalance", "Empty", "Dead", "Assigning", "Reconciling", "NotReady")
TYPES = ("classic", "consumer", "share", "streams")


class ListedGroup:
    """One group of ListGroups, completed by its description."""

    __slots__ = ("coordinator", "error", "group", "lag", "members", "protocol", "protocol_type", "state", "static_count", "type")

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
        self.lag: TotalLag | None = None  # only if an option asks for it

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
            **(self.lag.document() if self.lag is not None else {}),
            "error": self.error and self.error.document(),
        }


def run(options: argparse.Namespace) -> int:
    return watched(options, lambda screen: list_once(options, screen))


def list_once(options: argparse.Namespace, screen: Screen) -> int:
    states, types = protocol_names(options.states, STATES, "state"), protocol_names(options.types, TYPES, "type")
    with Cluster.of(options) as cluster:
        listing = list_everywhere(cluster, states, types)
        groups = matching_groups(options, list_groups(listing, types), listing.problems)
        describe_groups(cluster, groups, everything=options.members, states_wanted=bool(states))
        errors = add_lags(cluster, groups) if with_lag(options) else {}
        brokers = {id: f"{broker.host}:{broker.port}" for id, broker in cluster.brokers.items()}
        troubles = list(listing.problems)
        unready = unready_brokers(cluster, [answer.broker for answer in listing.answers])
        troubles += [Failure(Exit.AGAIN, f"{line}: its groups are missing here", kind=NOT_READY) for line in unready]
    complete = not troubles
    troubles += undescribed(groups)
    if states:
        wanted_states = {state.lower() for state in states}
        groups = [group for group in groups if group.state is not None and group.state.lower() in wanted_states]
    if options.lag_over is not None:
        groups = [group for group in groups if group.lag is not None and group.lag.may_exceed(options.lag_over)]
    groups.sort(key=SORTS[options.sort])
    if screen.json:
        screen.document({"complete": complete, "groups": [group.document() for group in groups]})
    else:
        none = "no group has this state and type" if states or types else "there are no groups"
        none = none if options.lag_over is None else f"no group has a lag of more than {options.lag_over}"
        show(screen, groups, brokers, none=none if complete else "no groups are known", lags=with_lag(options))
    return max([report_unknown(screen, errors), *map(screen.fail, troubles)])


def with_lag(options: argparse.Namespace) -> bool:
    return options.lag_over is not None or options.sort == "lag"


def matching_groups(options: argparse.Namespace, groups: list[ListedGroup], problems: list[Failure]) -> list[ListedGroup]:
    """The groups with the names or patterns of the command line; all without one."""
    try:
        # Brokers leave out groups of other states and types, so that their names are unknown here.
        required = not (options.states or options.types)
        names = set(selected(options.groups, not options.groups, "group", lambda: [group.group for group in groups], required=required))
    except Failure:
        if problems:  # the groups that match may be those that are missing
            raise problems[0] from None
        raise
    unknown = [name for name in options.groups if name in names and name not in {group.group for group in groups}]
    if unknown and required and not problems:
        raise unknown_group_failure(unknown[0])
    return [group for group in groups if group.group in names]


def add_lags(cluster: Cluster, groups: list[ListedGroup]) -> dict[TopicPartition, int]:
    """Add the lag of each group that commits offsets. Returns the error codes of partitions whose log end is not known."""
    from cli.groups.offsets_show import rows_of

    problems: dict[str, Failure] = {}
    committing = [group for group in groups if group.type != SHARE]
    rows, errors = rows_of(cluster, [group.group for group in committing], {}, problems)
    for group in committing:
        group.error = group.error or problems.get(group.group)
        if group.group in rows:
            group.lag = total_lag(rows[group.group], errors)
    return errors


SORTS: Final[dict[str, Callable[[ListedGroup], Any]]] = {
    "name": lambda group: group.group,
    "state": lambda group: (group.state or "", group.group),
    "members": lambda group: (group.members is None, -(group.members or 0), group.group),
    "lag": lambda group: (group.lag is None or group.lag.known is None, -(group.lag.known or 0 if group.lag else 0), group.group),
}


def unready_brokers(cluster: Cluster, ids: Iterable[int]) -> list[str]:
    """A line for each of these brokers that cannot read or has not loaded some partitions, and so lists none of their groups. Asks as `tenure health` does."""
    if cluster.topics([NOTES])[NOTES].error:
        return []
    lines = []
    for broker in [cluster.brokers[id] for id in ids if id in cluster.brokers]:
        code, text = health.probe(broker.host, broker.port, cluster.patience.for_broker(answering=True))
        if code == health.NOT_READY:
            lines.append(f"{broker.host}:{broker.port} {text}")
    return lines


def protocol_names(requested: list[str], known: tuple[str, ...], kind: str) -> list[str]:
    """The requested names in the protocol's spelling; Failure for an unknown name."""
    by_lower = {name.lower(): name for name in known}
    for name in requested:
        if name.lower() not in by_lower:
            if "," in name:
                raise Failure(Exit.USAGE, f"{name!r} is several: repeat --{kind} for each")
            nearest = get_close_matches(name.lower(), by_lower, 1, 0.7)
            suggestion = f"; did you mean {by_lower[nearest[0]]}?" if nearest else f": {', '.join(known)}"
            raise Failure(Exit.USAGE, f"there is no {kind} {name!r} of groups{suggestion}")
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
        failures.append(in_part(error).with_line(f"group {name}{others} listed without members: {reason}"))
    return failures


def show(screen: Screen, groups: list[ListedGroup], brokers: dict[int, str], *, none: str, lags: bool) -> None:
    """`none`: what to say if there are none."""
    if not groups:
        screen.line(none)
        return
    columns: list[Column | str] = [
        Column("GROUP", False),
        Column("STATE", False),
        "TYPE",
        "PROTOCOL",
        "MEMBERS",
        "STATIC",
        *([Column("LAG", True)] if lags else []),
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
            *([lag_cell(group.lag)] if lags else []),
            f"{group.coordinator} ({brokers[group.coordinator]})" if group.coordinator in brokers else group.coordinator,
        ]
        for group in groups
    ]
    screen.table(columns, rows)
    if any(group.members is None for group in groups) and len(groups) > DESCRIBED_MAX:
        screen.line(f"{len(groups)} groups; --members also counts their members")


def lag_cell(lag: TotalLag | None) -> object:
    """The lag, `-` without committed offsets, and `>=` before one that is only known in part."""
    if lag is None or (lag.known is None and not lag.unknown):
        return None
    return f">={lag.known or 0}" if lag.unknown else lag.known


def protocol(group: ListedGroup) -> str | None:
    """The assignor of a group of consumers (`range`); of other groups with the protocol type before it (`connect/compatible`)."""
    if group.protocol_type in ("", "consumer"):
        return group.protocol or None
    return f"{group.protocol_type}/{group.protocol}" if group.protocol else group.protocol_type


def state_role(state: str | None) -> Role | None:
    return {"Stable": Role.GOOD, "Empty": Role.DIM, "Dead": Role.BAD, None: None}.get(state, Role.CAREFUL)
