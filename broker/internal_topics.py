"""Names of the internal logs, and which log decides the owner of another."""

from __future__ import annotations

from storage import LogId

CONSUMER_OFFSETS = "__consumer_offsets"
# The log of the topic registry; clients can neither list nor read it.
REGISTRY_LOG = "__tenure_topics"
REGISTRY_LOG_ID = LogId(REGISTRY_LOG, 0)
# Notes about groups, for people: clients can read this log by name like a topic, but it is not listed.
NOTES_LOG = "__coordinator_notes"
NOTES_SEGMENT_BYTES = 1 << 20
# A topic with one of these names would share the folder of an internal log.
RESERVED_NAMES = (REGISTRY_LOG, NOTES_LOG)


def owning_log(log: LogId) -> LogId:
    """The log whose owner also owns `log`: notes have the owner of their offsets partition."""
    return LogId(CONSUMER_OFFSETS, log.partition) if log.name == NOTES_LOG else log
