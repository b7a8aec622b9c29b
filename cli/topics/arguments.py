"""Arguments of `tenure topic`."""

from __future__ import annotations

import argparse
from typing import Any

from cli.arguments import add_change_options, add_cluster_options, add_command, add_family, too_large

PARTITIONS_MAX = 1 << 31
REPLICAS_MAX = 1 << 15


def add(commands: Any) -> None:
    actions = add_family(
        commands,
        "topic",
        help="list, create, describe, alter and delete topics",
        description="List, create, describe, alter and delete topics of any Kafka cluster.",
    )
    add_list(actions)
    add_create(actions)
    add_describe(actions)
    add_alter(actions)
    add_delete(actions)


def add_list(actions: Any) -> None:
    parser = add_command(
        actions,
        "list",
        run="cli.topics.listing",
        help="list topics",
        examples=("tenure topic list", "tenure topic list --long", "tenure topic list --internal --json"),
    )
    parser.add_argument("--internal", action="store_true", help="also internal topics, such as __consumer_offsets")
    parser.add_argument("--long", action="store_true", help="also records, bytes, and the number of partitions without leader or in-sync replicas")
    add_cluster_options(parser)


def add_create(actions: Any) -> None:
    parser = add_command(
        actions,
        "create",
        run="cli.topics.create",
        help="create topics",
        examples=(
            "tenure topic create orders",
            "tenure topic create orders --partitions 6 --set cleanup.policy=compact",
            "tenure topic create orders --if-not-exists --yes",
        ),
    )
    parser.add_argument("topics", metavar="NAME", nargs="+")
    parser.add_argument("--partitions", metavar="N", type=count(PARTITIONS_MAX), help="number of partitions; default: that of the cluster")
    parser.add_argument("--replication-factor", metavar="N", type=count(REPLICAS_MAX), help="replicas of each partition; default: that of the cluster")
    parser.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], type=setting, dest="settings", help="a setting; may be repeated")
    parser.add_argument("--if-not-exists", action="store_true", help="do nothing for an existing topic, instead of failing")
    add_cluster_options(parser)
    add_change_options(parser)


def add_describe(actions: Any) -> None:
    parser = add_command(
        actions,
        "describe",
        run="cli.topics.describe",
        help="show partitions, offsets, sizes and settings",
        description="Show a topic's partitions with their leaders, replicas, offsets and sizes, and its settings that differ from the cluster's defaults.",
        examples=("tenure topic describe orders", "tenure topic describe orders --all-settings", "tenure topic describe orders --json"),
    )
    parser.add_argument("topics", metavar="NAME", nargs="+")
    parser.add_argument("--all-settings", action="store_true", help="all settings, also defaults")
    add_cluster_options(parser)


def add_alter(actions: Any) -> None:
    parser = add_command(
        actions,
        "alter",
        run="cli.topics.alter",
        help="change a topic's settings or add partitions",
        examples=(
            "tenure topic alter orders --partitions 12 --dry-run",
            "tenure topic alter orders --set retention.ms=86400000",
            "tenure topic alter orders --unset retention.ms --yes",
        ),
        notes="Partitions can be added but not removed. New records with a key may then go to other partitions.",
    )
    parser.add_argument("topic", metavar="NAME")
    parser.add_argument("--partitions", metavar="N", type=count(PARTITIONS_MAX), help="the new total number")
    parser.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], type=setting, dest="settings", help="a setting; may be repeated")
    parser.add_argument("--unset", metavar="NAME", action="append", default=[], help="reset a setting to its default; may be repeated")
    add_cluster_options(parser)
    add_change_options(parser)


def add_delete(actions: Any) -> None:
    parser = add_command(
        actions,
        "delete",
        run="cli.topics.delete",
        help="delete topics with their records",
        description="Delete topics, their records and the offsets committed for them. This cannot be undone; --dry-run shows what would be lost.",
        examples=("tenure topic delete orders --dry-run", "tenure topic delete orders", "tenure topic delete orders invoices --yes"),
    )
    parser.add_argument("topics", metavar="NAME", nargs="+")
    parser.add_argument("--if-exists", action="store_true", help="do nothing for a missing topic, instead of failing")
    add_cluster_options(parser)
    add_change_options(parser)


# Types of arguments


def count(limit: int) -> Any:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or not text.strip("0"):
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
        if too_large(text, limit - 1):
            raise argparse.ArgumentTypeError(f"{text} is too large: the maximum is {limit - 1}")
        return int(text)

    return read


def setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name.strip(), value
