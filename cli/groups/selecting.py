"""The groups that a command line selects: by names, patterns, --all and --state."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cli.client import Failure
from cli.groups.described import describe
from cli.groups.everywhere import list_everywhere
from cli.groups.listing import STATES, protocol_names
from cli.selection import check_selection, selected, selects_unnamed

if TYPE_CHECKING:
    from cli.client import Cluster


def selected_groups(cluster: Cluster, options: argparse.Namespace) -> tuple[list[str], list[Failure]]:
    """The names of the groups, and why others may be missing. The cluster is asked only for what the command line does not name."""
    wanted = {state.lower() for state in protocol_names(getattr(options, "states", []), STATES, "state")}
    check_selection(options.groups, options.all, "group")
    if not wanted and not selects_unnamed(options.groups, options.all):
        return list(dict.fromkeys(options.groups)), []
    listing = list_everywhere(cluster)
    states = {group.group_id: group.group_state for group in listing.groups}
    try:
        names = selected(options.groups, options.all, "group", lambda: states)
    except Failure:
        if listing.problems:  # the groups that match may be those that are missing
            raise listing.problems[0] from None
        raise
    if wanted:
        stateless = [name for name in names if states.get(name) == ""]  # before Kafka 2.6, ListGroups tells no states
        states |= {name: group.state for name, group in describe(cluster, stateless).items() if group is not None} if stateless else {}
        names = [name for name in names if name not in states or states[name].lower() in wanted]
    return names, listing.problems


def nothing_selected(options: argparse.Namespace) -> str:
    states = getattr(options, "states", [])
    return f"no group is in state {' or '.join(states)}" if states else "there are no groups"
