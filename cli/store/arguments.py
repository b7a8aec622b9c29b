"""The arguments of `tenure store`. The actions themselves are imported when they run."""

from __future__ import annotations

import argparse
from typing import Any

from cli.arguments import add_command, add_family


def add(commands: Any) -> None:
    actions = add_family(
        commands,
        "store",
        help="move a cluster between a directory and JetStream, and back it up",
        description="Copy a cluster with all its offsets: out of a data directory or NATS JetStream, and into JetStream (docs/cluster.md).",
    )
    add_export(actions)
    add_import(actions)


def add_export(actions: Any) -> None:
    parser = add_command(
        actions,
        "export",
        run="cli.store.run",
        help="copy a cluster into a new data directory, also while it runs",
        description="Copy a cluster into a new data directory: groups, offsets, topics, ids, settings and the state of producers. The source is not changed, and "
        "may be in use: the copy has every record that was acknowledged before the export began, and no committed offset after the copied records.",
        examples=(
            "tenure store export --from nats://10.0.0.1,10.0.0.2,10.0.0.3 --cluster east --to ./backup",
            "tenure store export --from ./data --to ./backup",
        ),
        notes="Repeat the command to continue an interrupted export. The result is served by tenure serve --data, "
        "checked by tenure log verify, and copied into JetStream by tenure store import.",
    )
    parser.add_argument("--from", metavar="DIR|nats://HOST:PORT[,...]", required=True, dest="source", help="a data directory, or the servers of JetStream")
    parser.add_argument("--to", metavar="DIR", required=True, dest="target", help="a folder that does not exist, or is empty")
    add_shared_arguments(parser)


def add_import(actions: Any) -> None:
    parser = add_command(
        actions,
        "import",
        run="cli.store.run",
        help="copy a data directory into JetStream",
        description="Copy a data directory, which no broker uses, into JetStream as a new cluster: an export, or the directory of a stopped broker. "
        "Every batch is verified before anything is written.",
        examples=(
            "tenure store import --from ./backup --to nats://10.0.0.1,10.0.0.2,10.0.0.3 --cluster east",
            "tenure store import --from ./data --to nats://127.0.0.1 --cluster trial --set store.replicas=1 --dry-run",
            "tenure store import --from ./backup --to nats://10.0.0.1 --cluster east --only __consumer_offsets-7",
        ),
        notes="Nodes can start on the cluster when the import has finished. Repeat the command to continue an interrupted import.",
    )
    parser.add_argument("--from", metavar="DIR", required=True, dest="source", help="the data directory")
    parser.add_argument("--to", metavar="nats://HOST:PORT[,...]", required=True, dest="target", help="the servers of JetStream")
    parser.add_argument(
        "--only",
        metavar="LOG",
        action="append",
        default=[],
        help="replace this damaged log of an existing cluster, whose nodes are stopped: __consumer_offsets-7, orders-3; may be repeated",
    )
    add_shared_arguments(parser)


def add_shared_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cluster", metavar="NAME", help="the name of the cluster in JetStream (tenure)")
    parser.add_argument(
        "--set", metavar="NAME=VALUE", action="append", default=[], dest="settings", help="a setting of JetStream: store.replicas, store.tls.ca.location"
    )
    parser.add_argument("--dry-run", action="store_true", help="only check, and show what would be copied")
    parser.add_argument("--json", action="store_true", help="print JSON")
