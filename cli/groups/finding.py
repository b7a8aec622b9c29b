"""Failures for groups named on the command line."""

from __future__ import annotations

import difflib
from shlex import quote
from typing import TYPE_CHECKING

from cli.client import Exit, Failure
from cli.client.words import json_code_of
from cli.failure import UNKNOWN_GROUP
from protocol.errors import ErrorCode
from protocol.messages.list_groups import ListGroupsRequest

if TYPE_CHECKING:
    from cli.client import Cluster


def unknown_group(cluster: Cluster, group: str) -> Failure:
    """The Failure for an unknown group, with a similar name if there is one."""
    unreachable: dict[int, Failure] = {}
    try:
        replies = cluster.ask_all_brokers(ListGroupsRequest(), missing=unreachable)
    except Failure:  # report only the unknown name
        replies = {}
    known = {listed.group_id for reply in replies.values() for listed in reply.groups if listed.group_id}
    others = {name.lower(): name for name in sorted(known - {group})}
    similar = [others[name] for name in difflib.get_close_matches(group.lower(), others, n=1, cutoff=0.8)]
    hint = f"; is it {similar[0]}?" if similar else ""
    if group in known:
        hint = ", but a broker lists it: perhaps it is in a partition that its name does not select (tenure log verify: wrong-partition)"
    return unknown_group_failure(group, f"{hint} (tenure group list lists all groups)")


def unknown_group_failure(group: str, more: str = "") -> Failure:
    return Failure(
        Exit.MISSING, f"there is no group {group or repr(group)}{more}", kind=UNKNOWN_GROUP, hint="tenure group list lists all groups"
    )


def nonempty_group(line: str, group: str, members: int) -> Failure:
    """The Failure for a change that needs a group without members. Its `code` in --json is that of the cluster's error NON_EMPTY_GROUP."""
    return Failure(Exit.REFUSED, f"{line}: {stop_first(group, members)}", kind=json_code_of(ErrorCode.NON_EMPTY_GROUP), hint=stop_first(group, members))


def stop_first(group: str, members: int) -> str:
    """A hint to stop or remove the members first."""
    pronoun = "it" if members == 1 else "them"
    return f"stop {pronoun} first, or remove {pronoun} (tenure group remove-member {quote(group)} --all)"
