"""Changes of topics, sent from the controller to all nodes, and the replies that wait for them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.cluster.propagation import LATE_SECONDS, Propagation, RegistryJournal, _PropagatedReply
from protocol.messages.node_requests import NodeRequest, NodeResponse
from tests.support.journals import LATE_MS, JournalHarness
from tests.support.stepped_loop import SteppedLoop

ME, SECOND, THIRD = 1, 2, 3


class PropagationHarness:
    """The propagation of topic changes on the controller, and the requests that it has sent."""

    def __init__(self) -> None:
        self.loop = SteppedLoop()
        self.nodes = [ME, SECOND, THIRD]
        self.requests: list[tuple[int, Callable[[NodeResponse | None], None]]] = []
        self.opening: list[Callable[[], None]] = []
        self.done: list[str] = []
        self.last_deletion = 0  # that each node must confirm
        self.awaiting_view: list[Callable[[], None]] | None = None
        self.propagation = Propagation(
            ME,
            self.loop,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            lambda: self.nodes,
            lambda: NodeRequest(4, ME),
            self.when_opened,
            lambda: self.last_deletion,
            self.when_current,
        )
        self.opens = True

    def forward(self, node: int, request: NodeRequest, done: Callable[[NodeResponse | None], None]) -> None:
        self.requests.append((node, done))

    def when_current(self, done: Callable[[], None]) -> None:
        if self.awaiting_view is None:
            done()
        else:
            self.awaiting_view.append(done)

    def when_opened(self, done: Callable[[], None]) -> None:
        if self.opens:
            done()
        else:
            self.opening.append(done)

    def change(self, name: str) -> None:
        self.propagation.when_propagated(lambda: self.done.append(name), self.last_deletion)
        self.loop.run()

    def answer(self, node: int, reply: NodeResponse | None = NodeResponse()) -> None:  # noqa: B008
        at = next(index for index, (asked_node, _) in enumerate(self.requests) if asked_node == node)
        self.requests.pop(at)[1](reply)


@pytest.fixture
def play() -> PropagationHarness:
    return PropagationHarness()


@pytest.fixture
def journal(play: PropagationHarness) -> RegistryJournal:
    journals = JournalHarness()
    journal = RegistryJournal("registry-0", journals.shard, journals.log, journals.turn, LATE_MS)
    journal.propagation = play.propagation
    return journal


def test_a_reply_waits_for_every_node(play: PropagationHarness) -> None:
    play.change("one")
    play.answer(SECOND)
    assert not play.done
    play.answer(THIRD)
    assert play.done == ["one"]


def test_a_reply_waits_for_the_controllers_own_logs(play: PropagationHarness) -> None:
    play.opens = False
    play.change("one")
    play.answer(SECOND)
    play.answer(THIRD)
    assert not play.done
    play.opening.pop()()
    assert play.done == ["one"]


def test_a_node_behind_the_change_is_asked_again(play: PropagationHarness) -> None:
    play.change("one")
    play.change("two")
    assert [node for node, _ in play.requests] == [SECOND, THIRD]
    play.answer(SECOND)
    play.answer(THIRD)
    assert play.done == ["one"]
    play.answer(SECOND)
    play.answer(THIRD)
    assert play.done == ["one", "two"]
    assert not play.requests


def test_a_frozen_node_delays_one_change_for_a_second_and_no_later_change(play: PropagationHarness) -> None:
    play.change("one")
    play.answer(SECOND)
    play.loop.pass_ms(LATE_SECONDS * 1000)
    assert play.done == ["one"]
    play.change("two")
    play.answer(SECOND)
    assert play.done == ["one", "two"]


def test_a_late_node_is_waited_for_again_when_it_has_answered(play: PropagationHarness) -> None:
    play.change("one")
    play.answer(SECOND)
    play.loop.pass_ms(LATE_SECONDS * 1000)
    play.answer(THIRD)
    play.change("two")
    play.answer(SECOND)
    assert play.done == ["one"]
    play.answer(THIRD)
    assert play.done == ["one", "two"]


def test_a_node_that_cannot_be_reached_is_not_waited_for(play: PropagationHarness) -> None:
    play.change("one")
    play.answer(SECOND)
    play.answer(THIRD, None)
    assert play.done == ["one"]


def test_a_dead_node_is_not_waited_for(play: PropagationHarness) -> None:
    play.change("one")
    play.nodes = [ME, SECOND]
    play.answer(SECOND)
    assert play.done == ["one"]


def test_no_reply_waits_on_a_node_that_is_not_the_controller(play: PropagationHarness) -> None:
    play.change("one")
    play.nodes = []
    play.change("two")
    assert play.done == ["one", "two"]


def pass_seconds(play: PropagationHarness, seconds: float) -> None:
    play.loop.pass_ms(seconds * 1000)


def test_a_frozen_node_must_confirm_a_deletion(play: PropagationHarness) -> None:
    play.last_deletion = 1
    play.change("deleted")
    play.answer(SECOND)
    pass_seconds(play, 5 * LATE_SECONDS)
    play.change("created")
    play.answer(SECOND)
    pass_seconds(play, 5 * LATE_SECONDS)
    assert not play.done
    play.answer(THIRD)
    assert play.done == ["deleted"]
    play.answer(THIRD)
    assert play.done == ["deleted", "created"]


def test_a_node_that_has_confirmed_the_last_deletion_may_be_late_with_later_changes(play: PropagationHarness) -> None:
    play.last_deletion = 1
    play.change("deleted")
    play.answer(SECOND)
    play.answer(THIRD)
    play.change("created")
    play.answer(SECOND)
    pass_seconds(play, LATE_SECONDS)
    assert play.done == ["deleted", "created"]


def test_a_deletion_waits_for_a_frozen_node_until_its_lease_ends(play: PropagationHarness) -> None:
    play.last_deletion = 1
    play.change("deleted")
    play.answer(SECOND)
    pass_seconds(play, 5 * LATE_SECONDS)
    assert not play.done
    play.nodes = [ME, SECOND]
    pass_seconds(play, LATE_SECONDS)
    assert play.done == ["deleted"]


def test_a_node_that_could_not_be_reached_is_told_of_the_deletion_again(play: PropagationHarness) -> None:
    play.last_deletion = 1
    play.change("deleted")
    play.answer(SECOND)
    play.answer(THIRD, None)
    assert not play.done
    pass_seconds(play, LATE_SECONDS)
    play.answer(THIRD)
    assert play.done == ["deleted"]


def test_the_controllers_own_logs_delay_a_deletion_for_a_second(play: PropagationHarness) -> None:
    play.last_deletion = 1
    play.opens = False
    play.change("deleted")
    play.answer(SECOND)
    play.answer(THIRD)
    assert not play.done
    pass_seconds(play, LATE_SECONDS)
    assert play.done == ["deleted"]


def test_a_new_controller_does_not_know_who_has_confirmed_earlier_deletions(play: PropagationHarness) -> None:
    play.change("before")
    play.answer(SECOND)
    play.answer(THIRD)
    play.last_deletion = 7  # by another controller
    play.change("created")
    play.answer(SECOND)
    pass_seconds(play, 5 * LATE_SECONDS)
    assert play.done == ["before"]
    play.answer(THIRD)
    assert play.done == ["before", "created"]


def test_a_node_that_has_just_got_its_lease_again_must_confirm_too(play: PropagationHarness) -> None:
    play.nodes = [ME, SECOND]
    play.last_deletion = 1
    play.awaiting_view = []
    play.change("deleted")
    play.nodes = [ME, SECOND, THIRD]
    for done in play.awaiting_view:
        done()
    play.loop.run()
    play.answer(SECOND)
    pass_seconds(play, 5 * LATE_SECONDS)
    assert not play.done
    play.answer(THIRD)
    assert play.done == ["deleted"]


def test_a_deletion_that_is_stored_later_is_confirmed_later(play: PropagationHarness) -> None:
    play.last_deletion = 1
    reply = _PropagatedReply(Held(fails=False), play.propagation)
    play.last_deletion = 2  # emitted, when the first one is being stored
    reply.release()
    play.loop.run()
    play.answer(SECOND)
    play.answer(THIRD)
    assert play.propagation.is_confirmed(1)
    assert not play.propagation.is_confirmed(2)
    play.change("deleted")
    play.answer(SECOND)
    pass_seconds(play, 5 * LATE_SECONDS)
    assert not play.done
    assert not play.propagation.is_confirmed(2)
    play.answer(THIRD)
    assert play.done == ["deleted"]
    assert play.propagation.is_confirmed(2)


def test_a_topic_is_created_when_each_live_node_knows_the_deletions(play: PropagationHarness, journal: RegistryJournal) -> None:
    first, second = Held(fails=False), Held(fails=False)
    assert not journal.await_deletions(first)
    play.last_deletion = 1  # by an earlier controller
    assert journal.await_deletions(first)
    play.loop.run()
    play.answer(SECOND)
    pass_seconds(play, 5 * LATE_SECONDS)
    assert journal.await_deletions(second)
    play.loop.run()
    assert (first.calls, second.calls) == ([], [])
    play.answer(THIRD)
    assert first.calls == ["released"]
    assert not journal.await_deletions(first)
    play.last_deletion = 2
    play.nodes = [ME]
    third = Held(fails=False)
    assert journal.await_deletions(third)
    play.loop.run()
    assert third.calls == ["released"]


def test_a_late_node_delays_a_change_for_a_second_and_the_next_one_has_its_own_second(play: PropagationHarness) -> None:
    play.change("one")
    play.answer(SECOND)
    play.loop.pass_ms(500)
    play.answer(THIRD)
    play.change("two")
    play.answer(SECOND)
    assert play.done == ["one"]
    play.loop.pass_ms(500)  # the second of the first change has passed
    assert play.done == ["one"]
    assert play.loop.delays() == [0.5]
    play.loop.pass_ms(499)
    assert play.done == ["one"]
    play.loop.pass_ms(1)
    assert play.done == ["one", "two"]
    assert play.loop.delays() == []


class Held:
    """A reply that the registry holds."""

    def __init__(self, fails: bool) -> None:
        self.connection = self
        self.defects = 0
        self.calls: list[object] = []
        self.fails = fails

    def release(self) -> None:
        self.fail("released")

    def fail(self, error: object) -> None:
        self.calls.append(error)
        if self.fails:
            raise ValueError("a defect")

    def handle_defect(self) -> None:
        self.defects += 1


@pytest.mark.parametrize("stored", [True, False])
def test_a_held_reply_that_raises_closes_its_connection(play: PropagationHarness, stored: bool, planted_defect: None) -> None:
    play.nodes = [ME]
    held = Held(fails=True)
    reply = _PropagatedReply(held, play.propagation)
    if stored:
        reply.release()
        play.loop.run()
    else:
        reply.fail(56)
    assert (held.calls, held.defects) == (["released" if stored else 56], 1)


@pytest.mark.parametrize("stored", [True, False])
def test_a_held_reply_is_sent_when_all_nodes_have_its_change_or_at_once_if_it_failed(play: PropagationHarness, stored: bool) -> None:
    held = Held(fails=False)
    reply = _PropagatedReply(held, play.propagation)
    if stored:
        reply.release()
        play.loop.run()
        assert held.calls == []
        play.answer(SECOND)
        play.answer(THIRD)
    else:
        reply.fail(56)
    assert (held.calls, held.defects) == (["released" if stored else 56], 0)
