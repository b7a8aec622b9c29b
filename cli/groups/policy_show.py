"""`tenure group policy show`: the policies of a group, their source, and their current status."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from typing import Final

from cli.client import EXIT, Cluster
from cli.groups.offset_formats import time_text
from cli.groups.policies import policies_of
from cli.shown import Column, Role, Screen, plain

_SINCE: Final = re.compile(r" since (\d{1,18})\b")  # milliseconds since 1970


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    with Cluster.of(options) as cluster:
        policies = policies_of(cluster, options.group)
    if screen.json:
        screen.document(policies.document())
        return EXIT.DONE
    if policies.policies:
        columns = [Column("POLICY", False), Column("VALUE", False), Column("FROM", False)]
        screen.table(columns, [(policy.name, policy.value, "group" if policy.own else "broker") for policy in policies.policies])
    else:
        screen.line(plain(f"group {options.group} has no policies"))
    show_status(screen, policies.status)
    return EXIT.DONE


def show_status(screen: Screen, status: Mapping[str, str]) -> None:
    for name, value in status.items():
        readable = _SINCE.sub(lambda match: f" since {time_text(int(match[1]))}", value)
        screen.line(screen.paint(plain(f"{name.replace('.', ' ')}: {readable}"), Role.CAREFUL))
