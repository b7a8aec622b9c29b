"""Groups of newer protocols (KIP-848, share, streams): their records are counted, and nothing that depends on them is claimed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import cli
from history import GroupDeleted, GroupRecord, Story
from history.newer import CONSUMER, KIND_OF_KEY, SHARE, STREAMS
from pipeline.decode import OTHER, UNREADABLE, decoded
from pipeline.report.document import document
from pipeline.report.tables import ReportTables
from pipeline.rows import Advice, Episode, Generation, Group, Hygiene, MemberSpell, NewerGroup, Record
from pipeline.schema import rows_of
from pipeline.tables import Tables
from protocol.messages.consumer_offsets import GroupMetadataKey, GroupMetadataValue
from protocol.records import with_version
from tests.pipeline.building import analyzed, difference, tables
from tests.pipeline.segments import EPOCH_MS, Pair, batch_of, commit, group_record, write_segment

pytestmark = pytest.mark.once

DAY_MS = 86_400_000
LOG = "__consumer_offsets-0"
NUMBERS = ("members", "static_members", "generation", "rebalances", "rebalances_per_day", "unstable_ms", "partition_seconds_lost", "avoidable", "saved", "coverage")


def newer(version: int, group: str, rest: bytes = b"", value: bytes | None = b"\0\0\1") -> Pair:
    """A record of a newer protocol; the rest of its key is a member, or an expression."""
    return version.to_bytes(2, "big") + with_version(GroupMetadataKey(group), 2)[2:] + rest, value


def joined(group: str) -> list[Pair]:
    """The records of a member that joins a group of KIP-848, in Kafka's order."""
    member = b"\0\1m"
    return [newer(5, group, member), newer(3, group), newer(7, group, member), newer(6, group), newer(8, group, member)]


def run(folder: Path, *batches: bytes) -> Tables:
    write_segment(folder / "data" / LOG, batches)
    return analyzed(folder / "out", folder / "data", [])


def rows(made: Tables, name: str, row: Any) -> list[Any]:
    return rows_of(row, made.read(name))


def group(made: Tables, name: str) -> Group:
    (row,) = rows_of(Group, made.read("groups", only={"group": name}))
    return row


@pytest.mark.parametrize(("versions", "kind"), [((3, 4, 5, 6, 7, 8, 16), CONSUMER), (range(9, 16), SHARE), (range(17, 25), STREAMS)])
def test_records_of_newer_protocols_have_a_kind_and_their_group(versions: Any, kind: str) -> None:
    for version in versions:
        for rest in (b"", b"\0\1m"):
            for value in (b"\0\0", None):
                record = decoded("offsets", newer(version, "größe", rest)[0], value)
                assert (record.kind, record.group, record.key_version) == (kind, "größe", version)
        assert decoded("offsets", version.to_bytes(2, "big") + b"\0\5abc", b"").kind == UNREADABLE
    assert decoded("offsets", newer(25, "g")[0], b"").kind == decoded("offsets", newer(30_000, "g")[0], b"").kind == OTHER


def test_the_rows_of_a_log_have_the_kinds_too(tmp_path: Path) -> None:
    made = run(tmp_path, batch_of(0, *[newer(version, f"g{version}") for version in sorted(KIND_OF_KEY)]))
    assert [(row.kind, row.group) for row in rows(made, "records", Record)] == [(KIND_OF_KEY[version], f"g{version}") for version in sorted(KIND_OF_KEY)]


@pytest.mark.parametrize(("records", "kind"), [(joined("g"), CONSUMER), ([newer(10, "g"), newer(11, "g")], SHARE), ([newer(17, "g"), newer(19, "g")], STREAMS)])
def test_a_group_of_a_newer_protocol_has_no_false_numbers_and_is_not_accused(tmp_path: Path, records: list[Pair], kind: str) -> None:
    commits = [batch_of(5 + number, commit("g", "t", 0, number, EPOCH_MS + number, metadata="m" * 2_000), at_ms=EPOCH_MS + number) for number in range(3)]
    made = run(tmp_path, batch_of(0, *records), *commits)
    row = group(made, "g")
    assert [getattr(row, name) for name in NUMBERS] == [None] * len(NUMBERS)
    assert (row.state, row.commits, row.partitions, row.flags) == ("unknown", 3, 1, ["newer_protocol"])
    assert rows(made, "newer_groups", NewerGroup) == [NewerGroup("unknown", "g", kind, len(records), len(records) - 1, EPOCH_MS, EPOCH_MS)]
    for name in ("hygiene", "rebalances", "generations", "members", "member_spells", "timeout_advice", "timeout_curve"):
        assert not made.read(name).num_rows, name


def test_a_quiet_group_of_a_newer_protocol_is_not_called_dead(tmp_path: Path) -> None:
    late = EPOCH_MS + 30 * DAY_MS
    made = run(tmp_path, batch_of(0, *joined("g"), commit("g", "t", 0, 1, EPOCH_MS)), batch_of(6, commit("h", "t", 0, 1, late), at_ms=late))
    assert {row.group for row in rows(made, "hygiene", Hygiene)} == {"h"}


def test_a_group_without_commits_is_listed(tmp_path: Path) -> None:
    made = run(tmp_path, batch_of(0, newer(11, "shared")))
    sentences = document(ReportTables(made), version="1")["summary"]["sentences"]
    assert sentences == ["The records about the members of 1 group are not understood: only commits and lag are known."]
    row = group(made, "shared")
    assert (row.state, row.commits, row.first_ms, row.last_ms) == ("unknown", 0, EPOCH_MS, EPOCH_MS)


def test_a_group_known_only_from_commits_stays_as_it_is(tmp_path: Path) -> None:
    made = run(tmp_path, batch_of(0, commit("g", "t", 0, 1, EPOCH_MS), *joined("other")))
    row = group(made, "g")
    assert (row.state, row.members, row.rebalances, row.coverage, row.flags) == ("unknown", 0, 0, 1.0, [])
    assert [(row.group, row.kind) for row in rows(made, "hygiene", Hygiene)] == [("g", "commits_without_members")]


def test_the_members_of_an_upgraded_group_are_unknown_and_its_classic_rebalances_stay(tmp_path: Path) -> None:
    batches = [batch_of(0, group_record("g", 1, ["a"])), batch_of(1, group_record("g", 2, ["a", "b"])), batch_of(2, (group_record("g", 2)[0], None), *joined("g"))]
    made = run(tmp_path, *batches, batch_of(8, commit("g", "t", 0, 1, EPOCH_MS)))
    row = group(made, "g")
    assert (row.state, row.members, row.generation, row.rebalances, row.coverage) == ("unknown", None, None, None, None)
    assert row.worst_status is not None  # its offsets stay
    assert len(rows(made, "rebalances", Episode)) == 2
    assert len(rows(made, "generations", Generation)) == 3
    assert not made.read("hygiene").num_rows


def test_incremental_runs_make_the_same_tables(tmp_path: Path) -> None:
    batches = [batch_of(0, *joined("g")), batch_of(5, commit("g", "t", 0, 1, EPOCH_MS)), batch_of(6, group_record("h", 1, ["a"])), batch_of(7, *joined("h"), newer(3, "g"))]
    whole = tables(run(tmp_path, *batches))
    cut = tables(analyzed(tmp_path / "cut", tmp_path / "data", [{0: 5}, {0: 6}, {0: 7}]))
    for name, table in whole.items():
        assert cut[name].equals(table), difference(name, cut[name], table)


def test_the_run_and_the_report_count_what_is_not_understood(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_segment(tmp_path / "data" / LOG, [batch_of(0, *joined("a"), *joined("b"), newer(11, "c"), commit("a", "t", 0, 1, EPOCH_MS), group_record("d", 1, ["m"]))])
    html, out = tmp_path / "report.html", tmp_path / "out"
    assert cli.main(["analyze", "run", "--offsets", str(tmp_path / "data"), "--out", str(out), "--master", "none", "--report", str(html)]) == 0
    printed, told = (text.splitlines() for text in capsys.readouterr())
    assert "tenure: only commits and lag are known of 2 consumer groups (KIP-848) and 1 share group (KIP-932): " in told[-1]
    for line in ("consumer_groups_not_understood: 2", "consumer_records_not_understood: 10", "share_groups_not_understood: 1", "share_records_not_understood: 1"):
        assert line in printed
    assert not [line for line in printed if line.startswith("streams")]
    page = html.read_text()
    assert "2 groups of the protocol <b>consumer</b> (KIP-848): 10 records are not understood." in page
    assert "1 group of the protocol <b>share</b>: 1 record is not understood." in page
    assert "None" not in page
    assert "1 rebalance of 1 group stopped partitions" in page
    assert "No change is needed, not counting 3 groups of newer protocols." in page
    assert cli.main(["analyze", "report", "--out", str(out), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["not_understood"] == {"consumer": {"groups": 2, "records": 10}, "share": {"groups": 1, "records": 1}}
    for action in (["advise"], ["whatif", "--static"]):
        assert cli.main(["analyze", action[0], "--out", str(out), "--group", "a", *action[1:]]) == 0
        assert capsys.readouterr().out == "a: its members use a newer protocol, whose records are not understood: their restarts are unknown\n"


# Groups that change their protocol


MINUTE_MS = 60_000
GONE = group_record("g", 0)[0], None  # the tombstone of the classic group


def removed(name: str) -> list[Pair]:
    """The tombstones of a group of KIP-848 with one member."""
    return [(key, None) for key, _ in reversed(joined(name))]


def history(folder: Path, *writes: list[Pair], pause_ms: int = MINUTE_MS) -> Tables:
    """Each of the writes is one batch, `pause_ms` after the previous one."""
    batches, base = [], 0
    for number, pairs in enumerate(writes):
        batches.append(batch_of(base, *pairs, at_ms=EPOCH_MS + number * pause_ms))
        base += len(pairs)
    return run(folder, *batches)


def told(made: Tables) -> list[tuple[object, ...]]:
    episodes = rows(made, "rebalances", Episode)
    return [(row.cause, row.confidence, row.from_generation, row.to_generation, row.rounds, row.missing) for row in episodes]


def test_a_group_that_returns_to_the_classic_protocol_is_not_formed_anew(tmp_path: Path) -> None:
    old, back = [group_record("g", 1, ["a"])], [group_record("g", 9, ["a", "b"])]
    made = history(tmp_path, old, [GONE, *joined("g")], joined("g"), [*removed("g"), *back], [group_record("g", 10, ["a", "b", "c"])])
    assert told(made) == [("formation", "strong", 0, 1, 1, 0), ("unknown", "none", None, 9, None, -1), ("new_member", "strong", 9, 10, 1, 0)]
    between = rows(made, "rebalances", Episode)[1]
    assert (between.start_lo_ms, between.start_hi_ms, between.members_before, between.members_after) == (EPOCH_MS + MINUTE_MS, EPOCH_MS + 3 * MINUTE_MS, None, 2)
    assert between.evidence.startswith("the group used a newer protocol, whose records are not understood, and then the classic one")
    assert [row.rounds_aborted for row in rows(made, "generations", Generation)] == [0, None, None, 0]
    row = group(made, "g")
    assert (row.state, row.members, row.generation, row.rebalances, row.coverage) == ("stable", 3, 10, None, None)
    assert row.flags == ["rebalances_missing", "newer_protocol"]
    assert not made.read("gap_samples").num_rows  # a static member that is in both is not one that was away
    assert {spell.end_kind for spell in rows(made, "member_spells", MemberSpell)} == {"upgraded", "open"}


@pytest.mark.parametrize("tombstone", [[GONE], []], ids=["as written", "after compaction"])
@pytest.mark.parametrize("returns", [True, False])
@pytest.mark.parametrize("version", [3, 2], ids=["static", "dynamic"])
def test_members_of_an_upgraded_group_are_not_lost(tmp_path: Path, tombstone: list[Pair], returns: bool, version: int) -> None:
    """Also if that is hours ago, and some of them are in the group when it returns."""
    back = [[*removed("g"), group_record("g", 9, ["a", "c"], version)]] if returns else []
    writes = [[group_record("g", 1, ["a", "b"], version)], [*tombstone, *joined("g")], *back, [commit("h", "t", 0, 1, EPOCH_MS)]]
    made = history(tmp_path, *writes, pause_ms=10 * 3_600_000)
    for name in ("gap_samples", "replacements", "deploys"):
        assert not made.read(name).num_rows, name
    assert not any(row.deaths for row in rows(made, "timeout_advice", Advice))
    ends = {(spell.member_id, spell.end_kind) for spell in rows(made, "member_spells", MemberSpell)}
    if returns or tombstone:
        assert ends == {("a", "upgraded"), ("b", "upgraded")} | ({("a", "open"), ("c", "open")} if returns else set())


@pytest.mark.parametrize("tombstone", [[GONE], []], ids=["as written", "after compaction"])
@pytest.mark.parametrize("left", [removed("g"), [newer(3, "g", value=None)]], ids=["all tombstones", "one tombstone"])
def test_what_compaction_leaves_of_the_change_is_enough(tmp_path: Path, tombstone: list[Pair], left: list[Pair]) -> None:
    made = history(tmp_path, [group_record("g", 3, ["a"])], [*tombstone, newer(8, "g", b"\0\1m", None)], left, [group_record("g", 2, ["a"])])
    assert told(made)[1:] == [("unknown", "none", None, 2, None, -1)]


def test_a_group_whose_log_begins_in_the_newer_protocol_is_not_formed_when_it_becomes_classic(tmp_path: Path) -> None:
    made = history(tmp_path, joined("g"), [*removed("g"), group_record("g", 8, ["a"])])
    assert told(made) == [("unknown", "none", None, 8, None, -1)]


def test_members_that_join_an_emptied_group_of_the_newer_protocol_do_not_form_a_group(tmp_path: Path) -> None:
    made = history(tmp_path, [group_record("g", 1, ["a"])], [GONE, *joined("g")], [*removed("g"), group_record("g", 0)], [group_record("g", 1, ["b"])])
    assert told(made)[1:] == [("unknown", "none", None, None, None, -1), ("new_member", "strong", 0, 1, 1, 0)]


def test_a_group_may_change_its_protocol_repeatedly(tmp_path: Path) -> None:
    change = [[GONE, *joined("g")], [*removed("g"), group_record("g", 5, ["a"])]]
    made = history(tmp_path, [group_record("g", 1, ["a"])], *change, *change)
    assert told(made)[1:] == [("unknown", "none", None, 5, None, -1)] * 2


def test_a_deleted_classic_group_is_formed_anew(tmp_path: Path) -> None:
    made = history(tmp_path, [group_record("g", 4, ["a"])], [GONE], [group_record("g", 0)], [group_record("g", 1, ["b"])], joined("h"))
    assert [row[0] for row in told(made)] == ["formation", "formation"]
    assert group(made, "g").rebalances == 2


@pytest.mark.parametrize("taken_over", [True, False])
def test_only_a_tombstone_without_a_newer_protocol_is_a_deletion(taken_over: bool) -> None:
    story = Story("g", from_start=True, records_complete=True)
    stored = GroupMetadataValue(protocol_type="consumer", generation=1, protocol=None, leader=None, members=[])
    entries = [*story.add(GroupRecord(0, 1, stored)), *story.add(GroupRecord(1, 2, None, taken_over=taken_over))]
    assert [type(entry) for entry in entries if isinstance(entry, GroupDeleted)] == ([] if taken_over else [GroupDeleted])


def test_the_cut_between_the_protocols_does_not_matter(tmp_path: Path) -> None:
    writes = [[group_record("g", 1, ["a"])], [GONE, *joined("g")], [*removed("g"), group_record("g", 9, ["a"])], [commit("g", "t", 0, 1, EPOCH_MS)], [group_record("g", 10, ["b"])]]
    whole = tables(history(tmp_path, *writes))
    for cut in (1, 7, 13, 14):
        parts = tables(analyzed(tmp_path / f"cut-{cut}", tmp_path / "data", [{0: cut}]))
        for name, table in whole.items():
            assert parts[name].equals(table), difference(name, parts[name], table)
