"""`tenure group policy show`: the policies of a group, their source, and their current status."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from typing import Final

from cli.client import EXIT, Cluster
from cli.groups.offsets_words import shown_moment
from cli.groups.policies import policies_of
from cli.shown import Column, Role, Screen, plain

_MOMENT: Final = re.compile(r" since (\d{1,18})\b")  # milliseconds since 1970


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    with Cluster.of(options) as cluster:
        found = policies_of(cluster, options.group)
    if screen.json:
        screen.document(found.document())
        return EXIT.DONE
    if found.policies:
        columns = [Column("POLICY", False), Column("VALUE", False), Column("FROM", False)]
        screen.table(columns, [(policy.name, policy.value, "group" if policy.own else "broker") for policy in found.policies])
    else:
        screen.line(plain(f"group {options.group} has no policies"))
    show_status(screen, found.status)
    return EXIT.DONE


def show_status(screen: Screen, status: Mapping[str, str]) -> None:
    for name, value in status.items():
        readable = _MOMENT.sub(lambda found: f" since {shown_moment(int(found[1]))}", value)
        screen.line(screen.paint(plain(f"{name.replace('.', ' ')}: {readable}"), Role.CAREFUL))
