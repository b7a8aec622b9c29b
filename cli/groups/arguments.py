"""`tenure group ...`: its parsers. Opens no connection."""

from __future__ import annotations

import argparse
from typing import Any

from cli.arguments import add_change, add_cluster, add_command, add_family, whole_number
from cli.groups import offsets_arguments, policy_arguments

STATES = "Stable, PreparingRebalance, CompletingRebalance, Empty, Dead; of type consumer also Assigning, Reconciling"


def add(commands: Any) -> None:
    actions = add_family(
        commands,
        "group",
        help="list, describe and administer consumer groups",
        description="Consumer groups: who is in them, how far they are, what happened to them, and what administrators do about it.",
    )
    add_list(actions)
    add_describe(actions)
    add_members(actions)
    add_history(actions)
    add_remove_member(actions)
    add_delete(actions)
    policy_arguments.add_rebalance(actions)
    offsets_arguments.add(actions)
    policy_arguments.add(actions)


def add_list(actions: Any) -> None:
    listing = add_command(
        actions,
        "list",
        run="cli.groups.listing",
        help="list the groups of the cluster",
        description="List the groups of all brokers: state, type, protocol, coordinator and, where there are not too many groups, members.",
        examples=(
            "tenure group list",
            "tenure group list --state Stable --state Empty",
            "tenure group list --type consumer --json",
        ),
        notes=f"States: {STATES}.\nTypes: classic, consumer (KIP-848), share, streams. Case does not matter in either.",
    )
    listing.add_argument(
        "--state", metavar="STATE", action="append", default=[], dest="states", help="only groups in this state; may be repeated"
    )
    listing.add_argument(
        "--type", metavar="TYPE", action="append", default=[], dest="types", help="only groups of this type; may be repeated"
    )
    listing.add_argument("--members", action="store_true", help="count members however many groups there are")
    add_cluster(listing)


def add_describe(actions: Any) -> None:
    describe = add_command(
        actions,
        "describe",
        run="cli.groups.describe",
        help="describe groups: members, and the lag of each partition",
        description="Describe groups: state, protocol, coordinator, members, and for each partition who reads it and how far behind it is.",
        examples=(
            "tenure group describe orders",
            "tenure group describe orders billing --json | jq '.groups[].lag'",
        ),
        notes="A partition is shown that a member has, or that the group has committed an offset for.\n"
        "`-`: unknown, or no member reads the partition.",
    )
    describe.add_argument("groups", metavar="GROUP", nargs="+", help="which groups")
    add_cluster(describe)


def add_members(actions: Any) -> None:
    members = add_command(
        actions,
        "members",
        run="cli.groups.members",
        help="show the members of a group",
        description="Show the members of a group: ids, where they run, what they subscribe to, and which partitions they have.",
        examples=("tenure group members orders", "tenure group members orders --json"),
        notes="OWNED (cooperative assignors): what the member said it held when it last joined, where that is not what it has now.\n"
        "TARGET (groups of type consumer): what it shall come to have, where it does not have it yet.",
    )
    members.add_argument("group", metavar="GROUP", help="which group")
    add_cluster(members)


def add_history(actions: Any) -> None:
    history = add_command(
        actions,
        "history",
        run="cli.groups.history",
        help="show what happened to a group: each rebalance and its cause",
        description="Tell what happened to a group: each rebalance with its cause, who joined and went, how long it took, and which partitions moved.\n"
        "Read from the notes that a Tenure broker keeps (__coordinator_notes, seven days); an Apache Kafka keeps none.",
        examples=(
            "tenure group history orders",
            "tenure group history orders --since 2h --limit 50",
            "tenure group history orders --since 2026-11-21T08:30:00Z --json",
            "tenure group history orders --follow",
        ),
        notes="Times are UTC. With --json --follow: one JSON object per line, as things happen.",
    )
    history.add_argument("group", metavar="GROUP", help="which group")
    history.add_argument("--since", metavar="TIME", type=a_past, help="only from then on: 90s, 15m, 2h, 1d ago, or 2026-11-21T08:30:00Z")
    history.add_argument("--limit", metavar="N", type=whole_number, default=20, help="at most the N newest entries; 0: all; default: 20")
    history.add_argument("--follow", action="store_true", help="go on with what happens from now on, until interrupted")
    add_cluster(history)


def add_remove_member(actions: Any) -> None:
    remove = add_command(
        actions,
        "remove-member",
        run="cli.groups.remove_member",
        help="remove members from a group: a static member's seat without waiting for its session timeout",
        description="Remove members from a group. A static member that will not come back keeps its partitions until its session timeout;\n"
        "removed, they go to the others at once.",
        examples=(
            "tenure group remove-member orders --instance worker-7 --dry-run",
            'tenure group remove-member orders --instance worker-7 --instance worker-8 --reason "scaled in"',
            "tenure group remove-member orders --all --yes",
        ),
        notes="Stop the process first: one that still runs hears of it with its next heartbeat and joins again as a new member.",
    )
    remove.add_argument("group", metavar="GROUP", help="which group")
    remove.add_argument(
        "--instance", metavar="ID", action="append", default=[], dest="instances", help="a group.instance.id; may be repeated"
    )
    remove.add_argument("--member", metavar="ID", action="append", default=[], dest="members", help="a member id; may be repeated")
    remove.add_argument("--all", action="store_true", help="every member")
    remove.add_argument("--reason", metavar="TEXT", help="what the coordinator's log and history shall say (Kafka 3.2 and newer)")
    add_change(remove)
    add_cluster(remove)


def add_delete(actions: Any) -> None:
    delete = add_command(
        actions,
        "delete",
        run="cli.groups.delete",
        help="delete groups that have no members, with their offsets",
        description="Delete groups that have no members, and all offsets that they have committed.",
        examples=("tenure group delete orders --dry-run", "tenure group delete orders-test-1 orders-test-2 --yes"),
        notes="A consumer that comes later begins as if the group never had been there (auto.offset.reset).\n"
        "`tenure group offsets show GROUP --json` saves what is committed; `offsets reset --from-file` restores it.",
    )
    delete.add_argument("groups", metavar="GROUP", nargs="+", help="which groups")
    add_change(delete)
    add_cluster(delete)


def a_past(text: str) -> int:
    """A moment, or how long ago; in milliseconds since 1970."""
    import time

    from cli.groups.offsets_words import duration, moment

    try:
        if "-" not in text:
            return max(0, int(time.time() * 1000) - duration(text))
        return moment(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a time (2026-11-21T08:30:00Z) nor how long ago (90s, 15m, 2h, 1d)") from None
