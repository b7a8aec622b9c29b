"""The arguments of `tenure topic`. The actions themselves are imported when they run."""

from __future__ import annotations

import argparse
from typing import Any

from cli.arguments import add_change, add_cluster, add_command, add_family, too_large

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
    parser.add_argument("--internal", action="store_true", help="also those that the cluster keeps for itself, like __consumer_offsets")
    parser.add_argument("--long", action="store_true", help="also replicas, offsets, bytes, and partitions that lack something")
    add_cluster(parser)


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
    parser.add_argument("--partitions", metavar="N", type=count(PARTITIONS_MAX), help="how many; default: what the cluster is set to")
    parser.add_argument("--replication-factor", metavar="N", type=count(REPLICAS_MAX), help="on how many brokers each; default: as the cluster is set")
    parser.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], type=setting, dest="settings", help="a setting; may be repeated")
    parser.add_argument("--if-not-exists", action="store_true", help="a topic that is there already is left as it is, and is no failure")
    add_cluster(parser)
    add_change(parser)


def add_describe(actions: Any) -> None:
    parser = add_command(
        actions,
        "describe",
        run="cli.topics.describe",
        help="show partitions, offsets, sizes and settings",
        description="Show a topic's partitions with their leaders, replicas, offsets and sizes, and the settings that are not the cluster's defaults.",
        examples=("tenure topic describe orders", "tenure topic describe orders --all-settings", "tenure topic describe orders --json"),
    )
    parser.add_argument("topics", metavar="NAME", nargs="+")
    parser.add_argument("--all-settings", action="store_true", help="every setting, not only those that were changed")
    add_cluster(parser)


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
        notes="Partitions can be added and never taken away; records with a key go to other partitions from then on.",
    )
    parser.add_argument("topic", metavar="NAME")
    parser.add_argument("--partitions", metavar="N", type=count(PARTITIONS_MAX), help="how many there shall be in all")
    parser.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], type=setting, dest="settings", help="a setting; may be repeated")
    parser.add_argument("--unset", metavar="NAME", action="append", default=[], help="a setting that goes back to its default; may be repeated")
    add_cluster(parser)
    add_change(parser)


def add_delete(actions: Any) -> None:
    parser = add_command(
        actions,
        "delete",
        run="cli.topics.delete",
        help="delete topics with everything in them",
        description="Delete topics, their records and the offsets that groups have there. There is no way back; --dry-run says what would be lost.",
        examples=("tenure topic delete orders --dry-run", "tenure topic delete orders", "tenure topic delete orders invoices --yes"),
    )
    parser.add_argument("topics", metavar="NAME", nargs="+")
    parser.add_argument("--if-exists", action="store_true", help="a topic that is not there is no failure")
    add_cluster(parser)
    add_change(parser)


# Types of arguments


def count(limit: int) -> Any:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or not text.strip("0"):
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
        if too_large(text, limit - 1):
            raise argparse.ArgumentTypeError(f"{text} is too large: at most {limit - 1} can be asked for")
        return int(text)

    return read


def setting(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not name or not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name.strip(), value
