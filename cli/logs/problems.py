"""The problems that `tenure log verify` can find, each with a remedy. docs/logs.md explains them."""

from __future__ import annotations

from typing import NamedTuple

AWAY = "restore the file from a backup, or move it and all later segments of its folder away to go on with what is before it"
HARMLESS = "nothing is lost and nothing has to be done"

GO_ON = {
    # The directory
    "meta-damaged": "restore the file from a backup; a broker does not start on it",
    "meta-missing": "nothing has to be done if this is meant to be a new broker: it gives the directory new ids; else restore the file",
    "format-newer": "use the version that wrote the directory; nothing else in it was looked at",
    "checkpoint-damaged": "stop the broker and remove the file: it saves work at the start, and is written again",
    "checkpoint-ahead": "the end of the log is lost: restore the log's folder from a backup, or go on with what is there",
    "log-missing": "if its topic was not deleted, restore the folder from a backup",
    "folder-unknown": "if its topic was deleted, the folder can be moved away; a broker does not look at it",
    "topic-id-wrong": "a broker sets the folder aside, under a name that ends in -stray, and begins an empty log: if the folder is the topic's, "
    "remove the file, and the next start writes it anew",
    "topic-id-damaged": HARMLESS + ": the next start writes the file anew",
    "leftover": HARMLESS + ": the next start removes it, or finishes what it was made for",
    "turns-damaged": "keep the file: the next start completes the logs with what is sound in it, and refuses those that may lack something; "
    "when all are served, stop the broker and move the file away",
    "turns-newer": "use the version that wrote the file: no older one starts on this directory",
    "turns-needed": "restore the data directory from a backup, or move the file away to go on with what the log has",
    # A segment
    "torn-end": "the next start of the broker cuts it off; keep a copy of the file if you want to look into it",
    "being-written": "a broker is at work on it; verify again when it has stopped to be sure",
    "damaged": AWAY,
    "damaged-end": "a broker does not open a log of groups or the registry, and cuts a topic's log off here, with a copy in set-aside: "
    "restore the file from a backup, or cut it off here to go on with what is before it",
    "read-failed": "look at the disk and at the permissions; " + AWAY,
    "unknown-name": "a broker ignores the file; move it away",
    "segment-overlap": "after a kill in the middle of a repair the next start of the broker settles it, the later segment counts; else restore the folder from a backup",
    "offsets-missing": "restore the missing segment or batches from a backup; a broker serves the log without them",
    "offsets-skipped": HARMLESS + " if the topic is compacted; else records are lost and a backup has them",
    # Files beside the segment
    "index-wrong": "stop the broker and remove the file: it is built again",
    "index-missing": HARMLESS + ": it is built again when the log is opened",
    "epochs-damaged": "stop the broker and remove the file: it is built again from the batches as far as they know",
    "epochs-wrong": "stop the broker and remove the file: it is built again from the batches as far as they know",
    "epochs-behind": HARMLESS + ": an opening believes the batches",
    "epoch-order": "two brokers wrote this log, or a segment of another log is among its own: compare with a backup",
    # A record
    "batch-unreadable": "its bytes are as they were written, so it was written wrong: " + AWAY,
    "record-unreadable": "its bytes are as they were written, so it was written wrong; look at it with tenure log dump; " + AWAY,
    "record-newer": "a newer version of Tenure or Kafka wrote it: use that version",
    "record-unknown": HARMLESS + ": a broker skips records of this kind",
    "wrong-partition": "a broker does not look for the group here: if the folder was renamed or copied from another partition, put it back; "
    "if the number of partitions was changed, change it back",
    "instance-twice": "a broker cannot load this partition: restore the folder from a backup, or move this segment and all later ones away",
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
SHOWN_MAX = 10  # of one kind in one file; the others are counted


class Problem(NamedTuple):
    kind: str
    file: str
    position: int | None  # in bytes
    what: str

    @property
    def is_warning(self) -> bool:
        return self.kind in WARNINGS


class Problems:
    """The problems of one log or directory, in the order found, with a limit for each kind and file."""

    def __init__(self) -> None:
        self.kept: list[Problem] = []
        self.counts: dict[tuple[str, str], int] = {}

    def add(self, kind: str, file: str, position: int | None, what: str) -> None:
        count = self.counts[kind, file] = self.counts.get((kind, file), 0) + 1
        if count <= SHOWN_MAX:
            self.kept.append(Problem(kind, file, position, what))

    def beyond(self) -> list[tuple[str, str, int]]:
        """Kind, file and number of the problems over the limit."""
        return [(kind, file, count - SHOWN_MAX) for (kind, file), count in self.counts.items() if count > SHOWN_MAX]

    def has(self, warning: bool) -> bool:
        return any((kind in WARNINGS) == warning for kind, _ in self.counts)

    def number(self, warnings: bool) -> int:
        return sum(count for (kind, _), count in self.counts.items() if (kind in WARNINGS) == warnings)
