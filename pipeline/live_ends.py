"""End offsets of a live cluster, requested from its brokers whenever their logs are read: they cannot be requested again later."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Final

from pipeline.end_samples import from_list_offsets
from pipeline.inputs import BadInput, Inputs
from pipeline.progress import Progress
from pipeline.rows import EndOffset
from pipeline.wire import Client

TIMEOUT_S: Final = 10.0  # short, as without these samples only the current lag is missing

Ends = Mapping[tuple[str, int], tuple[int | None, int]]


def live_ends(inputs: Inputs, topics: Mapping[str, Collection[str]], known: Mapping[str, Ends], progress: Progress) -> list[EndOffset]:
    """The end offsets of committed topics, by cluster, unless they are those that were reported last."""
    rows: list[EndOffset] = []
    for source, _ in inputs.brokers:
        try:
            with Client(source, TIMEOUT_S, config=inputs.config) as client:
                at_ms = time.time_ns() // 1_000_000
                client.logs(())  # learns the cluster's id
                cluster = inputs.cluster or client.cluster
                ends = client.ends(tuple(sorted(topics.get(cluster, ()))))
        except BadInput as error:
            progress.say(f"{error}: the end offsets of topics are not known")
            continue
        if any(known.get(cluster, {}).get(place) != end for place, end in ends.items()):
            rows += from_list_offsets(cluster, at_ms, ends)
    return rows
