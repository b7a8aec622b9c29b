"""The ledgers of the torture notice each broken promise, and allow what a request without a reply may do later."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from storage import OsDisk
from storage.owners import LOCKS_FILE
from tests.nodes.torture.accounts import NO_OFFSET, Account
from tests.nodes.torture.nodes import clocks_path
from tests.nodes.torture.owners import held_bytes
from tests.nodes.torture.topics import Incarnation, Topic
from tests.running import environment

FIRST, SECOND = bytes(15) + b"\1", bytes(15) + b"\2"


class Found:
    def __init__(self) -> None:
        self.kinds: list[str] = []

    def __call__(self, kind: str, text: str) -> None:
        self.kinds.append(kind)


@pytest.fixture
def found() -> Found:
    return Found()


@pytest.fixture
def topic(found: Found) -> Topic:
    topic = Topic("t", 2, found)
    topic.created(FIRST)
    return topic


def write(incarnation: Incarnation, offset: int = 0, count: int = 2) -> list[bytes]:
    values = incarnation.new_values(0, count)
    incarnation.acknowledge(0, offset, values, 1)
    return values


def replaced(incarnation: Incarnation) -> None:
    write(incarnation)
    incarnation.read(0, {0: incarnation.new_values(0, 1)[0]})


def acknowledged_over_another(incarnation: Incarnation) -> None:
    write(incarnation)
    write(incarnation, 1)


def read_twice(incarnation: Incarnation) -> None:
    (value,) = write(incarnation, count=1)
    incarnation.read(0, {1: value})


def changed(incarnation: Incarnation) -> None:
    first, second = incarnation.new_values(0, 2)
    incarnation.unanswered([first, second])
    incarnation.read(0, {0: first})
    incarnation.read(0, {0: second})


def foreign(incarnation: Incarnation) -> None:
    incarnation.read(0, {0: b"t/9/0/0"})


def start_went_back(incarnation: Incarnation) -> None:
    write(incarnation)
    incarnation.deletion_asked(0, 2)
    incarnation.deleted_before(0, 2)
    incarnation.bounds_seen(0, incarnation.promised(0), 1, 2, 1)


def deleted_too_much(incarnation: Incarnation) -> None:
    write(incarnation)
    incarnation.bounds_seen(0, incarnation.promised(0), 1, 2, 1)


def end_went_back(incarnation: Incarnation) -> None:
    write(incarnation)
    incarnation.bounds_seen(0, incarnation.promised(0), 0, 1, 1)


def lost(incarnation: Incarnation) -> None:
    first, _ = write(incarnation)
    incarnation.check_all(0, 0, 2, {0: first})


def lost_after_a_read(incarnation: Incarnation) -> None:
    values = incarnation.new_values(0, 1)
    incarnation.unanswered(values)
    incarnation.read(0, {0: values[0]})
    incarnation.check_all(0, 0, 0, {})


@pytest.mark.parametrize(
    ("happened", "kind"),
    [
        (replaced, "an acknowledged record was replaced"),
        (acknowledged_over_another, "two records acknowledged at one offset"),
        (read_twice, "a record is in the log twice"),
        (changed, "a record that was read has changed"),
        (foreign, "a record of another topic"),
        (start_went_back, "the start offset went back"),
        (deleted_too_much, "records were deleted that nobody asked for"),
        (end_went_back, "the end of the log went back"),
        (lost, "an acknowledged record is lost"),
        (lost_after_a_read, "a record that was read is lost"),
    ],
)
def test_each_broken_promise_about_records_is_reported(topic: Topic, found: Found, happened: Callable[[Incarnation], None], kind: str) -> None:
    happened(topic.current)
    assert found.kinds == [kind]


def test_a_sound_log_is_not_reported(topic: Topic, found: Found) -> None:
    incarnation = topic.current
    values = dict(enumerate(write(incarnation, count=3)))
    incarnation.read(0, values)
    incarnation.deletion_asked(0, 1)
    incarnation.deleted_before(0, 1)
    del values[0]
    incarnation.check_all(0, 1, 3, values)
    assert found.kinds == []


def test_a_record_without_a_reply_may_be_stored_for_the_next_topic_but_an_acknowledged_one_may_not(topic: Topic, found: Found) -> None:
    late = topic.current.new_values(0, 1)
    topic.current.unanswered(late)
    (acknowledged,) = write(topic.current, count=1)
    topic.created(SECOND)
    topic.current.read(0, {0: late[0]})
    assert found.kinds == []
    topic.current.read(0, {1: acknowledged})
    assert found.kinds == ["a record of another topic"]


def test_a_topic_is_used_by_nobody_while_it_is_recreated(topic: Topic) -> None:
    with topic.shared() as current:
        assert current is topic.current
    with topic.alone(), topic.shared() as current:
        assert current is None


@pytest.fixture
def account(found: Found, topic: Topic) -> Account:
    account = Account("g", "t", 0, found)
    account.acknowledged(account.begin(topic.current))
    return account


@pytest.mark.parametrize("fetched", [NO_OFFSET, 1_000_002])
def test_a_lost_commit_is_reported(topic: Topic, account: Account, found: Found, fetched: int) -> None:
    account.fetched(topic.current, 1_000_001, 1)
    assert found.kinds == []
    account.fetched(topic.current, fetched, 1)
    assert found.kinds == ["an acknowledged commit is lost"]


def test_an_offset_of_the_deleted_topic_is_reported_unless_its_commit_was_not_answered(topic: Topic, account: Account, found: Found) -> None:
    account.unanswered(account.begin(topic.current))
    topic.created(SECOND)
    account.fetched(topic.current, NO_OFFSET, 1)
    account.fetched(topic.current, 1_000_002, 1)
    assert found.kinds == []
    account.fetched(topic.current, 1_000_001, 1)
    assert found.kinds == ["an offset of the deleted topic"]


def test_the_locks_of_a_process_are_found(tmp_path: Path) -> None:
    locks = OsDisk().byte_locks(f"{tmp_path}/{LOCKS_FILE}")
    try:
        assert held_bytes(os.getpid(), tmp_path) == set()
        numbers = {3, 5, (1 << 61) + 1}
        assert all(locks.lock(number) for number in numbers)
        assert held_bytes(os.getpid(), tmp_path) == numbers
        locks.drop(5)
        assert held_bytes(os.getpid(), tmp_path) == numbers - {5}
    finally:
        locks.close()


def wall_clocks(node: int, skews_ms: dict[int, int]) -> list[int]:
    """The seconds that a process of this node reads from both functions."""
    command = [sys.executable, "-P", "-c", "import time; print(time.time_ns() // 10**9, int(time.time()))", "--set", f"node.id={node}"]
    done = subprocess.run(command, env=environment(**clocks_path(skews_ms)), capture_output=True, text=True, check=True, timeout=20)
    return [int(seconds) for seconds in done.stdout.split()]


def test_a_node_gets_its_own_wall_clock() -> None:
    skews = {1: 0, 2: -3_600_000}
    now = time.time()
    assert all(abs(seconds - now) < 60 for seconds in (*wall_clocks(1, skews), *wall_clocks(3, skews)))
    assert all(abs(seconds + 3_600 - now) < 60 for seconds in wall_clocks(2, skews))
