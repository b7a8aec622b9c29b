"""The history of a group for the test control: the document of `tenure group history --json`, and its text."""

from __future__ import annotations

import io
from typing import Any

from cli.arguments import addresses
from cli.client import Cluster, Failure
from cli.groups import history_document, history_shown
from cli.groups.history import CONTEXT_MS, HistoryReader, entries_since, in_order_of_begin
from cli.groups.history_reading import GroupLogReader
from cli.shown import Screen

TIMEOUT_SECONDS = 10.0


def read_history(bootstrap: str, group: str, since_ms: int | None) -> dict[str, Any]:
    """`since_ms`: only what ended then or later."""
    try:
        with Cluster(addresses(bootstrap), TIMEOUT_SECONDS) as cluster:
            reader = GroupLogReader(cluster, group)
            since = None if since_ms is None else since_ms - CONTEXT_MS
            reader.begin(since)
            history = HistoryReader(reader, since)
            entries = history.entries_so_far()
            entries += history.story.finish()
    except Failure as failure:
        return {"group": group, "entries": [], "text": [], "error": failure.line}
    shown = entries_since(in_order_of_begin(entries), since_ms)
    out = io.StringIO()
    screen = Screen(out=out, err=out)
    documents = []
    for entry in shown:
        details = history.details(entry)
        documents.append(history_document.document(entry, details))
        history_shown.show(screen, entry, details)
    return {"group": group, "entries": documents, "text": out.getvalue().splitlines()}
