"""Gold `hygiene`: cleanup recommendations, from the newest records of each group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from history.shared_ids import RETURNS_MIN, WINDOW_MS, alternating, returns_in_window
from pipeline.columns import MISSING, Ints, ints
from pipeline.groups import in_newer_protocol
from pipeline.rows import Generation, Hygiene, Member, NewerGroup, Replaced
from pipeline.schema import rows_of
from pipeline.series import Series, mark_lasts

R = TypeVar("R", Generation, Member, NewerGroup, Replaced)

DAY_MS: Final = 86_400_000
RETENTION_DEFAULT_MS: Final = 7 * DAY_MS  # Kafka's
TEXT_MAX: Final = 20  # names in the text of one finding


@dataclass(frozen=True)
class Thresholds:
    dead_ms: int = 7 * DAY_MS  # the time without members and commits
    recent_ms: int = 3_600_000  # commits newer than this are current
    retention_ms: int | None = None  # offsets.retention.minutes; None: unknown, so RETENTION_DEFAULT_MS is assumed
    expiry_warning_ms: int = DAY_MS
    session_ms_min: int = 10_000
    session_ms_max: int = 600_000
    metadata_bytes: int = 1_024
    returns: int = RETURNS_MIN  # returns of an instance within `returns_ms` that indicate two processes with its id
    returns_ms: int = WINDOW_MS


class Offset(NamedTuple):
    """The last committed offset of a partition."""

    topic: str
    partition: int
    append_ms: int
    metadata_bytes: int


def hygiene(
    cluster: str,
    generations: pa.Table,
    members: pa.Table,
    replacements: pa.Table,
    series: Series,
    series_totals: pa.Table,
    now_ms: int,
    policy: Thresholds | None = None,
    newer: Sequence[NewerGroup] = (),
) -> list[Hygiene]:
    """The findings, without groups in a newer protocol: their members are unknown.

    `series`: at least the last commit of each partition, as in `CommitState.tails`.
    """
    rules = policy or Thresholds()
    records_by_group: dict[str, list[Generation]] = _by_group(rows_of(Generation, generations))
    members_by_group: dict[str, list[Member]] = _by_group(rows_of(Member, members))
    replaced_by_group: dict[str, list[Replaced]] = _by_group(rows_of(Replaced, replacements))
    newer_by_group: dict[str, list[NewerGroup]] = _by_group(newer)
    unknown = {group for group, records in newer_by_group.items() if in_newer_protocol(records_by_group.get(group, []), records)}
    offsets = last_offsets(series)
    rows: list[Hygiene] = []
    for group in sorted({*records_by_group, *offsets} - unknown):
        group_state = Group(cluster, group, records_by_group.get(group, []), members_by_group.get(group, []), offsets.get(group, []), now_ms, rules)
        rows += group_state.rows()
        at_ms = {row.offset: row.append_ms for row in records_by_group.get(group, [])}
        rows += instances(cluster, group, members_by_group.get(group, []), at_ms, replaced_by_group.get(group, []), rules)
    rows += [row for row in lost_data(cluster, series_totals) if row.group not in unknown]
    # Equal findings share a row, such as those of members with the same client id and host.
    return [row for _, row in sorted({(row.group, row.kind, row.topic or "", row.topic_partition or 0, row.detail): row for row in rows}.items())]


class Group:
    """The current state of one group."""

    def __init__(
        self, cluster: str, group: str, records: Sequence[Generation], members: Sequence[Member], offsets: Sequence[Offset], now_ms: int, rules: Thresholds
    ) -> None:
        self._cluster = cluster
        self._group = group
        self._newest = max(records, key=lambda row: row.offset, default=None)
        self._offsets = offsets
        self._members = [row for row in members if self._newest is not None and row.offset == self._newest.offset]
        self._now_ms = now_ms
        self._rules = rules
        self._committed_ms = max((offset.append_ms for offset in offsets), default=MISSING)
        self._changed_ms = self._newest.append_ms if self._newest is not None else MISSING

    def rows(self) -> Iterator[Hygiene]:
        if self._members:
            yield from self._sessions()
            yield from self._assignments()
        elif self._offsets:
            yield from self._abandoned()
        for offset in self._offsets:
            if offset.metadata_bytes > self._rules.metadata_bytes:
                yield self._row("metadata_bloat", f"{offset.metadata_bytes} bytes of metadata with each commit", offset.append_ms, offset)

    def _abandoned(self) -> Iterator[Hygiene]:
        """Findings for a group without members. Offsets expire after their commit or after the group became empty, whichever is later."""
        last = max(self._committed_ms, self._changed_ms)
        quiet = self._now_ms - last
        if self._now_ms - self._committed_ms <= self._rules.recent_ms and self._committed_ms > self._changed_ms:
            yield self._row("commits_without_members", "offsets are committed by a client that is not in the group", self._committed_ms)
        elif quiet >= self._rules.dead_ms:
            yield self._row("dead_group", f"no members and no commits for {quiet // DAY_MS} days, {len(self._offsets)} offsets", last)
        retention_ms = self._rules.retention_ms
        assumed = "" if retention_ms is not None else ", if offsets.retention.minutes is 10080, the default (the logs do not tell: --offsets-retention)"
        for offset in self._offsets:
            expires = max(offset.append_ms, self._changed_ms) + (RETENTION_DEFAULT_MS if retention_ms is None else retention_ms)
            if expires <= self._now_ms + self._rules.expiry_warning_ms:
                hours = max(0, expires - self._now_ms) // 3_600_000
                yield self._row("offsets_about_to_expire", f"in {hours} hours, unless a member joins or an offset is committed{assumed}", offset.append_ms, offset)

    def _sessions(self) -> Iterator[Hygiene]:
        for member in self._members:
            if member.session_timeout_ms >= 0 and not self._rules.session_ms_min <= member.session_timeout_ms <= self._rules.session_ms_max:
                text = f"session.timeout.ms={member.session_timeout_ms} of {_name(member)} is not between {self._rules.session_ms_min} and {self._rules.session_ms_max}"
                yield self._row("session_out_of_policy", text, self._changed_ms)

    def _assignments(self) -> Iterator[Hygiene]:
        """Findings about the assignment, which is readable only with the protocol type `consumer`."""
        assert self._newest is not None
        assigned = {name for member in self._members for name in member.assigned}
        if self._newest.protocol_type != "consumer" or not assigned:
            return
        for member in self._members:
            if not member.assigned:
                yield self._row("idle_member", f"{_name(member)} has no partition: {len(self._members)} members for {len(assigned)} partitions", self._changed_ms)
        subscribed = {topic for member in self._members for topic in member.topics}
        for offset in self._offsets:
            if f"{offset.topic}-{offset.partition}" not in assigned:
                problem = "no member is assigned to it" if offset.topic in subscribed else "no member subscribes to its topic any more"
                yield self._row("unowned_partition", problem, offset.append_ms, offset)

    def _row(self, kind: str, detail: str, at_ms: int, about: Offset | None = None) -> Hygiene:
        return Hygiene(
            self._cluster, self._group, about.topic if about else None, about.partition if about else None, kind, detail, at_ms
        )


def instances(
    cluster: str, group: str, members: Iterable[Member], at_ms: Mapping[int, int], replaced: Iterable[Replaced], rules: Thresholds
) -> Iterator[Hygiene]:
    """Findings about instance ids that several processes share: they alternate between hosts, or return too often."""
    hosts: dict[str, list[str]] = defaultdict(list)
    moved: dict[str, int] = {}
    for member in sorted(members, key=lambda row: row.offset):
        if member.instance_id is not None and hosts[member.instance_id][-1:] != [member.host]:
            hosts[member.instance_id].append(member.host)
            moved[member.instance_id] = at_ms.get(member.offset, 0)
    for instance, host_sequence in sorted(hosts.items()):
        shared_hosts = alternating(host_sequence)
        if shared_hosts:
            text = f"{instance} is on {_listed(shared_hosts)} alternately"
            yield Hygiene(cluster, group, None, None, "host_shared_instance", text, moved[instance])
    times: dict[str, list[int]] = defaultdict(list)
    for replacement in replaced:
        times[replacement.instance_id].append(replacement.at_ms)
    for instance, at in sorted(times.items()):
        at.sort()
        close = returns_in_window(at, rules.returns_ms)
        most = max(close)
        if most >= rules.returns:
            within = f"within {rules.returns_ms // 60_000} minutes"
            text = f"{instance} came back {len(at)} times {within}" if most == len(at) else f"{instance} came back {len(at)} times, {most} of them {within}"
            yield Hygiene(cluster, group, None, None, "duplicate_instance", text, max(last for last, count in zip(at, close, strict=True) if count >= rules.returns))


def lost_data(cluster: str, series_totals: pa.Table) -> Iterator[Hygiene]:
    """Findings about partitions whose records were deleted before the group had read them, except where the offset was removed since."""
    rows = series_totals.filter(pc.and_(pc.is_valid(series_totals["lost_ms"]), pc.is_valid(series_totals["status"])))
    for group, topic, partition, at_ms in zip(*(rows[name].to_pylist() for name in ("group", "topic", "topic_partition", "lost_ms")), strict=True):
        yield Hygiene(cluster, group, topic, partition, "data_lost", "records were deleted before the group had read them", at_ms)


def last_offsets(series: Series) -> dict[str, list[Offset]]:
    """The committed offsets of each group, sorted by topic and partition."""
    last = np.flatnonzero(mark_lasts(series.series) & ~series.removed)
    rows = series.commits.select(["group", "topic", "topic_partition", "append_ms", "metadata"]).take(pa.array(series.rows[last]))
    sizes: Ints = ints(pc.fill_null(pc.binary_length(rows["metadata"]), 0).cast(pa.int64()))
    offsets: dict[str, list[Offset]] = defaultdict(list)
    columns = (rows[name].to_pylist() for name in ("group", "topic", "topic_partition", "append_ms"))
    for group, topic, partition, at, size in zip(*columns, sizes.tolist(), strict=True):
        offsets[group].append(Offset(topic, partition, at, size))
    return offsets


def _name(member: Member) -> str:
    return member.instance_id or f"{member.client_id} at {member.host}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:TEXT_MAX]) + (f" and {len(names) - TEXT_MAX} more" if len(names) > TEXT_MAX else "")


def _by_group(rows: Iterable[R]) -> dict[str, list[R]]:
    rows_by_group: dict[str, list[R]] = defaultdict(list)
    for row in rows:
        rows_by_group[row.group].append(row)
    return rows_by_group
