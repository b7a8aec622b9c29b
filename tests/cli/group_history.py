"""The output of `tenure group history`, after waiting for the notes of a group, which are written in the background."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.conftest import Tenure
from tests.running import wait_until


def entries_of(client_command: Tenure, group: str, ready: int, *words: str) -> list[dict[str, Any]]:
    """The entries of the history, once it has at least `ready` finished rebalances."""

    def written() -> list[dict[str, Any]] | None:
        done = client_command("group", "history", group, "--json", *words)
        entries: list[dict[str, Any]] = json.loads(done.out)["entries"] if done.code == 0 else []
        return entries if sum(entry["kind"] == "rebalance" and entry["end"] != "open" for entry in entries) >= ready else None

    return wait_until(written)
