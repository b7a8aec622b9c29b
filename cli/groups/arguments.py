"""`tenure group ...`: its parsers. Opens no connection."""

from __future__ import annotations

import argparse
from typing import Any

from cli.arguments import add_change_options, add_cluster_options, add_command, add_family, whole_number
from cli.groups import offsets_arguments, policy_arguments
from cli.selection import SELECTION_NOTE, add_lag_options, add_selection, add_watch_options

STATES = "Stable, PreparingRebalance, CompletingRebalance, Empty, Dead; of type consumer also Assigning, Reconciling"


def add(commands: Any) -> None:
    actions = add_family(
        commands,
        "group",
        help="list, describe and administer consumer groups",
        description="Consumer groups: their members, offsets and history, and changes by an administrator.",
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
        description="List the groups of all brokers: state, type, protocol, coordinator and number of members (see --members).",
        examples=(
            "tenure group list",
            "tenure group list 'billing-*' --state Stable --state Empty",
            "tenure group list --lag-over 1000 --sort lag --watch",
            "tenure group list --type consumer --json",
        ),
        notes=f"States: {STATES}.\nTypes: classic, consumer (KIP-848), share, streams. Both ignore case.\n\n"
        "A group that this user may not describe is listed with `-`, with --json with its `error` (exit code 77). Exit code 75 if groups may be missing,\n"
        "since their coordinators have not answered within --timeout; with --json then \"complete\": false.",
    )
    listing.add_argument("groups", metavar="PATTERN", nargs="*", help="only these groups: a name, or a quoted pattern such as 'billing-*'")
    add_state_option(listing)
    listing.add_argument(
        "--type", metavar="TYPE", action="append", default=[], dest="types", help="only groups of this type; may be repeated"
    )
    listing.add_argument("--members", action="store_true", help="count members even if there are many groups")
    listing.add_argument("--lag-over", metavar="N", type=whole_number, help="only groups whose lag in all partitions is more than N")
    listing.add_argument("--sort", choices=("name", "state", "members", "lag"), default="name", help="name (default), state; members, lag: largest first")
    add_watch_options(listing)
    add_cluster_options(listing)


def add_state_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state", metavar="STATE", action="append", default=[], dest="states", help="only groups in this state; may be repeated")


def add_describe(actions: Any) -> None:
    describe = add_command(
        actions,
        "describe",
        run="cli.groups.describe",
        help="describe groups: members, and the lag of each partition",
        description="Describe groups: state, protocol, coordinator, members, and the owner and lag of each partition.",
        examples=(
            "tenure group describe orders",
            "tenure group describe orders billing --json | jq '.groups[].lag'",
            "tenure group describe 'billing-*' --state Empty",
            "tenure group describe --all --lag-over 1000 --sort lag --watch",
        ),
        notes="The partitions are those assigned to a member or with a committed offset.\n"
        "`-`: unknown, or no member reads the partition. While a partition has no leader its lag is unknown, and so is the total: `at least N`, with\n"
        "--json null and `unknown_partitions`; exit code 75 after --timeout.",
    )
    add_selection(describe, "groups", "GROUP", "every group")
    add_state_option(describe)
    add_lag_options(describe)
    add_watch_options(describe)
    add_cluster_options(describe)


def add_members(actions: Any) -> None:
    members = add_command(
        actions,
        "members",
        run="cli.groups.members",
        help="show the members of a group",
        description="Show the members of a group: ids, hosts, subscriptions and assigned partitions.",
        examples=("tenure group members orders", "tenure group members orders --json"),
        notes="OWNED (cooperative assignors): the partitions that the member reported when it last joined, if it has others now.\n"
        "EPOCH (groups of type consumer): of the member; away: it has gone and will be back, and keeps its partitions until its session ends.\n"
        "TARGET (groups of type consumer): the target assignment, if the member does not have it yet. Below the table: whom the others wait for.",
    )
    members.add_argument("group", metavar="GROUP", help="which group")
    add_cluster_options(members)


def add_history(actions: Any) -> None:
    history = add_command(
        actions,
        "history",
        run="cli.groups.history",
        help="show what happened to a group: each rebalance and its cause",
        description="Show the history of a group: each rebalance with its cause and duration, members that joined and left, and moved partitions.\n"
        "A Tenure broker keeps it as notes (__coordinator_notes, seven days). Apache Kafka keeps none: there each rebalance that compaction has left in\n"
        "__consumer_offsets is shown, with a cause that is inferred from the group's records and commits, strong or weak.",
        examples=(
            "tenure group history orders",
            "tenure group history orders --since 2h --limit 50",
            "tenure group history orders --since 2026-11-21T08:30:00Z --json",
            "tenure group history orders --follow",
        ),
        notes="Times are UTC. With --json --follow: one JSON object per line, as events arrive. In JSON `cause` is from a note, and `inferred` has the cause,\n"
        "confidence and evidence of a rebalance without one (`noted` false).\n"
        "Exit code 77 if this user may not read __consumer_offsets, 76 for groups of type share and streams, whose records are not understood.",
    )
    history.add_argument("group", metavar="GROUP", help="which group")
    history.add_argument("--since", metavar="TIME", type=past_time, help="only entries since: 90s, 15m, 2h, 1d ago, or 2026-11-21T08:30:00Z")
    history.add_argument("--limit", metavar="N", type=whole_number, default=20, help="at most the N newest entries; 0: all; default: 20")
    history.add_argument("--follow", action="store_true", help="also print new entries as they happen, until interrupted, also while brokers fail")
    add_cluster_options(history)


def add_remove_member(actions: Any) -> None:
    remove = add_command(
        actions,
        "remove-member",
        run="cli.groups.remove_member",
        help="remove members from a group: a static member's seat without waiting for its session timeout",
        description="Remove members from a group. A static member that will not come back keeps its partitions until its session timeout;\n"
        "once it is removed, the other members get them.",
        examples=(
            "tenure group remove-member orders --instance worker-7 --dry-run",
            'tenure group remove-member orders --instance worker-7 --instance worker-8 --reason "scaled in"',
            "tenure group remove-member orders --instance worker-7,worker-8",
            "tenure group remove-member orders --all --yes",
        ),
        notes="Stop the process first: a running one learns of its removal with its next heartbeat and joins again as a new member.\n"
        "A member that is removed by its member id (--member, and --all for members without an instance id) is shown as `left` in the\n"
        "group's history, with the reason: for the coordinator the request is the same as that of a member that leaves.",
    )
    remove.add_argument("group", metavar="GROUP", help="which group")
    remove.add_argument(
        "--instance", metavar="ID", action="append", default=[], dest="instances", help="a group.instance.id, or several with commas; may be repeated"
    )
    remove.add_argument("--member", metavar="ID", action="append", default=[], dest="members", help="a member id; may be repeated")
    remove.add_argument("--all", action="store_true", help="every member")
    remove.add_argument("--reason", metavar="TEXT", help="the reason for the coordinator's log and history (Kafka 3.2 and newer)")
    add_change_options(remove)
    add_cluster_options(remove)


def add_delete(actions: Any) -> None:
    delete = add_command(
        actions,
        "delete",
        run="cli.groups.delete",
        help="delete groups that have no members, with their offsets",
        description="Delete groups that have no members, and all offsets that they have committed.",
        examples=("tenure group delete orders --dry-run", "tenure group delete 'orders-test-*' --state Empty --yes"),
        notes="A later consumer starts as in a new group (auto.offset.reset).\n"
        "`tenure group offsets show GROUP --json` saves the committed offsets; `offsets reset --from-file` restores them.\n"
        f"If one of the groups has members none is deleted; --state Empty selects those without. {SELECTION_NOTE}",
    )
    add_selection(delete, "groups", "GROUP", "every group")
    add_state_option(delete)
    add_change_options(delete)
    add_cluster_options(delete)


def past_time(text: str) -> int:
    """Milliseconds since 1970. `text`: a time, or a duration before now."""
    import time

    from cli.groups.offset_formats import impossible_part, parse_duration, parse_time

    try:
        if "-" not in text:
            return max(0, int(time.time() * 1000) - parse_duration(text))
        return parse_time(text)
    except ValueError:
        problem = f"is not a time{part}" if (part := impossible_part(text)) else "is neither a time (2026-11-21T08:30:00Z) nor how long ago (90s, 15m, 2h, 1d)"
        raise argparse.ArgumentTypeError(f"{text!r} {problem}") from None
