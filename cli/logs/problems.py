"""The problems that `tenure log verify` reports, each with a remedy. docs/logs.md explains them."""

from __future__ import annotations

from typing import NamedTuple

RESTORE_OR_MOVE = "restore the file from a backup, or move it and all later segments of its folder away to continue with the records before it"
HARMLESS = "nothing is lost; no action is needed"

REMEDIES = {
    # The directory
    "meta-damaged": "restore the file from a backup; a broker does not start with it",
    "meta-missing": "no action is needed for a new broker, which gives the directory new ids; else restore the file",
    "format-newer": "use the version that wrote the directory; nothing else in it was checked",
    "checkpoint-damaged": "stop the broker and remove the file: it only speeds up the start, and is written again",
    "owners-damaged": "start the nodes on a copy of the directory and look at their log lines, or restore the directory from a backup",
    "checkpoint-ahead": "the end of the log is lost: restore the log's folder from a backup, or continue with the remaining records",
    "log-missing": "if its topic was not deleted, restore the folder from a backup",
    "folder-unknown": "if its topic was deleted, the folder can be moved away; a broker ignores it",
    "topic-id-wrong": "a broker sets the folder aside, under a name that ends in -stray, and begins an empty log: if the folder is the topic's, "
    "remove the file, which the next start writes again",
    "topic-id-damaged": HARMLESS + ": the next start writes the file again",
    "leftover": HARMLESS + ": the next start removes it, or finishes the interrupted work",
    "turns-damaged": "keep the file: the next start completes the logs from its sound part, and does not serve those that may lack records; "
    "when all are served, stop the broker and move the file away",
    "turns-newer": "use the version that wrote the file: no older one starts on this directory",
    "turns-needed": "restore the data directory from a backup, or move the file away to continue with the log's records",
    # A segment
    "torn-end": "the next start of the broker truncates it; keep a copy of the file to examine it",
    "being-written": "a broker is writing to it; to be sure, verify again after it has stopped",
    "damaged": RESTORE_OR_MOVE,
    "damaged-end": "a broker does not open a log of groups or the registry, and truncates a topic's log here, with a copy in set-aside: "
    "restore the file from a backup, or truncate it here to continue with the records before it",
    "read-failed": "check the disk and the permissions; " + RESTORE_OR_MOVE,
    "unknown-name": "a broker ignores the file; move it away",
    "segment-overlap": "after a kill in the middle of a repair the next start of the broker resolves it in favour of the later segment; else restore the folder from a backup",
    "offsets-missing": "restore the missing segment or batches from a backup; a broker serves the log without them",
    "offsets-skipped": HARMLESS + " if the topic is compacted; else records are lost: restore a backup",
    # Other files of a segment
    "index-wrong": "stop the broker and remove the file: it is rebuilt",
    "index-missing": HARMLESS + ": it is rebuilt when the log is opened",
    "epochs-damaged": "stop the broker and remove the file: it is rebuilt from the batches, as far as possible",
    "epochs-wrong": "stop the broker and remove the file: it is rebuilt from the batches, as far as possible",
    "epochs-behind": HARMLESS + ": the batches take precedence when the log is opened",
    "epoch-order": "two brokers wrote this log, or it contains a segment of another log: compare with a backup",
    # A record
    "batch-unreadable": "its checksum is right, so it was written wrong: " + RESTORE_OR_MOVE,
    "record-unreadable": "its checksum is right, so it was written wrong; examine it with tenure log dump; " + RESTORE_OR_MOVE,
    "record-newer": "a newer version of Tenure or Kafka wrote it: use that version",
    "record-unknown": HARMLESS + ": a broker skips records of this kind",
    "wrong-partition": "a broker does not read the group from this partition: if the folder was renamed or copied from another partition, move it back; "
    "if the number of partitions was changed, restore it",
    "instance-twice": "a broker cannot load this partition: restore the folder from a backup, or move this and all later segments away",
}
WARNINGS = frozenset(
    (
        "meta-missing",
        "log-missing",
        "folder-unknown",
        "topic-id-damaged",
        "leftover",
        "being-written",
        "unknown-name",
        "offsets-skipped",
        "index-missing",
        "epochs-behind",
        "record-unknown",
    )
)
SHOWN_MAX = 10  # for each kind and file; the others are only counted


class Problem(NamedTuple):
    kind: str
    file: str
    position: int | None  # in bytes
    text: str

    @property
    def is_warning(self) -> bool:
        return self.kind in WARNINGS


class Problems:
    """The problems of one log or directory, in the order found, with a limit for each kind and file."""

    def __init__(self) -> None:
        self.shown: list[Problem] = []
        self.counts: dict[tuple[str, str], int] = {}

    def add(self, kind: str, file: str, position: int | None, text: str) -> None:
        count = self.counts[kind, file] = self.counts.get((kind, file), 0) + 1
        if count <= SHOWN_MAX:
            self.shown.append(Problem(kind, file, position, text))

    def over_limit(self) -> list[tuple[str, str, int]]:
        """The problems that are not shown, since there are too many of their kind in one file: kind, file and number."""
        return [(kind, file, count - SHOWN_MAX) for (kind, file), count in self.counts.items() if count > SHOWN_MAX]

    def has(self, warning: bool) -> bool:
        return any((kind in WARNINGS) == warning for kind, _ in self.counts)

    def number(self, warnings: bool) -> int:
        return sum(count for (kind, _), count in self.counts.items() if (kind in WARNINGS) == warnings)
