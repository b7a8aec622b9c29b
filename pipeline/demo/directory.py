"""Writes the events of a simulated cluster as a broker's data directory."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from history import NoteRecord
from protocol.batch import build_facts
from protocol.messages.coordinator_notes import NoteKey
from protocol.messages.topics_registry import TopicKey, TopicSetting, TopicValue
from protocol.records import in_newest_version, write_note
from storage import DataDirectory, Handles, Log, OsDisk
from storage.checkpoints import HIGH_WATERMARKS, write_offsets
from storage.directory import FORMAT_FILE

OFFSETS_LOG: Final = "__consumer_offsets"
NOTES_LOG: Final = "__coordinator_notes"
REGISTRY_LOG: Final = "__tenure_topics"
NODE_ID: Final = 1
NOTES_SEGMENT_BYTES: Final = 1 << 20
SEGMENT_BYTES: Final = 8 << 20  # the default, 100 MiB, would give a single segment


class Directory:
    """A Recorder. `ours`: write as Tenure, with notes and the topic registry; otherwise as Apache Kafka."""

    def __init__(self, path: str, partitions: int, start_ms: int, *, ours: bool = True, seed: int = 0, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.path = path
        self._ours = ours
        self._random = Random(f"ids {seed}")
        self._disk = OsDisk()
        self._handles = Handles(self._disk)
        self._data = DataDirectory.open(self._disk, path, NODE_ID, "", "the writer of a demo", self._new_id)
        self._data.remove_clean_marker()
        self._segment_bytes = segment_bytes
        self._logs: dict[tuple[str, int], Log] = {}
        self._ids: dict[str, str] = {}
        self._registered: list[tuple[bytes, bytes]] = []
        self._start_ms = start_ms
        self.add_topic(OFFSETS_LOG, partitions, {"cleanup.policy": "compact"})

    @property
    def cluster_id(self) -> str:
        return self._data.cluster_id

    # Events

    def append(self, partition: int, batch: bytearray, records: int, at_ms: int, epoch: int) -> int:
        log = self._log(OFFSETS_LOG, partition, self._segment_bytes)
        while log.epoch < epoch:
            log.claim()
        return log.append(batch, epoch)

    def write_notes(self, partition: int, notes: Sequence[NoteRecord], at_ms: int) -> None:
        if self._ours:
            facts = [(in_newest_version(NoteKey(note.group)), write_note(note.header, note.body)) for note in notes]
            log = self._log(NOTES_LOG, partition, NOTES_SEGMENT_BYTES)
            log.append(build_facts(facts, at_ms), log.epoch)

    # Topics

    def add_topic(self, name: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        id = self._new_id()
        self._ids[name] = id
        topic_settings = [TopicSetting(setting, value) for setting, value in (settings or {}).items()]
        value = TopicValue(base64.urlsafe_b64decode(id + "=="), partitions, self._start_ms, topic_settings)
        self._registered.append((in_newest_version(TopicKey(name)), in_newest_version(value)))

    def topic_log(self, name: str, partition: int, start_offset: int) -> Log:
        """Open the log of an ordinary topic for appending; it starts at `start_offset`."""
        return self._log(name, partition, self._segment_bytes, start_offset)

    def _log(self, name: str, partition: int, segment_bytes: int, start_offset: int = 0) -> Log:
        log = self._logs.get((name, partition))
        if log is None:
            folder = self._data.log_folder(name, partition)
            id = self._ids.get(name, "") if name != OFFSETS_LOG or not self._ours else ""
            log, _ = Log.open(self._handles, folder, segment_bytes, 0, True, id, deferred=True, start_offset=start_offset)
            self._logs[name, partition] = log
        return log

    # Shutdown

    def close(self, at_ms: int) -> None:
        """Close all logs, as an orderly shutdown at that time."""
        if self._ours:
            self._log(REGISTRY_LOG, 0, self._segment_bytes).append(build_facts(self._registered, self._start_ms), 0)
        ends = {place: log.next_offset for place, log in self._logs.items()}
        for log in self._logs.values():
            log.close()
        self._handles.close()
        self._data.checkpoint(ends)
        self._data.checkpoint_starts({place: log.start_offset for place, log in self._logs.items() if log.start_offset})
        if self._ours:
            self._data.note_use(at_ms)
        else:
            write_offsets(self._disk, f"{self.path}/{HIGH_WATERMARKS}", ends)
            self._disk.remove(f"{self.path}/{FORMAT_FILE}")
        self._data.mark_clean()
        self._data.close()

    def _new_id(self) -> str:
        while True:
            id = base64.urlsafe_b64encode(self._random.randbytes(16)).rstrip(b"=").decode()
            if not id.startswith("-"):
                return id


