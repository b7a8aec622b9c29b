"""The order of Java's tables, as Java 17 and Kafka's own table of members gave it."""

from __future__ import annotations

import json
from random import Random

import pytest

from coordinator.consumer.assignors.java_order import (
    CoordinatorOrder,
    buckets_of,
    copied_buckets,
    hashes,
    id_hash,
    in_number_order,
    in_run_order,
    in_text_order,
)
from coordinator.group_partition import java_hash
from tests.coordinator.consumer.kafka_assignors import run_kafka


@pytest.mark.parametrize("texts", [["a"], ["ab"] * 70, ["\uffff\U0001f600"] * 70, [f"{n:022}" for n in range(500)], ["", "a" * 300] * 40, [f"{n:0300}" for n in range(70)]])
def test_hashes_are_those_of_single_texts(texts: list[str]) -> None:
    assert hashes(texts) == [java_hash(text) & 0xFFFFFFFF for text in texts]


def test_hashes_of_random_ids_of_any_length_are_those_of_single_texts() -> None:
    random = Random(1)
    for size in range(1, 60):
        texts = ["".join(chr(random.randrange(128)) for _ in range(size)) for _ in range(64)]
        assert hashes(texts) == [java_hash(text) & 0xFFFFFFFF for text in texts]


def test_an_id_is_hashed_as_javas_uuid() -> None:
    assert id_hash(bytes(range(16))) == 0
    assert id_hash(b"\xff" * 8 + bytes(8)) == 0
    assert id_hash(bytes(12) + b"\x80\0\0\1") == 0x80000001


def test_tables_grow_above_three_quarters() -> None:
    assert [buckets_of(size) for size in (0, 12, 13, 24, 25)] == [16, 16, 32, 32, 64]
    assert [copied_buckets(size) for size in (0, 11, 12, 23, 24)] == [16, 16, 32, 32, 64]
    assert [buckets_of(size, 1) for size in (0, 1, 2, 3, 4)] == [1, 2, 4, 4, 8]


def test_sets_are_visited_bucket_by_bucket() -> None:
    assert in_text_order(["c", "q", "b", "a"]) == ["q", "a", "b", "c"]  # of 16 buckets, q is in the first
    assert list(in_number_order([17, 1, 16, 3])) == [16, 17, 1, 3]
    assert list(in_number_order([65_536, 0, 1])) == [0, 65_536, 1]


def test_a_small_table_is_doubled_when_a_bucket_has_nine_entries() -> None:
    assert list(in_number_order([16 * n for n in range(8, 0, -1)])) == [128, 112, 96, 80, 64, 48, 32, 16]
    assert list(in_number_order([16 * n for n in range(9, 0, -1)])) == [128, 96, 64, 32, 144, 112, 80, 48, 16]


@pytest.mark.parametrize("first", [0, 3, 14, 15, 16, 65_530, 65_536, 70_000])
def test_a_run_of_numbers_is_in_the_order_of_its_set(first: int) -> None:
    for size in (1, 2, 11, 12, 13):
        numbers = list(range(first, first + size))
        assert in_run_order(numbers, buckets_of(size)) == list(in_number_order(numbers))


def test_a_member_that_is_put_again_keeps_its_place() -> None:
    order = CoordinatorOrder()
    for id in ("a", "b", "c"):
        order.put(id)
    before = order.ids()
    order.put("a")
    order.put("d")
    order.remove("d")
    assert sorted(order.ids()) == sorted(before)


@pytest.mark.kafka
def test_the_coordinators_table_has_kafkas_order() -> None:
    lists = []
    for seed in range(400):
        random = Random(seed)
        ids = [random.randbytes(8).hex() for _ in range(random.choice((1, 2, 3, 5, 9, 20, 60, 200)))]
        lists.append([*ids, *random.choices(ids, k=random.randrange(len(ids)))])
    for puts, answer in zip(lists, run_kafka({"puts": ids} for ids in lists), strict=True):
        order = CoordinatorOrder()
        for id in puts:
            order.put(id)
        assert order.ids() == json.loads(answer)
