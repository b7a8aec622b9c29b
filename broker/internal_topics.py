"""Names of the logs that are the broker's own, and what all parts of it know about them."""

from __future__ import annotations

CONSUMER_OFFSETS = "__consumer_offsets"
# Where the registry of topics lives; not a topic that a client may list or read.
REGISTRY_LOG = "__tenure_topics"
# What happened to groups, for people: a client that names it reads it like a topic; no list shows it.
NOTES_LOG = "__coordinator_notes"
NOTES_SEGMENT_BYTES = 1 << 20
# Folders of these names are logs of ours: a topic of such a name would share one with them.
RESERVED_NAMES = (REGISTRY_LOG, NOTES_LOG)
