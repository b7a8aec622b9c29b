"""`tenure group policy show`: the policies of a group, their source, and their current status."""

from __future__ import annotations

import argparse

from cli.client import Cluster, Exit
from cli.groups.policies import policies_of
from cli.groups.policy_status import show_status
from cli.shown import Column, Screen, plain


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    with Cluster.of(options) as cluster:
        policies = policies_of(cluster, options.group)
    if screen.json:
        screen.document(policies.document())
        return Exit.DONE
    if policies.policies:
        columns = [Column("POLICY", False), Column("VALUE", False), Column("FROM", False)]
        screen.table(columns, [(policy.name, policy.value, "group" if policy.is_own else "broker") for policy in policies.policies])
    else:
        screen.line(plain(f"group {options.group} has no policies"))
    show_status(screen, policies.status)
    return Exit.DONE
