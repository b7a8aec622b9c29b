"""Arguments of `tenure cluster` and `tenure completion`."""

from __future__ import annotations

import argparse
from typing import Any

from cli.arguments import add_cluster, add_command

SHELLS = ("bash", "zsh", "fish")


def add_cluster_command(commands: Any) -> None:
    cluster = add_command(
        commands,
        "cluster",
        run="cli.cluster",
        help="show a cluster and its brokers",
        description="Show what a cluster is: its id, its brokers, which release of Kafka it looks like, and how many topics and groups it has.",
        examples=("tenure cluster", "tenure cluster --bootstrap kafka1:9092,kafka2:9092", "tenure cluster --versions --json | jq .release"),
    )
    cluster.add_argument("--versions", action="store_true", help="list every request that it serves, and in which versions")
    add_cluster(cluster)


def add_completion(commands: Any) -> None:
    completion = add_command(
        commands,
        "completion",
        run="cli.completion",
        help="print a script that completes commands in a shell",
        description="Print a script for a shell: with it TAB completes commands, options and their values, also names of groups and topics.",
        examples=(
            'eval "$(tenure completion bash)"                                  # in ~/.bashrc',
            'eval "$(tenure completion zsh)"                                   # in ~/.zshrc, behind compinit',
            "tenure completion fish > ~/.config/fish/completions/tenure.fish   # once",
        ),
        notes="Names of groups and topics are those of --bootstrap on the line or of $TENURE_BOOTSTRAP, where it answers within a second.",
    )
    completion.add_argument("shell", choices=SHELLS, metavar="|".join(SHELLS), help="which shell")
    # What the scripts ask: the words so far, the last of them unfinished, each behind a colon, so that none looks like an option; bash
    # passes its line as it stands.
    completion.add_argument("--words", nargs="+", help=argparse.SUPPRESS)
