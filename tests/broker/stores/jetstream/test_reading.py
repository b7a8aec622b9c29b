"""A reader of a stream's entries ends, with a reason, whatever happens: nothing else would continue or end what waits for it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.stores.jetstream.engine import NO_ANSWER, Engine, EngineError, StoredMessage, StreamState
from broker.stores.jetstream.entry import DATA, HEADER, Entry
from broker.stores.jetstream.reading import EntryReader
from storage import DamagedLog
from tests.broker.stores.jetstream.fake_engine import STREAM
from tests.support.stepped_loop import SteppedLoop

Ended = Callable[[EngineError | None], None]


def message(seq: int) -> StoredMessage:
    return StoredMessage(seq, STREAM.subject, b"", {HEADER: Entry(DATA, 1, 1, "mine", seq, seq, 1, 0).text()})


class Reads:
    """An engine whose reads return the messages of `windows`, one window each; after the last one a read raises."""

    def __init__(self, *windows: list[int], state: StreamState | EngineError = NO_ANSWER) -> None:
        self.connection = SimpleNamespace(loop=SteppedLoop())
        self._windows = list(windows)
        self._state = state

    def read(self, name: str, seq: int, on_message: Callable[[StoredMessage], None], ended: Ended, **limits: Any) -> None:
        window = self._windows.pop(0)

        def answer() -> None:
            for seq in window:
                on_message(message(seq))
            ended(None)

        self.connection.loop.call_soon(answer)

    def info(self, name: str, done: Callable[[StreamState | EngineError], None]) -> None:
        done(self._state)


def read(engine: Reads) -> EntryReader:
    changes: list[bool] = []
    reader = EntryReader(cast(Engine, engine), STREAM, 1, 9, lambda: changes.append(True))
    engine.connection.loop.run()
    engine.connection.loop.jump(1.0)
    engine.connection.loop.run()
    assert changes
    assert reader.ended
    return reader


@pytest.mark.usefixtures("planted_defect")
@pytest.mark.parametrize("windows", [[[1]], [[1], []]], ids=["after entries", "after a pause"])
def test_a_defect_ends_a_read(windows: list[list[int]]) -> None:
    reader = read(Reads(*windows))
    assert [entry.seq for entry in reader.ready] == [1]
    assert isinstance(reader.problem, OSError)


@pytest.mark.parametrize(
    ("state", "damage"),
    [(StreamState(9, 1, 9, 0, "", 0.0), True), (StreamState(5, 5, 9, 0, "", 0.0), False), (NO_ANSWER, False)],
    ids=["a hole", "an earlier owner has deleted them", "no answer"],
)
def test_missing_entries_are_damage_only_if_the_stream_begins_before_them(state: StreamState | EngineError, damage: bool) -> None:
    reader = read(Reads([1, 2, 5, 6], state=state))
    assert [entry.seq for entry in reader.ready] == [1, 2]
    assert isinstance(reader.problem, DamagedLog) == damage
    assert ("entries 3 to 4 are missing" in str(reader.problem)) == damage
