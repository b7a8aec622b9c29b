"""The log that `kafka_log.py` recorded from Apache Kafka, by group."""

from __future__ import annotations

from functools import cache

from history.newer import NewerRecord, newer_group, newer_kind, read_newer_record
from protocol.batch import iterate_headers, records
from tests.history.kafka_log import WRITTEN

LOG = WRITTEN / "__consumer_offsets-0" / f"{0:020}.log"


@cache
def written() -> dict[str, list[NewerRecord]]:
    data = LOG.read_bytes()
    groups: dict[str, list[NewerRecord]] = {}
    at = 0
    for header in iterate_headers(data, 0, len(data)):
        for record in records(data, at):
            kind = newer_kind(record.key or b"")
            if kind is not None and record.key is not None:
                read = read_newer_record(kind, record.offset, record.timestamp, header.leader_epoch, record.key, record.value)
                groups.setdefault(newer_group(record.key), []).append(read)
        at += header.size
    return groups
