"""Loads the tables of the report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.coverage import merged
from pipeline.report.stretches import merged_intervals
from pipeline.rows import (
    Advice,
    Coverage,
    CurvePoint,
    Deploy,
    Episode,
    Gap,
    Group,
    Hygiene,
    MemberSpell,
    NewerGroup,
    Replaced,
    Segment,
    Status,
)
from pipeline.schema import rows_of
from pipeline.tables import Only, Tables

R = TypeVar("R", bound=tuple[object, ...])


class ReportTables:
    """The gold tables that the report reads, loaded once."""

    def __init__(self, tables: Tables, groups: Iterable[str] | None = None, cluster: str | None = None) -> None:
        self.tables = tables
        self.published = tables.published()  # all are read as one batch left them
        self.cluster = cluster
        self._wanted_groups = None if groups is None else set(groups)
        self.groups = self._of("groups", Group)
        self.newer = self._of("newer_groups", NewerGroup)
        self.episodes = self._by_group("rebalances", Episode)
        self.deploys = self._by_group("deploys", Deploy)
        self.spells = self._by_group("member_spells", MemberSpell)
        self.replacements = self._by_group("replacements", Replaced)
        self.gaps = self._by_group("gap_samples", Gap)
        self.curve = self._by_group("timeout_curve", CurvePoint)
        self.advice = {(advice.cluster, advice.group): advice for advice in self._of("timeout_advice", Advice)}
        self.status = self._grouped(rows_of(Status, self._read("status", {"ruleset": "tenure"}, condense=merged_intervals)))
        self.hygiene = self._by_group("hygiene", Hygiene)
        self.coverage = merged(rows_of(Coverage, self._read_of_cluster("coverage")))
        lag = self._read("lag_1m", columns=["cluster", "group", "topic", "topic_partition", "minute_ms", "lag_max"])
        self.lag = lag.filter(pc.is_valid(lag["lag_max"]))
        self.segments = rows_of(Segment, self._read_of_cluster("segments"))

    def _of(self, name: str, row: type[R]) -> list[R]:
        return rows_of(row, self._read(name))

    def _read(self, name: str, only: Only | None = None, **how: Any) -> pa.Table:
        wanted = {} if self._wanted_groups is None else {"group": sorted(self._wanted_groups)}
        return self._read_of_cluster(name, {**(only or {}), **wanted}, **how)

    def _read_of_cluster(self, name: str, only: Only | None = None, **how: Any) -> pa.Table:
        wanted = {} if self.cluster is None else {"cluster": self.cluster}
        return self.tables.read(name, only={**(only or {}), **wanted}, published=self.published, **how)

    def _by_group(self, name: str, row: type[R]) -> dict[tuple[str, str], list[R]]:
        return self._grouped(self._of(name, row))

    def _grouped(self, rows: list[R]) -> dict[tuple[str, str], list[R]]:
        rows_by_group: dict[tuple[str, str], list[R]] = defaultdict(list)
        for row in rows:
            rows_by_group[row.cluster, row.group].append(row)  # type: ignore[attr-defined]
        return rows_by_group
