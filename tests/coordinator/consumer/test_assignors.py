"""The assignors: Kafka's assignments exactly, recorded and from its own classes, and what each assignment keeps to."""

from __future__ import annotations

import gc
import json
import time
from collections import Counter
from random import Random

import pytest

from coordinator.consumer.assignors import ASSIGNORS, Assignable, Assignment, ServerAssignor
from coordinator.consumer.assignors.uniform import assign_uniformly
from tests.coordinator.consumer.chains import Case, case_of, random_cases
from tests.coordinator.consumer.kafka_assignors import RECORDED, assert_equal, run_kafka

A, B = b"a" * 16, b"b" * 16
LIVES = 600  # some thousand cases


def member(id: str, *topics: bytes, instance: str | None = None, **target: list[int]) -> Assignable:
    return Assignable(id, instance, frozenset(topics), {name.encode() * 16: partitions for name, partitions in target.items()})


def test_the_recorded_assignments_of_kafka_are_ours() -> None:
    lines = RECORDED.read_text().splitlines()
    kinds: Counter[tuple[str, bool]] = Counter()
    for line in lines:
        document = json.loads(line)
        case = case_of(document)
        assert_equal(case, document["assigned"])
        kinds[case.assignor, case.homogeneous] += 1
    assert len(kinds) == 4
    assert sum(kinds.values()) == 200


@pytest.mark.parametrize("seed", range(3))
def test_each_partition_has_one_subscriber_and_members_keep_what_they_can(seed: int) -> None:
    for case in random_cases(seed, 25):
        assigned = case.assign()
        owned = Counter((topic, partition) for got in assigned.values() for topic, partitions in got.items() for partition in partitions)
        read = {topic for one in case.members for topic in one.topics}
        assert owned == Counter((topic, partition) for topic in read for partition in range(case.topics[topic]))
        for one in case.members:
            assert assigned[one.member_id].keys() <= one.topics
        if case.assignor == "uniform" and case.homogeneous:
            sizes = [sum(map(len, got.values())) for got in assigned.values()]
            assert max(sizes) - min(sizes) <= 1
            again = Case("uniform", True, case.topics, [one._replace(target=assigned[one.member_id]) for one in case.members]).assign()
            assert all(again[id] is got for id, got in assigned.items()), "an assignment that is balanced stays"


def test_a_member_that_leaves_moves_its_own_partitions_only() -> None:
    members = [Assignable(f"m{n}", None, frozenset([A]), {A: tuple(range(n * 4, n * 4 + 4))}) for n in range(6)]
    left = members[:2] + members[3:]
    assigned = assign_uniformly(left, {A: 24})
    assert all(set(one.target[A]) <= set(assigned[one.member_id][A]) for one in left)


def test_range_lines_topics_up_and_puts_static_members_first() -> None:
    members = [member("z", A, B), member("y", A, B), member("x", A, B, instance="i")]
    assigned = ASSIGNORS["range"](members, {A: 7, B: 7})
    assert assigned == {"x": {A: (0, 1, 2), B: (0, 1, 2)}, "y": {A: (3, 4), B: (3, 4)}, "z": {A: (5, 6), B: (5, 6)}}


def test_members_are_compared_as_java_compares_texts() -> None:
    assigned = ASSIGNORS["range"]([member("\uffee", A), member("\U0001f600", A)], {A: 2})
    assert assigned == {"\U0001f600": {A: (0,)}, "\uffee": {A: (1,)}}


def test_a_member_without_topics_gets_nothing_and_takes_nothing_from_others() -> None:
    members = [member("a", A, a=[0, 1]), member("b")]
    for name in ASSIGNORS:
        assert {id: dict(got) for id, got in ASSIGNORS[name](members, {A: 2}).items()} in (
            {"a": {A: [0, 1]}, "b": {}},
            {"a": {A: (0, 1)}, "b": {}},
        )


def test_whether_a_group_is_homogeneous_may_be_given() -> None:
    members = [member("a", A, a=[0, 1]), member("b", A, a=[2, 3, 4, 5])]
    assert assign_uniformly(members, {A: 6}) == assign_uniformly(members, {A: 6}, homogeneous=True)
    assert set(assign_uniformly(members, {A: 6}, homogeneous=False)["a"][A]) == {0, 1, 5}
    assert set(assign_uniformly(members, {A: 6}, homogeneous=True)["a"][A]) == {0, 1, 5}


@pytest.mark.parametrize(
    ("assigned", "problem"),
    [
        ({"c": {}}, "'c' is no member"),
        ({"b": {B: [0]}}, "does not read"),
        ({"a": {A: [2]}}, "no partition 2"),
        ({"a": {A: [-1]}}, "no partition -1"),
        ({"a": {A: [0]}, "b": {A: [1, 0]}}, "given twice"),
        ({"a": {A: [0, 1], B: [0]}}, ""),
        ({}, ""),
    ],
)
def test_an_assignor_of_ones_own_is_checked(assigned: Assignment, problem: str) -> None:
    own = ServerAssignor("own", "", lambda members, topics, homogeneous=None: assigned)
    members = [member("a", A, B), member("b", A)]
    if problem:
        with pytest.raises(ValueError, match=problem):
            own(members, {A: 2, B: 1})
    else:
        assert own(members, {A: 2, B: 1}) == assigned


@pytest.mark.parametrize("name", ASSIGNORS)
def test_a_group_without_members_has_no_assignment(name: str) -> None:
    assert ASSIGNORS[name]([], {}) == {}


@pytest.mark.kafka
def test_every_assignment_of_random_groups_is_kafkas() -> None:
    cases = list(random_cases(Random().randrange(1 << 30), LIVES))
    assert len(cases) > 2 * LIVES
    for case, answer in zip(cases, run_kafka(case.document() for case in cases), strict=True):
        assert_equal(case, json.loads(answer))


def large(topics: int) -> Case:
    random = Random(topics)
    counts = {random.randbytes(16): 100_000 // topics for _ in range(topics)}
    read = frozenset(counts)
    return Case("uniform", True, counts, [Assignable(random.randbytes(11).hex(), None, read, {}) for _ in range(10_000)])


def processor_seconds(case: Case) -> float:
    spent = []
    gc.collect()
    gc.freeze()  # as in the broker
    for _ in range(3):
        start = time.process_time()
        assign_uniformly(case.members, case.topics)
        spent.append(time.process_time() - start)
    gc.unfreeze()
    return min(spent)


@pytest.mark.alone
@pytest.mark.kafka
@pytest.mark.parametrize("topics", [1, 10])
def test_ten_thousand_members_with_a_hundred_thousand_partitions_cost_no_more_than_kafkas_first_call(topics: int) -> None:
    case = large(topics)
    assigned = case.assign()
    settled = [one._replace(target=assigned[one.member_id]) for one in case.members]
    for moment in (case, Case("uniform", True, case.topics, settled[1:])):
        (line,) = run_kafka([moment.document()], "time", java=("-XX:TieredStopAtLevel=4",))  # Java's default
        kafkas = int(line.split()[1]) / 1e6
        ours = processor_seconds(moment)
        print(f"{topics} topics: ours {ours * 1000:.0f} ms, Kafka's first call {kafkas * 1000:.0f} ms of processor time, ratio {ours / kafkas:.2f}")
        assert ours < kafkas
