"""Changes of a topic's partitions and settings, as they are shown and confirmed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from cli.client import Exit, Failure
from cli.shown import Screen, plain

SET: Final = 0
DELETE: Final = 1


class Change(NamedTuple):
    name: str
    before: object
    after: object  # None: the default, which is unknown
    operation: int = SET

    def text(self) -> str:
        after = "its default" if self.after is None else shown(self.after)
        if self.operation == DELETE and self.after is not None:
            after += " (its default here)"
        return f"{plain(self.name)}: {shown(self.before)} -> {after}"

    def document(self) -> dict[str, Any]:
        return {"what": self.name, "from": self.before, "to": self.after}


def shown(value: object) -> str:
    return "(unknown)" if value is None else plain(str(value)) or "(empty)"


def confirm(screen: Screen, options: argparse.Namespace, changes: Sequence[Change], warning: str = "") -> None:
    lines = [f"{plain(options.topic)} will be changed:", *(f"  {change.text()}" for change in changes), *([f"  {warning}"] if warning else [])]
    if not screen.confirm("\n".join([*lines, "Continue?"]), options):
        raise Failure(Exit.REFUSED, "nothing was changed")


def show_changes(screen: Screen, options: argparse.Namespace, changes: Sequence[Change], warning: str = "") -> None:
    topic = plain(options.topic)
    if screen.json:
        screen.document({"topic": options.topic, "dry_run": options.dry_run, "changes": [change.document() for change in changes]})
    elif not changes:
        screen.line(f"{topic} has these values already")
    else:
        screen.line(f"{topic} {'would be' if options.dry_run else 'was'} changed:")
        for change in changes:
            screen.line(f"  {change.text()}")
        if warning and options.dry_run:
            screen.line(f"  {warning}")
