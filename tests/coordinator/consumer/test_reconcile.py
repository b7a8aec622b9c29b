"""One step of a member towards its target, for each state and each answer to what it was told."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.consumer.calls import Partitions
from coordinator.consumer.member import STABLE, UNKNOWN, UNRELEASED, UNREVOKED, Held, Holding, MemberState
from coordinator.consumer.reconcile import Reconciliation, reconcile

T, U = b"t" * 16, b"u" * 16


def held(*partitions: int, topic: bytes = T, epoch: int = 5) -> Held:
    return {topic: dict.fromkeys(partitions, epoch)} if partitions else {}


def towards(
    epoch: int,
    *target: int,
    owned: Partitions | None = None,
    changed: bool = False,
    others: tuple[int, ...] = (),
    reads: tuple[bytes, ...] = (T,),
) -> Reconciliation:
    return Reconciliation(epoch, {T: target} if target else {}, frozenset(reads), owned, changed, lambda topic_id, partition: partition in others)


def holding(epoch: int, state: MemberState, assigned: Held, pending: Held | None = None) -> Holding:
    return Holding(epoch, epoch - 1, state, assigned, pending or {})


OWNS_NOTHING: Any = {}
ROWS: dict[str, tuple[Holding, Reconciliation, tuple[Any, ...]]] = {
    # From, towards, and the state, epoch, assigned and pending partitions after it.
    "nothing to do": (holding(5, STABLE, held(0)), towards(5, 0), (STABLE, 5, held(0), {})),
    "given": (holding(5, STABLE, held(0)), towards(6, 0, 1), (STABLE, 6, {T: {0: 5, 1: 6}}, {})),
    "given in part": (holding(5, STABLE, {}), towards(6, 0, 1, others=(1,)), (UNRELEASED, 6, held(0, epoch=6), {})),
    "waits": (holding(5, STABLE, {}), towards(6, 0, others=(0,)), (UNRELEASED, 6, {}, {})),
    "told to give up, and may own all": (holding(5, STABLE, held(0, 1)), towards(6, 0), (UNREVOKED, 5, held(0), held(1))),
    "told to give up, and owns it": (holding(5, STABLE, held(0, 1)), towards(6, 0, owned={T: [1]}), (UNREVOKED, 5, held(0), held(1))),
    "gave up before it was told": (holding(5, STABLE, held(0, 1)), towards(6, 0, owned={T: [0]}), (STABLE, 6, held(0), {})),
    "still owns it": (holding(5, UNREVOKED, held(0), held(1)), towards(6, 0, owned={T: [0, 1]}), (UNREVOKED, 5, held(0), held(1))),
    "says nothing of it": (holding(5, UNREVOKED, held(0), held(1)), towards(6, 0), (UNREVOKED, 5, held(0), held(1))),
    "acknowledges": (holding(5, UNREVOKED, held(0), held(1)), towards(6, 0, owned={T: [0]}), (STABLE, 6, held(0), {})),
    "gets it back": (
        holding(5, UNREVOKED, held(0), held(1)),
        towards(7, 0, 1, owned={T: [0]}, others=(1,)),
        (STABLE, 7, {T: {0: 5, 1: 7}}, {}),
    ),
    "must give up more": (holding(5, UNREVOKED, held(0), held(1)), towards(7, owned={T: [0]}), (UNREVOKED, 5, {}, held(0))),
    "waited for is free": (holding(6, UNRELEASED, held(0)), towards(6, 0, 1), (STABLE, 6, {T: {0: 5, 1: 6}}, {})),
    "waits on": (holding(6, UNRELEASED, held(0)), towards(6, 0, 1, others=(1,)), (UNRELEASED, 6, held(0), {})),
    "reads less": (holding(5, STABLE, held(0)), towards(5, changed=True, reads=()), (UNREVOKED, 5, {}, held(0))),
    "reads less and gave it up": (holding(5, STABLE, held(0)), towards(5, changed=True, reads=(), owned=OWNS_NOTHING), (STABLE, 5, {}, {})),
    "reads other topics besides": (holding(5, STABLE, held(0)), towards(5, 0, changed=True), (STABLE, 5, held(0), {})),
    "reads less while it gives up": (
        holding(5, UNREVOKED, held(0), held(0, topic=U)),
        towards(6, changed=True, reads=()),
        (UNREVOKED, 5, {}, held(0, topic=U) | held(0)),
    ),
    "of a newer coordinator": (holding(5, UNKNOWN, held(0)), towards(6, 0, owned=OWNS_NOTHING), (STABLE, 6, held(0), {})),
}


@pytest.mark.parametrize("row", ROWS)
def test_a_member_moves_towards_its_target(row: str) -> None:
    before, to, after = ROWS[row]
    moved = reconcile(before, to)
    assert moved is not None
    assert (moved.state, moved.epoch, moved.assigned, moved.pending) == after


@pytest.mark.parametrize("owned", [None, {T: [0]}])
def test_a_member_in_the_state_of_a_newer_coordinator_is_fenced_until_it_owns_nothing(owned: Partitions | None) -> None:
    assert reconcile(holding(5, UNKNOWN, held(0)), towards(6, 0, owned=owned)) is None


def test_each_transition_moves_the_epoch_before_also_to_the_same_one() -> None:
    told = reconcile(Holding(5, 4, STABLE, held(0)), towards(6))
    assert told is not None
    assert (told.previous_epoch, told.epoch) == (5, 5)
