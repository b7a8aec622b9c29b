"""`tenure group policy list`: all groups that have policies."""

from __future__ import annotations

import argparse

from cli.client import Cluster, Exit
from cli.groups.policies import groups_with_policies, policies_of
from cli.shown import Column, Screen


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    with Cluster.of(options) as cluster:
        groups = [policies_of(cluster, name) for name in groups_with_policies(cluster)]
    if screen.json:
        screen.document({"groups": [group.document() for group in groups]})
    elif not groups:
        screen.line("no group has policies")
    else:
        columns = [Column("GROUP", False), Column("POLICY", False), Column("VALUE", False)]
        screen.table(columns, [(group.group, *policy) for group in groups for policy in group.own.items()])
    return Exit.DONE
