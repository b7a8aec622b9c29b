"""The documentation of topic settings in DescribeConfigs; that of broker settings is in broker/settings/table.py."""

from __future__ import annotations

_NO_TIERS = "There is no tiered storage here: this is stored and shown, but has no effect."
_ONE_COPY = "There is one copy of the data here: this is stored and shown, but has no effect."
_SYSTEM_FLUSHES = "Topic data is flushed by the operating system here, at orderly stops and when a segment is closed: this is stored and shown, but has no effect."

NO_EFFECT = "Kafka's setting: it is accepted and has no effect here."

TOPIC_DOCS: dict[str, str] = {
    "cleanup.policy": "The treatment of old data: 'delete' drops whole segments by age and size, 'compact' keeps the newest record of each key. "
    "Both may be set.",
    "compression.gzip.level": "The level of gzip where compression.type is gzip: 1 to 9, or -1 for the library's own choice.",
    "compression.lz4.level": "The level of lz4 where compression.type is lz4.",
    "compression.type": "How batches are stored: 'producer' keeps their compression, 'uncompressed' removes it, a codec recompresses them.",
    "compression.zstd.level": "The level of zstd where compression.type is zstd.",
    "delete.retention.ms": "How long a tombstone is kept after the compaction that applied it, so that slow consumers see it.",
    "file.delete.delay.ms": "How long the files of dropped segments stay on the disk under another name.",
    "flush.messages": _SYSTEM_FLUSHES,
    "flush.ms": _SYSTEM_FLUSHES,
    "follower.replication.throttled.replicas": _ONE_COPY,
    "index.interval.bytes": "The bytes of log between two entries of its index. Stored and shown; the distance here is Kafka's default.",
    "leader.replication.throttled.replicas": _ONE_COPY,
    "local.retention.bytes": _NO_TIERS,
    "local.retention.ms": _NO_TIERS,
    "max.compaction.lag.ms": "A log whose records wait longer than this for compaction is compacted, whatever their number.",
    "max.message.bytes": "The largest batch that is accepted from a producer, as compressed.",
    "message.timestamp.after.max.ms": "How far a record's timestamp may be ahead of the broker's clock before the record is refused.",
    "message.timestamp.before.max.ms": "How far a record's timestamp may be behind the broker's clock before the record is refused.",
    "message.timestamp.type": "Whether records keep the time set by their producer or get the time of their append.",
    "min.cleanable.dirty.ratio": "The dirty ratio above which a log is compacted: bytes appended since the last compaction, divided by all its bytes.",
    "min.compaction.lag.ms": "Records younger than this are not removed by compaction.",
    "min.insync.replicas": _ONE_COPY,
    "preallocate": "Whether segment files are created at full size. Stored and shown; files grow as they are written here.",
    "remote.log.copy.disable": _NO_TIERS,
    "remote.log.delete.on.disable": _NO_TIERS,
    "remote.storage.enable": _NO_TIERS,
    "retention.bytes": "How large the log of one partition may become before its oldest segments are dropped, where cleanup.policy has delete. "
    "-1 is no limit.",
    "retention.ms": "How old the newest record of a segment may become before the segment is dropped, where cleanup.policy has delete. "
    "-1 is no limit.",
    "segment.bytes": "The size at which a segment is closed and the next one begun; whole segments are dropped and compacted.",
    "segment.index.bytes": "The largest index of a segment. Stored and shown; indexes grow with their segments here.",
    "segment.jitter.ms": "A random time up to this is subtracted from segment.ms for each segment, so that not all close at once.",
    "segment.ms": "The age at which a segment is closed even if it is not full.",
    "unclean.leader.election.enable": _ONE_COPY,
}

# Settings that DescribeConfigs shows for Kafka's newer group types and client metrics subscriptions, with Kafka's types and
# defaults. They have no effect here.
GROUP_SETTINGS: dict[str, tuple[str, str]] = {
    "consumer.assignment.interval.ms": ("int", "1000"),
    "consumer.heartbeat.interval.ms": ("int", "5000"),
    "consumer.session.timeout.ms": ("int", "45000"),
    "share.assignment.interval.ms": ("int", "1000"),
    "share.auto.offset.reset": ("string", "latest"),
    "share.delivery.count.limit": ("int", "5"),
    "share.heartbeat.interval.ms": ("int", "5000"),
    "share.isolation.level": ("string", "read_uncommitted"),
    "share.partition.max.record.locks": ("int", "2000"),
    "share.record.lock.duration.ms": ("int", "30000"),
    "share.renew.acknowledge.enable": ("boolean", "true"),
    "share.session.timeout.ms": ("int", "45000"),
    "streams.assignment.interval.ms": ("int", "1000"),
    "streams.heartbeat.interval.ms": ("int", "5000"),
    "streams.initial.rebalance.delay.ms": ("int", "3000"),
    "streams.num.standby.replicas": ("int", "0"),
    "streams.session.timeout.ms": ("int", "45000"),
}
METRICS_SETTINGS: dict[str, tuple[str, str]] = {
    "interval.ms": ("int", "300000"),
    "match": ("list", ""),
    "metrics": ("list", ""),
}
