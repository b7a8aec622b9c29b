"""Arguments of `tenure topic`."""

from __future__ import annotations

import argparse
from typing import Any

from cli.arguments import add_change_options, add_cluster_options, add_command, add_family, one_partition, too_large
from cli.selection import SELECTION_NOTE, add_selection, add_watch_options

STATES = ("ok", "under-replicated", "without-leader")
SORTS = ("name", "partitions", "records", "size")
PARTITIONS_MAX = 1 << 31
REPLICAS_MAX = 1 << 15


def add(commands: Any) -> None:
    actions = add_family(
        commands,
        "topic",
        help="list, create, describe, alter and delete topics",
        description="Topics of any Kafka cluster: their partitions, settings and records.",
    )
    add_list(actions)
    add_create(actions)
    add_describe(actions)
    add_alter(actions)
    add_config(actions)
    add_delete(actions)
    add_delete_records(actions)


def add_list(actions: Any) -> None:
    parser = add_command(
        actions,
        "list",
        run="cli.topics.listing",
        help="list topics",
        examples=("tenure topic list", "tenure topic list 'orders-*' --long --sort size", "tenure topic list --state under-replicated --json", "tenure topic list --long --watch"),
    )
    parser.add_argument("topics", metavar="PATTERN", nargs="*", help="only these topics: a name, or a quoted pattern such as 'orders-*'")
    parser.add_argument("--internal", action="store_true", help="also internal topics, such as __consumer_offsets")
    parser.add_argument("--long", action="store_true", help="also records, bytes, and the number of partitions without leader or in-sync replicas")
    parser.add_argument("--state", choices=STATES, action="append", default=[], dest="states", help=f"only topics in this state: {', '.join(STATES)}; may be repeated")
    parser.add_argument("--sort", choices=SORTS, default="name", help="name (default), or partitions, records, size: largest first; the last two as with --long")
    add_watch_options(parser)
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
        examples=("tenure topic describe orders", "tenure topic describe 'orders-*'", "tenure topic describe orders --json", "tenure topic describe orders --watch"),
    )
    add_selection(parser, "topics", "NAME", "every topic that is not internal")
    add_watch_options(parser)
    add_cluster_options(parser)


def add_alter(actions: Any) -> None:
    parser = add_command(
        actions,
        "alter",
        run="cli.topics.alter",
        help="add partitions to a topic",
        examples=("tenure topic alter orders --partitions 12 --dry-run", "tenure topic alter orders --partitions 12 --yes"),
        notes="Partitions can be added but not removed. New records with a key may then go to other partitions.\n"
        "Settings are changed with tenure topic config set.",
    )
    parser.add_argument("topic", metavar="NAME")
    parser.add_argument("--partitions", metavar="N", type=count(PARTITIONS_MAX), required=True, help="the new total number")
    add_cluster_options(parser)
    add_change_options(parser)


def add_config(actions: Any) -> None:
    commands = add_family(
        actions,
        "config",
        help="show, set and unset the settings of a topic",
        description="The settings of a topic, with Kafka's names: retention.ms, cleanup.policy, max.message.bytes and others.",
        action="config_action",
    )
    show = add_command(
        commands,
        "show",
        run="cli.topics.config_show",
        help="show all settings of a topic, and where each value comes from",
        examples=("tenure topic config show orders", "tenure topic config show orders retention.ms cleanup.policy --json"),
    )
    show.add_argument("topic", metavar="NAME")
    show.add_argument("names", metavar="SETTING", nargs="*", help="only this setting")
    add_cluster_options(show)
    change = add_command(
        commands,
        "set",
        run="cli.topics.config_change",
        help="set settings of a topic",
        examples=("tenure topic config set orders retention.ms=86400000", "tenure topic config set orders cleanup.policy=compact max.message.bytes=2000000 --dry-run"),
    )
    change.add_argument("topic", metavar="NAME")
    change.add_argument("settings", metavar="SETTING=VALUE", nargs="+", type=setting, help="a setting and its value")
    unset = add_command(
        commands,
        "unset",
        run="cli.topics.config_change",
        help="reset settings of a topic to their defaults",
        examples=("tenure topic config unset orders retention.ms --yes",),
    )
    unset.add_argument("topic", metavar="NAME")
    unset.add_argument("names", metavar="SETTING", nargs="+", help="which setting")
    for parser in (change, unset):
        add_cluster_options(parser)
        add_change_options(parser)


def add_delete_records(actions: Any) -> None:
    parser = add_command(
        actions,
        "delete-records",
        run="cli.topics.delete_records",
        help="delete the records of a topic before an offset or a time",
        description="Delete the records of a topic before an offset or a time. This cannot be undone; --dry-run shows what would be lost.",
        examples=(
            "tenure topic delete-records orders --before 1000 --partition 0 --dry-run",
            "tenure topic delete-records orders --before 7d",
            "tenure topic delete-records orders --before latest --yes",
        ),
        notes="--before accepts latest, an offset, -N to leave the last N of each partition, a time (2026-11-21T08:30:00Z; UTC without a zone), or an\n"
        "age (7d). The topic's cleanup.policy must have delete. Consumers with older offsets continue at the new start, or where auto.offset.reset says.",
    )
    parser.add_argument("topic", metavar="NAME")
    parser.add_argument("--before", metavar="WHERE", required=True, help="the first record that stays in each partition")
    parser.add_argument("--partition", metavar="N", type=one_partition, action="append", help="only this partition; may be repeated")
    add_cluster_options(parser)
    add_change_options(parser)


def add_delete(actions: Any) -> None:
    parser = add_command(
        actions,
        "delete",
        run="cli.topics.delete",
        help="delete topics with their records",
        description="Delete topics, their records and the offsets committed for them. This cannot be undone; --dry-run shows what would be lost.",
        examples=("tenure topic delete orders --dry-run", "tenure topic delete orders invoices --yes", "tenure topic delete 'orders-test-*' --dry-run"),
        notes=SELECTION_NOTE,
    )
    add_selection(parser, "topics", "NAME", "every topic that is not internal")
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
