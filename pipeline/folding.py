"""From events to the tables of each group."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa

from pipeline.advice import AdviceTables, advise
from pipeline.episodes import fold_group
from pipeline.events import Epochs, Events, Raw, events_of
from pipeline.rows import CommitsAround, Coverage, GroupTables
from pipeline.schema import rows_of, table_of
from pipeline.timeouts import Options

# Each table, with the attribute of GroupTables or AdviceTables that has its rows.
FOLDED: Final = {
    "generations": "generations",
    "members": "members",
    "newer_groups": "newer",
    "notes": "notes",
    "member_spells": "spells",
    "replacements": "replacements",
    "rebalances": "episodes",
}
ADVISED: Final = {
    "rebalances": "episodes",
    "replacements": "replacements",
    "gap_samples": "gaps",
    "timeout_curve": "curve",
    "timeout_advice": "advice",
    "deploys": "deploys",
}
BY_GROUP: Final = tuple(dict.fromkeys([*FOLDED, *ADVISED]))
COORDINATOR: Final = ""  # the group name in notes about a whole partition


def fold(
    cluster: str,
    events: pa.Table,
    edges: pa.Table,
    coverage: Mapping[int, Sequence[Coverage]],
    now_ms: int,
    due: Collection[str] | None = None,
    epochs: Epochs | None = None,
) -> dict[str, pa.Table]:
    """The tables of BY_GROUP for the groups in `due` (None: all), also COORDINATOR if it is among them. `coverage`: by partition, of both logs."""
    edges_by_group = _by_group(edges)
    rows: dict[str, list[tuple[object, ...]]] = {name: [] for name in BY_GROUP}
    for group, group_events in events_of(raw_events(events), epochs).items():
        if due is not None and group not in due:
            continue
        folded, advised = tables_of_group(cluster, group, group_events, edges_by_group.get(group, {}), coverage.get(group_events.partition, ()), now_ms)
        for name in BY_GROUP:
            rows[name] += getattr(advised, ADVISED[name]) if name in ADVISED else getattr(folded, FOLDED[name])
    return {name: table_of(name, of_table) for name, of_table in rows.items()}


def tables_of_group(
    cluster: str, group: str, events: Events, edges: Mapping[int, CommitsAround], coverage: Sequence[Coverage], now_ms: int
) -> tuple[GroupTables, AdviceTables]:
    folded = fold_group(cluster, group, events, edges, coverage, now_ms)
    if group == COORDINATOR:
        return folded, AdviceTables([], [], [], [], [], [])
    return folded, advise(cluster, group, folded, now_ms, Options())


def raw_events(events: pa.Table) -> Iterator[Raw]:
    columns = ("log", "partition", "offset", "append_ms", "leader_epoch", "key_raw", "value_raw")
    return map(Raw._make, zip(*(events[name].to_pylist() for name in columns), strict=True))


def _by_group(edges: pa.Table) -> dict[str, dict[int, CommitsAround]]:
    edges_by_group: dict[str, dict[int, CommitsAround]] = {}
    for edge in rows_of(CommitsAround, edges):
        edges_by_group.setdefault(edge.group, {})[edge.offset] = edge
    return edges_by_group
