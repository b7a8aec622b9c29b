"""Consumer groups (KIP-848) in the tables of `tenure analyze`: the log that a real Kafka wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.report.document import document
from pipeline.report.tables import ReportTables
from pipeline.rows import Episode, Generation, Group, Hygiene, Member, MemberSpell, NewerGroup, Replaced
from pipeline.schema import rows_of
from pipeline.tables import Tables
from tests.history.kafka_log import WRITTEN
from tests.history.written import LOG
from tests.pipeline.building import analyzed, difference, tables

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return analyzed(tmp_path_factory.mktemp("made") / "out", WRITTEN, [])


def rows(made: Tables, name: str, row: Any, group: str = "tills") -> list[Any]:
    return [each for each in rows_of(row, made.read(name)) if each.group == group]


def test_a_consumer_group_is_understood(made: Tables) -> None:
    (group,) = rows(made, "groups", Group)
    assert (group.state, group.members, group.generation, group.rebalances, group.commits, group.flags) == ("empty", 0, 8, 7, 8, ["storm"])
    (audit,) = rows(made, "groups", Group, "audit")
    assert (audit.state, audit.members, audit.generation, audit.rebalances) == ("stable", 1, 4, 2)
    assert not rows_of(NewerGroup, made.read("newer_groups"))
    assert not [row for row in rows_of(Hygiene, made.read("hygiene")) if "session.timeout.ms" in str(row)]
    assert "not_understood" not in str(document(ReportTables(made), version="1")["summary"])


def test_its_rebalances_have_exact_times_and_the_partitions_that_moved(made: Tables) -> None:
    joined = rows(made, "rebalances", Episode)[1]
    assert (joined.cause, joined.confidence, joined.from_generation, joined.to_generation, joined.joined) == ("new_member", "strong", 2, 3, ["bob"])
    assert joined.start_lo_ms == joined.start_hi_ms
    assert joined.moved_partitions == 2
    assert joined.cooperative
    assert joined.stalled_lo_ms == joined.stalled_hi_ms
    assert 3.0 <= joined.partition_seconds_lost <= 2 * (joined.end_ms - joined.start_hi_ms) / 1_000
    assert joined.evidence == "bob joined (it has no notes: inferred from records)"
    assert [row.cause for row in rows(made, "rebalances", Episode)] == ["formation", "new_member", "topics_changed", "new_member", *["member_gone"] * 3]


def test_its_targets_are_generations_with_members(made: Tables) -> None:
    generations = rows(made, "generations", Generation)
    assert [(row.generation, row.members, row.static_members, row.is_replacement) for row in generations] == [
        (2, 1, 0, False), (3, 2, 1, False), (3, 2, 1, True), (4, 2, 1, False), (5, 3, 1, False), (6, 2, 1, False), (7, 1, 1, False), (8, 0, 0, False)
    ]
    members = [row for row in rows(made, "members", Member) if row.generation == 4]
    assert [(row.member_id, row.instance_id, row.topics, row.assigned) for row in members] == [
        ("ada", None, ["sales"], ["sales-0", "sales-1", "sales-5"]),
        ("bob-2", "bob", ["sales"], ["sales-2", "sales-3", "sales-4"]),
    ]


def test_a_static_member_that_came_back_was_replaced_without_a_rebalance(made: Tables) -> None:
    spells = {row.member_id: row for row in rows(made, "member_spells", MemberSpell)}
    assert spells["bob-1"].end_kind == "replaced"
    (replacement,) = [row for row in rows(made, "replacements", Replaced) if row.new_member_id == "bob-2"]
    assert replacement.caused_rebalance is False


@pytest.mark.parametrize("cut", [3, 16, 26, 55, 80])
def test_where_a_run_is_cut_does_not_matter(made: Tables, tmp_path: Path, cut: int) -> None:
    parts = tables(analyzed(tmp_path / "out", WRITTEN, [{0: cut}]))
    for name, table in tables(made).items():
        assert parts[name].equals(table), difference(name, parts[name], table)


def test_the_log_is_small() -> None:
    assert LOG.stat().st_size < 8_192
