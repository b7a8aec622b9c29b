from __future__ import annotations

import json

import pytest

from cli.client import TopicPartition
from cli.groups import offsets_file, offsets_plan
from cli.groups.offsets_plan import Bounds, Committed, NotCommitted, OffsetChange

BOUNDS = {("t", 0): Bounds(10, 100), ("t", 1): Bounds(0, 0)}
COMMITTED: dict[TopicPartition, Committed] = {("t", 0): Committed(40, 3, "mine")}


def goals(plan: list[OffsetChange]) -> list[tuple[int | None, int, str | None]]:
    return [(move.before, move.after.offset, move.remark) for move in plan]


def test_a_plan_to_an_end_of_the_log() -> None:
    assert goals(offsets_plan.to_bound(True, BOUNDS, COMMITTED)) == [(40, 10, None), (None, 0, None)]
    assert goals(offsets_plan.to_bound(False, BOUNDS, COMMITTED)) == [(40, 100, None), (None, 0, None)]


def test_an_offset_outside_of_the_log_becomes_the_nearer_end() -> None:
    assert goals(offsets_plan.to_offset(5, BOUNDS, COMMITTED)) == [(40, 10, "5 is before the earliest"), (None, 0, "5 is after the latest")]
    assert goals(offsets_plan.to_offset(100, BOUNDS, COMMITTED))[0] == (40, 100, None)
    assert goals(offsets_plan.to_offset(10, BOUNDS, COMMITTED))[0] == (40, 10, None)


def test_a_shift_counts_from_the_committed_offset_and_stays_in_the_log() -> None:
    single = {("t", 0): BOUNDS["t", 0]}
    assert goals(offsets_plan.shifted(-25, single, COMMITTED)) == [(40, 15, None)]
    assert goals(offsets_plan.shifted(-41, single, COMMITTED)) == [(40, 10, "-1 is before the earliest")]
    assert goals(offsets_plan.shifted(61, single, COMMITTED)) == [(40, 100, "101 is after the latest")]
    with pytest.raises(NotCommitted) as refused:
        offsets_plan.shifted(1, BOUNDS, COMMITTED)
    assert refused.value.partitions == [("t", 1)]


def test_a_time_without_a_later_record_is_the_end() -> None:
    committed = {("t", 0): None, ("t", 1): Committed(0)}
    assert goals(offsets_plan.to_time(committed, "noon", BOUNDS, COMMITTED)) == [(40, 100, "no record since noon: to the end"), (None, 0, None)]


def test_a_reset_to_current_keeps_epoch_and_metadata() -> None:
    unchanged, new = offsets_plan.to_current(BOUNDS, BOUNDS, COMMITTED)
    assert (unchanged.after, unchanged.difference) == (Committed(40, 3, "mine"), 0)
    assert goals([new]) == [(None, 0, "nothing was committed: to the end")]


def test_csv_of_one_group_and_of_several_is_read() -> None:
    assert offsets_file.read('"t",0,5\nu,1,6\n', "g") == {("t", 0): Committed(5), ("u", 1): Committed(6)}
    assert offsets_file.read("topic,partition,offset\r\nt,0,5\r\n\r\n", "g") == {("t", 0): Committed(5)}
    assert offsets_file.read("g,t,0,5\nother,t,0,7\n", "g") == {("t", 0): Committed(5)}
    assert offsets_file.read("GROUP,TOPIC,PARTITION,OFFSET\ng,t,0,5\n", "g") == {("t", 0): Committed(5)}
    assert offsets_file.read("#g,t,0,5\n", "#g") == {("t", 0): Committed(5)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no offsets"),
        ("other,t,0,5", "no offsets of group g, only of other"),
        ("t,0", "line 1 is not"),
        ("t,0,5\n" + "x" * 200_000, "line 2 is not"),
        ("TOPIC PARTITION OFFSET\nt,0,5", "line 1 is not topic,partition,offset or .*; these names are the only header that is accepted"),
        ("t,partition,old offset\nt,0,5", "line 1 is not topic,partition,offset or .*; these names are the only header"),
        ("# saved, on, the, 5th\nt,0,5", "line 1 is a comment, which the format does not have: each line is topic,partition,offset or group,"),
        ("t,0,5\n#t,1,5", "line 2 is a comment"),
        ("t,0,5\n  # more", "line 2 is a comment"),
        ("t,0,5\nt,x,5", "line 2: 'x' is not a number of a partition"),
        ("t,0,-5", "'-5' is not a number of an offset"),
        ("t,0,9223372036854775808", "is not a number of an offset"),
        ("t,2147483648,1", "is not a number of a partition"),
        ("t,0,5\nt,0,6", "two offsets for t:0, 5 and 6"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[" * 900 + "]" * 900, "not JSON of ours|no offsets"),
        ('[{"topic": "t", "partition": "0", "offset": 1}]', "an invalid partition or offset"),
        ('[{"topic": "t", "partition": true, "offset": 1}]', "an invalid partition or offset"),
        ('{"group": "other", "offsets": [{"topic": "t", "partition": 0, "offset": 1}]}', "no offsets of group g, only of other"),
    ],
)
def test_an_invalid_file_is_refused_with_its_position(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        offsets_file.read(text, "g")


def test_a_printed_plan_can_be_read() -> None:
    plan = offsets_plan.to_offset(50, BOUNDS, COMMITTED)
    expected = {("t", 0): Committed(50), ("t", 1): Committed(0)}
    assert offsets_file.read(json.dumps({"group": "g", "offsets": [move.document() for move in plan]}), "g") == expected
    assert offsets_file.read(offsets_file.to_csv((move.topic, move.partition, move.after.offset) for move in plan), "g") == expected


def test_the_output_of_show_can_be_read_with_epoch_and_metadata() -> None:
    rows = [
        {"topic": "t", "partition": 0, "committed_offset": 7, "leader_epoch": 3, "metadata": "mine", "latest_offset": 9},
        {"topic": "t", "partition": 1, "committed_offset": None, "leader_epoch": None, "metadata": None, "latest_offset": 9},
    ]
    document = {"groups": [{"group": "g", "offsets": rows}, {"group": "h", "offsets": rows}]}
    assert offsets_file.read(json.dumps(document), "g") == {("t", 0): Committed(7, 3, "mine")}
