"""Arguments of `tenure cluster`, `tenure node` and `tenure completion`."""

from __future__ import annotations

import argparse
from typing import Any

from cli.arguments import add_change_options, add_cluster_options, add_command, add_family, whole_number

SHELLS = ("bash", "zsh", "fish")
CLUSTER_NOTES = (
    "Exit code 1 if something is wrong: a broker is fenced or cannot be reached, a partition has no leader or replicas that are not in sync, "
    "or a node serves no groups or not all logs. Otherwise 75 if something could not be asked, such as the controller while the quorum has "
    "none: it is `unknown`, and a line on standard error says why."
)


def add_cluster_command(commands: Any) -> None:
    cluster = add_command(
        commands,
        "cluster",
        run="cli.cluster",
        help="show a cluster and its brokers",
        description="Show a cluster: its id, its brokers, its Kafka release, and its number of topics and groups.",
        notes=CLUSTER_NOTES,
        examples=("tenure cluster", "tenure cluster --bootstrap kafka1:9092,kafka2:9092", "tenure cluster --versions --json | jq .release"),
    )
    cluster.add_argument("--versions", action="store_true", help="list every supported request with its versions")
    add_cluster_options(cluster)


def add_node(commands: Any) -> None:
    actions = add_family(
        commands,
        "node",
        help="drain or undrain one of several nodes",
        description="Move the logs of one of several nodes (tenure serve --nodes N) to the others, and back. tenure cluster shows the nodes.",
    )
    drain = add_command(
        actions,
        "drain",
        run="cli.nodes",
        help="hand all partitions of a node to the other nodes",
        description="Hand all logs of a node over to the others, in order, and wait until it owns nothing: then clients do not notice when it stops or is killed.",
        examples=("tenure node drain 2", "tenure node drain 2 --timeout 60"),
        notes="It is drained until tenure node undrain, or until it is started again.",
    )
    undrain = add_command(
        actions,
        "undrain",
        run="cli.nodes",
        help="give a drained node its share of the partitions again",
        description="Give a drained node its share of the partitions again, and wait until it owns them.",
        examples=("tenure node undrain 2",),
    )
    for parser in (drain, undrain):
        parser.add_argument("node", metavar="N", type=whole_number, help="id of the node")
        add_cluster_options(parser)
        add_change_options(parser, asks=False)


def add_completion(commands: Any) -> None:
    completion = add_command(
        commands,
        "completion",
        run="cli.completion",
        help="print a shell completion script",
        description="Print a script for a shell, with which TAB completes commands, options and values, also names of groups and topics.",
        examples=(
            'eval "$(tenure completion bash)"                                  # in ~/.bashrc',
            'eval "$(tenure completion zsh)"                                   # in ~/.zshrc, behind compinit',
            "tenure completion fish > ~/.config/fish/completions/tenure.fish   # once",
        ),
        notes="Names of groups and topics come from --bootstrap on the line or from $TENURE_BOOTSTRAP, if it answers within a second.",
    )
    completion.add_argument("shell", choices=SHELLS, metavar="|".join(SHELLS), help="which shell")
    # For the completion scripts, which pass the words of the line; the last word may be unfinished. A colon precedes each word, so that none
    # looks like an option. bash passes the whole line as one word.
    completion.add_argument("--words", nargs="+", help=argparse.SUPPRESS)
