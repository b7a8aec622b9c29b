"""Every table for users: one class for each table, one field for each column. `schema.py` converts them to Arrow schemas.

Times are milliseconds since 1970, UTC. None means unknown. A pair `..._lo_ms`, `..._hi_ms` is an interval that contains the true value;
both are equal if it is exact. `confidence` is exact (from notes), strong, weak, or none. Rows with `final` False may change with later
records: the next run replaces them.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Record(NamedTuple):
    """Bronze: one record of __consumer_offsets or __coordinator_notes, but for offset commits (silver `commits`) and end offsets."""

    cluster: str
    log: str  # offsets, notes
    partition: int
    offset: int
    append_ms: int
    batch_base: int
    leader_epoch: int
    producer_id: int
    txn: bool
    kind: str  # offset, group, note, control, consumer (of KIP-848), share, streams, other (unknown), unreadable
    key_version: int
    value_version: int  # -1: a tombstone
    group: str | None
    topic: str | None
    topic_partition: int | None
    committed: int | None
    commit_leader_epoch: int | None
    commit_ms: int | None
    expire_ms: int | None
    metadata: str | None
    tombstone: bool
    key_raw: bytes | None  # None for offset commits; `events.py` decodes the key and value of other kinds
    value_raw: bytes | None
    segment: str
    file_pos: int  # of the batch


class Segment(NamedTuple):
    """Bronze: one segment file as one run read it."""

    cluster: str
    log: str
    partition: int
    path: str
    size: int
    base_offset: int
    first_offset: int | None
    last_offset: int | None
    first_ms: int | None
    last_ms: int | None
    batches: int  # read from this file; others were read from replicas
    records: int  # without those of open transactions, with those of earlier segments whose transaction was committed since
    missing_offsets: int  # removed by compaction
    codecs: str  # comma separated
    torn_bytes: int
    damaged_batches: int
    quarantined_bytes: int
    aborted: int  # records of aborted transactions, also in earlier segments
    diverged: int  # batches that differ from another replica's


class Coverage(NamedTuple):
    """Bronze: a range of one log that is complete, or has missing records."""

    cluster: str
    log: str
    partition: int
    from_offset: int
    to_offset: int  # the last offset
    from_ms: int | None
    to_ms: int | None
    complete: bool
    why: str  # "", compacted, torn, damaged, retention (before the first offset), missing-segment


class Commit(NamedTuple):
    """Silver: one committed offset, with the previous one of the same group and partition."""

    cluster: str
    group: str
    topic: str
    topic_partition: int
    offset: int
    commit_ms: int
    append_ms: int
    committed: int | None  # None: a tombstone
    prev_committed: int | None
    delta: int | None
    gap_ms: int | None  # since the previous commit
    rewind: bool
    tombstone: bool
    metadata: str | None
    txn: bool


class Generation(NamedTuple):
    """Silver: one group metadata record."""

    cluster: str
    group: str
    generation: int
    offset: int
    append_ms: int
    state_ms: int | None
    sync_ms: int | None
    protocol_type: str | None
    protocol: str | None
    leader: str | None
    members: int
    static_members: int
    rounds_aborted: int | None
    empty: bool
    tombstone: bool
    is_replacement: bool  # of the same generation: a static member got a new member id


class Member(NamedTuple):
    """Silver: one member in one group metadata record."""

    cluster: str
    group: str
    generation: int
    offset: int
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    topics: list[str]  # subscribed; empty if the protocol is not `consumer`
    assigned: list[str]  # topic-partition
    subscription_hash: int
    assignment_hash: int


class NoteRow(NamedTuple):
    """Silver: one note, its body as JSON."""

    cluster: str
    partition: int
    offset: int
    at_ms: int
    group: str
    kind: int
    name: str
    seq: int
    epoch: int
    generation: int
    state: int
    place: int  # the offset in __consumer_offsets
    dropped: int
    body: str


class NewerGroup(NamedTuple):
    """Silver: the records of one group in a newer protocol. They are counted; what they say about the group is not understood."""

    cluster: str
    group: str
    kind: str  # consumer (KIP-848), share, streams
    records: int
    last_offset: int
    first_ms: int
    last_ms: int


class EndOffset(NamedTuple):
    """Silver: the end offset of a partition at a moment."""

    cluster: str
    topic: str
    topic_partition: int
    at_ms: int
    end_offset: int
    log_start: int | None
    origin: str  # notes, live, segments, checkpoint
    unchanged_ms: int | None  # until then the end offset was that of the previous sample; None: unknown


class CommitsAround(NamedTuple):
    """Silver: the commits around one group metadata record: parallel lists, with an element for each partition."""

    cluster: str
    group: str
    offset: int  # of the group metadata record
    partitions: list[str]  # topic-partition; those with a commit of the group before the record or right after it
    last_before_ms: list[int]  # -1: none
    first_after_ms: list[int]  # -1: none yet
    usual_gap_ms: list[int]  # the median of the last ten gaps; -1: fewer than two commits


class Group(NamedTuple):
    """Gold: one group. Numbers that depend on records of a newer protocol (table `newer_groups`) are null."""

    cluster: str
    group: str
    protocol_type: str | None
    first_ms: int
    last_ms: int
    state: str  # stable, rebalancing, empty, deleted, unknown
    members: int | None
    static_members: int | None
    generation: int | None
    rebalances: int | None
    rebalances_per_day: float | None
    unstable_ms: int | None  # the duration of all rebalances; None: the start of one is known only as an interval
    partition_seconds_lost: float | None
    avoidable: int | None
    saved: int | None
    commits: int
    commits_per_s: float
    partitions: int
    lag: int | None
    time_lag_ms: int | None  # at the newest record of the analysis
    worst_status: str | None  # None: no partition has a committed offset
    coverage: float | None  # the complete share of its partition's log
    notes: str  # exact (all notes), partial, none
    flags: list[str]  # storm, mixed_membership, rebalances_missing, newer_protocol (it has records that are not understood)


class MemberSpell(NamedTuple):
    """Gold: one member id, from its join to its end."""

    cluster: str
    group: str
    member_key: str  # instance id, or member id
    instance_id: str | None
    member_id: str
    client_id: str
    host: str
    session_timeout_ms: int | None
    joined_lo_ms: int | None
    joined_hi_ms: int | None
    ended_lo_ms: int | None
    ended_hi_ms: int | None
    end_kind: str  # left, expired, evicted, replaced, fenced, removed, upgraded (its group changed to a newer protocol), coordinator_away, open, unknown
    from_generation: int | None
    to_generation: int | None
    partitions: int | None
    last_commit_ms: int | None
    last_heartbeat_ms: int | None  # only from notes
    replaced_by: str | None  # member id
    max_heartbeat_gap_ms: int | None
    confidence: str
    final: bool


class Replaced(NamedTuple):
    """Gold: a static member that returned under another member id."""

    cluster: str
    group: str
    instance_id: str
    old_member_id: str
    new_member_id: str
    at_ms: int
    generation: int
    caused_rebalance: bool
    gap_lo_ms: int | None
    gap_hi_ms: int | None
    session_timeout_ms: int | None
    partitions_held: int | None
    verdict: str  # saved, not_saved_expired, not_saved_protocol, not_saved_during_rebalance
    saved_rebalances: int  # rebalances that the instance id avoided: one or two
    saved_at_least: int  # a lower bound, if the length of the member's absence is unknown
    confidence: str


class Episode(NamedTuple):
    """Gold: one rebalance, from its start until the group has a new assignment or no members."""

    cluster: str
    group: str
    episode: int  # numbered in each group from 0
    start_lo_ms: int | None
    start_hi_ms: int | None
    join_done_ms: int | None
    end_ms: int | None
    end: str  # stable, empty, interrupted, unknown, open
    from_generation: int | None
    to_generation: int | None
    rounds: int | None
    rounds_aborted: int | None
    cause: str  # a name of coordinator.notes.Cause in lower case, or formation, restart, mixed, member_gone, leader_or_member_rejoin, unknown
    cause_detail: str | None
    contributing: list[str]
    trigger_member: str | None  # member key
    trigger_client: str | None  # client id @ host
    evidence: str  # one sentence
    confidence: str
    members_before: int | None
    members_after: int | None
    joined: list[str]  # member keys
    left: list[str]
    expired: list[str]
    rejoined: list[str]  # returned under another member id
    laggards: list[str]  # the members that the rebalance waited for
    laggard_ms: int | None
    protocol_change: bool
    subscription_change: bool
    moved_partitions: int | None
    join_ms: int | None
    sync_ms: int | None
    stalled_lo_ms: int | None  # the stalled time of its partitions, in total
    stalled_hi_ms: int | None
    partition_seconds_lost: float | None  # upper bound without notes
    cooperative: bool
    storm: int | None  # number of the first episode of its storm
    avoidable: str  # yes, no, unknown
    avoidable_by_ms: int | None  # the session timeout that would have bridged its restarts
    deploy: int | None
    missing: int  # 0, or the number of rebalances with too little information that this row represents (-1: unknown, perhaps none)
    final: bool


class GroupTables(NamedTuple):
    """The result of folding the events of one group."""

    generations: list[Generation]
    members: list[Member]
    newer: list[NewerGroup]
    notes: list[NoteRow]
    spells: list[MemberSpell]
    replacements: list[Replaced]
    episodes: list[Episode]


class Deploy(NamedTuple):
    """Gold: restarts of at least half of a group's members within a short time."""

    cluster: str
    group: str
    deploy: int
    start_ms: int
    end_ms: int
    members: int
    restarted: int
    mode: str  # static, dynamic, mixed
    rebalances: int
    with_static: int  # rebalances that would remain with static members
    partition_seconds_lost: float | None
    confidence: str


class Gap(NamedTuple):
    """Gold: one absence of a member."""

    cluster: str
    group: str
    member_key: str
    at_ms: int  # its start
    gap_lo_ms: int
    gap_hi_ms: int | None
    source: str  # static_replacement, dynamic_pair, heartbeat_gap, expired_returned, death
    returned: bool
    partitions: int | None
    episodes: list[int]  # rebalances that it caused
    confidence: str


class CurvePoint(NamedTuple):
    """Gold: the restarts bridged by a session timeout, and its cost."""

    cluster: str
    group: str
    timeout_ms: int
    bridged: int
    not_bridged: int
    unknown: int
    rebalances_avoided: int
    deaths: int
    added_detection_ms: int
    added_stalled_partition_ms: int


class Advice(NamedTuple):
    """Gold: the recommended session timeout of a group, in one sentence."""

    cluster: str
    group: str
    current_min_ms: int | None
    current_max_ms: int | None
    recommended_ms: int | None  # None: no recommendation, `text` has the reason
    quantile: float
    samples: int
    avoided: int  # rebalances, by replay through the coordinator
    of_rebalances: int
    cost_partition_ms: int
    deaths: int
    floor_ms: int | None
    static_share: float
    confidence: str
    setting: str  # the settings to change, ready to be copied
    text: str


class CommitMinute(NamedTuple):
    """Gold: commits of one partition in one minute."""

    cluster: str
    group: str
    topic: str
    topic_partition: int
    minute_ms: int
    commits: int
    advanced: int
    rewinds: int
    committed: int | None  # at the end of the minute


class LagMinute(NamedTuple):
    """Gold: the lag of a group in one minute and partition."""

    cluster: str
    group: str
    topic: str
    topic_partition: int
    minute_ms: int
    committed: int | None
    end_offset: int | None
    lag_min: int | None  # None: unknown end offset
    lag_max: int | None
    lag_last: int | None
    time_lag_ms: int | None
    time_lag_at_least: bool  # time_lag_ms is a lower bound: the next record is older than the samples
    growth_5m_per_s: float | None
    growth_60m_per_s: float | None
    drain_ms: int | None  # -1: never
    origin: str | None


class Status(NamedTuple):
    """Gold: an interval in which one partition had one status."""

    cluster: str
    group: str
    topic: str
    topic_partition: int
    ruleset: str  # burrow, tenure
    from_ms: int
    to_ms: int
    status: str  # OK, WARN, STOP, STALL, REWIND; with ruleset tenure also UNKNOWN, UNOWNED, LOST
    rule: str
    lag: int | None
    complete: float  # the filled share of the rule's window of commits
    owner: str | None  # member key
    final: bool


class Hygiene(NamedTuple):
    """Gold: a cleanup recommendation."""

    cluster: str
    group: str
    topic: str | None
    topic_partition: int | None
    kind: str  # dead_group, commits_without_members, unowned_partition, idle_member, host_shared_instance, duplicate_instance,
    # session_out_of_policy, data_lost, metadata_bloat, offsets_about_to_expire
    detail: str
    at_ms: int


class Table(NamedTuple):
    layer: str
    row: type[tuple[object, ...]]
    key: tuple[str, ...]  # the unique sort key
    parts: tuple[str, ...] = ()  # the columns that divide its files: see `tables.py`


BY_CHUNK: Final = ("cluster", "chunk")
BY_TIME: Final = (*BY_CHUNK, "settled")  # the newest rows of a chunk are written anew; settled rows stay


TABLES: Final[dict[str, Table]] = {
    "records": Table("bronze", Record, ("cluster", "log", "partition", "offset"), BY_CHUNK),
    "segments": Table("bronze", Segment, ("cluster", "log", "partition", "base_offset", "path")),
    "coverage": Table("bronze", Coverage, ("cluster", "log", "partition", "from_offset")),
    "commits": Table("silver", Commit, ("cluster", "group", "topic", "topic_partition", "offset"), BY_CHUNK),
    "generations": Table("silver", Generation, ("cluster", "group", "offset"), BY_CHUNK),
    "members": Table("silver", Member, ("cluster", "group", "offset", "member_id"), BY_CHUNK),
    "newer_groups": Table("silver", NewerGroup, ("cluster", "group", "kind"), BY_CHUNK),
    "notes": Table("silver", NoteRow, ("cluster", "partition", "offset"), BY_CHUNK),
    "end_offsets": Table("silver", EndOffset, ("cluster", "topic", "topic_partition", "at_ms", "origin")),
    "edges": Table("silver", CommitsAround, ("cluster", "group", "offset"), BY_CHUNK),
    "groups": Table("gold", Group, ("cluster", "group"), BY_CHUNK),
    "member_spells": Table("gold", MemberSpell, ("cluster", "group", "member_id", "joined_hi_ms"), BY_CHUNK),
    "replacements": Table("gold", Replaced, ("cluster", "group", "at_ms", "new_member_id"), BY_CHUNK),
    "rebalances": Table("gold", Episode, ("cluster", "group", "episode"), BY_CHUNK),
    "deploys": Table("gold", Deploy, ("cluster", "group", "deploy"), BY_CHUNK),
    "gap_samples": Table("gold", Gap, ("cluster", "group", "at_ms", "member_key", "source"), BY_CHUNK),
    "timeout_curve": Table("gold", CurvePoint, ("cluster", "group", "timeout_ms"), BY_CHUNK),
    "timeout_advice": Table("gold", Advice, ("cluster", "group"), BY_CHUNK),
    "commit_rate_1m": Table("gold", CommitMinute, ("cluster", "group", "topic", "topic_partition", "minute_ms"), BY_TIME),
    "lag_1m": Table("gold", LagMinute, ("cluster", "group", "topic", "topic_partition", "minute_ms"), BY_TIME),
    "status": Table("gold", Status, ("cluster", "group", "topic", "topic_partition", "ruleset", "from_ms"), BY_TIME),
    "hygiene": Table("gold", Hygiene, ("cluster", "group", "kind", "topic", "topic_partition", "detail"), BY_CHUNK),
}
