"""`tenure group policy ...` and `tenure group rebalance`: their parsers."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

from cli.arguments import add_change_options, add_cluster_options, add_command, add_family


def notes() -> str:
    return str(import_module("cli.groups.policy_help").notes())  # when help is shown: it imports the coordinator


def add(actions: Any) -> None:
    commands = add_family(
        actions,
        "policy",
        help="set, unset and show the policies of groups",
        description="Policies of groups: how long absent static members keep their partitions, how long new members wait for others, and more.\n"
        "docs/policies.md describes each. Only Tenure brokers support them.",
        action="policy_action",
    )
    add_set(commands)
    add_unset(commands)
    add_show(commands)
    add_list(commands)


def add_set(commands: Any) -> None:
    parser = add_command(
        commands,
        "set",
        run="cli.groups.policy_change",
        help="set policies of a group (Tenure brokers only)",
        description="Set policies of a group. The group need not exist yet; its policies stay when it is deleted.",
        examples=(
            "tenure group policy set orders registration.timeout.ms=900000 --dry-run",
            "tenure group policy set orders instance.ids=worker-[01-12] roster.timeout.ms=60000",
            "tenure group policy set orders --add-instances worker-[13-15]",
        ),
        notes=notes,
    )
    parser.add_argument("group", metavar="GROUP", help="which group")
    parser.add_argument("settings", metavar="NAME=VALUE", type=setting, nargs="*", help="a policy and its value")
    parser.add_argument("--add-instances", metavar="NAMES", help="add names to instance.ids; ranges as in worker-[01-12]")
    parser.add_argument("--remove-instances", metavar="NAMES", help="remove names from instance.ids (needs roster.strict=true)")
    add_change_options(parser)
    add_cluster_options(parser)


def add_unset(commands: Any) -> None:
    parser = add_command(
        commands,
        "unset",
        run="cli.groups.policy_change",
        help="unset policies of a group (Tenure brokers only)",
        description="Unset policies of a group, so that the broker's defaults apply again.",
        examples=("tenure group policy unset orders registration.timeout.ms", "tenure group policy unset orders --all --yes"),
    )
    parser.add_argument("group", metavar="GROUP", help="which group")
    parser.add_argument("names", metavar="NAME", nargs="*", help="a policy")
    parser.add_argument("--all", action="store_true", help="every policy that is set")
    add_change_options(parser)
    add_cluster_options(parser)


def add_show(commands: Any) -> None:
    parser = add_command(
        commands,
        "show",
        run="cli.groups.policy_show",
        help="show the policies of a group and their current status",
        description="Show the policies of a group, the source of each, and their current effect: members that are away, waiting or missing.",
        examples=("tenure group policy show orders", "tenure group policy show orders --json"),
    )
    parser.add_argument("group", metavar="GROUP", help="which group")
    add_cluster_options(parser)


def add_list(commands: Any) -> None:
    parser = add_command(
        commands,
        "list",
        run="cli.groups.policy_list",
        help="list all groups that have policies",
        description="List all groups that have policies, including groups that do not exist yet.",
        examples=("tenure group policy list", "tenure group policy list --json"),
    )
    add_cluster_options(parser)


def add_rebalance(actions: Any) -> None:
    parser = add_command(
        actions,
        "rebalance",
        run="cli.groups.policy_change",
        help="make all members of a group rejoin once (Tenure brokers only)",
        description="Make all members of a group rejoin once, so that its partitions are assigned again. No member is removed.",
        examples=('tenure group rebalance orders --reason "orders has more partitions"',),
        notes="The reason is stored as the policy rebalance.request; `tenure group history` shows it.",
    )
    parser.add_argument("group", metavar="GROUP", help="which group")
    parser.add_argument("--reason", metavar="TEXT", required=True, help="why; shown in the group's history")
    add_change_options(parser)
    add_cluster_options(parser)


def setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name.strip(), value.strip()
