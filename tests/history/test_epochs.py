"""Consumer groups: what the records of a real Kafka tell, and records that only other cases have."""

from __future__ import annotations

import pytest

from coordinator.consumer.changes import (
    GONE,
    Change,
    EpochChange,
    ExpressionChange,
    HoldingChange,
    ProfileChange,
    Resolved,
    TargetChange,
    TargetEpochChange,
)
from coordinator.consumer.member import UNREVOKED, ClassicPart, Holding, Profile
from coordinator.consumer.topic_hash import hash_of_topic, hash_of_topics
from coordinator.notes import Cause, Removal
from history.episodes import AbsenceChanged, End, Entry, GroupDeleted, Rebalance, RebalancesMissing, StaticReturned
from history.epochs import tell
from history.moves import list_partitions, moves_of
from history.newer import NewerRecord, beside_newer
from history.note_records import GroupRecord
from history.topic_names import TopicNames
from protocol.messages.consumer_offsets import GroupMetadataValue
from tests.history.written import written

pytestmark = pytest.mark.once  # pure rules

T, U = b"t" * 16, b"u" * 16


def rebalances(entries: list[Entry]) -> list[Rebalance]:
    return [entry for entry in entries if isinstance(entry, Rebalance)]


def why(entry: Rebalance) -> tuple[str, str]:
    assert entry.told is not None
    return entry.told.cause, entry.told.confidence


def moved(entry: Rebalance) -> list[tuple[str | None, str | None, str]]:
    places: dict[tuple[str | None, str | None], list[tuple[str, int]]] = {}
    for partition, before, after in moves_of(entry) or []:
        places.setdefault((before and before.member_key, after and after.member_key), []).append(partition)
    return [(before, after, list_partitions(where)) for (before, after), where in places.items()]


# The recorded log


def test_the_rebalances_of_a_real_kafka_have_their_epochs_and_causes() -> None:
    told = rebalances(tell("tills", [], written()["tills"]).entries)
    assert [(entry.from_generation, entry.to_generation, *why(entry)) for entry in told] == [
        (0, 2, "formation", "strong"),
        (2, 3, "new_member", "strong"),
        (3, 4, "topics_changed", "strong"),
        (4, 5, "new_member", "strong"),
        (5, 6, "member_gone", "weak"),
        (6, 7, "member_gone", "weak"),
        (7, 8, "member_gone", "weak"),
    ]
    assert [entry.end for entry in told] == [End.STABLE] * 6 + [End.EMPTY]


def test_members_that_had_to_give_partitions_up_are_named_and_only_those_partitions_stopped() -> None:
    joined = rebalances(tell("tills", [], written()["tills"]).entries)[1]
    assert moved(joined) == [("ada", "bob", "sales 2,3")]
    (handover,) = joined.handovers
    assert (handover.member_id, handover.partitions, handover.waiting) == ("ada", (("sales", 2), ("sales", 3)), ("bob",))
    assert 1_500 <= handover.given_ms - handover.told_ms < joined.duration_ms < 2_500
    assert 2 * 1_500 <= joined.stopped_ms < 2 * joined.duration_ms


def test_a_static_member_that_is_back_in_time_keeps_its_seat_without_an_epoch() -> None:
    entries = tell("tills", [], written()["tills"]).entries
    away = next(entry for entry in entries if isinstance(entry, AbsenceChanged))
    back = next(entry for entry in entries if isinstance(entry, StaticReturned))
    assert (away.instance_id, away.back) == ("bob", False)
    assert (back.instance_id, back.old_id, back.new_id) == ("bob", "bob-1", "bob-2")
    assert back.since_heartbeat_ms == back.at_ms - away.at_ms >= 700


def test_the_evidence_names_the_topic_that_grew() -> None:
    grown = rebalances(tell("tills", [], written()["tills"]).entries)[2]
    assert grown.told is not None
    assert grown.told.evidence.endswith("got partitions: sales has 6 partitions, previously 4")
    assert moved(grown) == [(None, "bob", "sales 4"), (None, "ada", "sales 5")]


def test_a_member_that_gives_nothing_up_is_named_with_its_timeout() -> None:
    formed, slow = rebalances(tell("audit", [], written()["audit"]).entries)
    assert why(formed) == ("formation", "strong")
    assert (slow.rounds, slow.restart_causes) == (2, [Cause.REBALANCE_TIMEOUT])
    assert [(removal.member_id, removal.cause) for removal in slow.removals] == [("eve", Removal.NOT_GIVEN_UP)]
    (handover,) = slow.handovers
    assert (handover.member_id, handover.waiting) == ("eve", ("fay",))
    assert 2_000 <= handover.given_ms - handover.told_ms < 3_000


def test_the_hash_tells_names_that_subscriptions_leave_open() -> None:
    """Both members read the same two topics with as many partitions each."""
    (entry, *_) = rebalances(tell("audit", [], written()["audit"]).entries)
    assert moved(entry) == [(None, "eve", "log-a 0,1; log-b 0,1")]
    assert names_of("audit") == {"log-a", "log-b"}
    shuffled = TopicNames()
    shuffled.learn([(("log-a", "log-b"), {T: [0], U: [0]})], hash_of_topics([hash_of_topic(U, "log-a", 1), hash_of_topic(T, "log-b", 1)]))
    assert (shuffled.name(T), shuffled.name(U)) == ("log-b", "log-a")
    unknown = TopicNames()
    unknown.learn([(("log-a", "log-b"), {T: [0], U: [0]})], 5)
    assert unknown.name(T) == "dHR0dHR0dHR0dHR0dHR0dA"


def names_of(group: str) -> set[str]:
    names = TopicNames()
    tell(group, [], written()[group], names)
    return {names.name(id) for record in written()[group] if isinstance(record.change, TargetChange) for id in record.change.target or {}}


@pytest.mark.parametrize("group", ["tills", "audit"])
def test_where_the_log_is_cut_does_not_matter_after_the_next_epochs(group: str) -> None:
    """Without its first records a history has a gap, and then the same rebalances."""
    whole = rebalances(tell(group, [], written()[group]).entries)
    for cut in range(1, len(written()[group])):
        entries = tell(group, [], written()[group][cut:]).entries
        for entry in rebalances(entries):
            assert entry.to_generation in {known.to_generation for known in whole} | {-1}
        told = [entry for entry in rebalances(entries) if entry.told is not None]
        assert all(entry.told.confidence in ("strong", "weak") for entry in told if entry.told)


# Other cases


class Log:
    """Records of one group, a second apart unless told otherwise."""

    def __init__(self) -> None:
        self.records: list[NewerRecord] = []
        self.at_ms = 1_000_000

    def write(self, *changes: Change, after_ms: int = 1_000) -> None:
        self.at_ms += after_ms
        for change in changes:
            self.records.append(NewerRecord("consumer", len(self.records), self.at_ms, 0, change))

    def joins(self, id: str, epoch: int, numbers: list[int], profile: Profile | None = None) -> None:
        holding = Holding(epoch, 0, assigned={T: dict.fromkeys(numbers, epoch)})
        self.write(
            ProfileChange(id, profile or Profile(topics=("t",))), EpochChange(epoch, 7), TargetChange(id, {T: numbers}), TargetEpochChange(epoch, self.at_ms), HoldingChange(id, holding)
        )

    def goes(self, id: str, epoch: int) -> None:
        self.write(HoldingChange(id, None), TargetChange(id, None), ProfileChange(id, None), EpochChange(epoch, 7))

    def told(self) -> list[Entry]:
        return tell("g", [], self.records).entries


def test_an_expression_that_matches_more_is_the_cause() -> None:
    log = Log()
    log.joins("a", 2, [0], Profile(expression="t.*"))
    log.write(ExpressionChange("t.*", Resolved(("t", "tt"), 2, 1)), EpochChange(3, 9), TargetEpochChange(3, 1), HoldingChange("a", Holding(3, 2, assigned={T: {0: 2}})))
    assert why(rebalances(log.told())[-1]) == ("regex_resolved", "strong")


def test_an_expression_that_was_resolved_again_alike_is_no_cause() -> None:
    log = Log()
    log.joins("a", 2, [0], Profile(expression="t.*"))
    log.write(ExpressionChange("t.*", Resolved(("t",), 2, 1)))
    log.write(ExpressionChange("t.*", Resolved(("t",), 3, 2)), EpochChange(3, 9), TargetEpochChange(3, 1), HoldingChange("a", Holding(3, 2, assigned={T: {0: 2}})))
    assert why(rebalances(log.told())[-1])[0] == "regex_resolved"  # the first time
    log.write(ExpressionChange("t.*", Resolved(("t",), 4, 3)), EpochChange(4, 10), TargetEpochChange(4, 1), HoldingChange("a", Holding(4, 3, assigned={T: {0: 2}})))
    assert why(rebalances(log.told())[-1]) == ("topics_changed", "strong")


@pytest.mark.parametrize(
    ("profile", "cause"), [(Profile(topics=("t", "u")), "member_metadata_changed"), (Profile(topics=("t",), assignor="range"), "assignor_changed"), (Profile(topics=("t",), rack_id="r"), "requested")]
)
def test_what_a_member_changed_is_the_cause(profile: Profile, cause: str) -> None:
    log = Log()
    log.joins("a", 2, [0])
    log.write(ProfileChange("a", profile), EpochChange(3, 7), TargetEpochChange(3, 1), HoldingChange("a", Holding(3, 2, assigned={T: {0: 2}})))
    assert why(rebalances(log.told())[-1])[0] == cause


def test_a_member_that_had_left_to_come_back_has_expired() -> None:
    log = Log()
    log.joins("a", 2, [0])
    log.joins("b", 3, [1], Profile("i", topics=("t",)))
    log.write(HoldingChange("a", Holding(3, 2, assigned={T: {0: 2}})), HoldingChange("b", Holding(-2, 3, assigned={T: {1: 0}})))
    log.goes("b", 4)
    gone = tell("g", [], log.records)
    (entry,) = [entry for entry in rebalances(gone.entries) if entry.from_generation == 3]
    assert [removal.cause for removal in entry.removals] == [Removal.EXPIRED]


def test_a_rebalance_waits_for_members_that_are_not_away() -> None:
    log = Log()
    log.joins("a", 2, [0, 1])
    log.joins("b", 3, [1], Profile("i", topics=("t",)))
    assert rebalances(log.told())[-1].end is End.OPEN  # a has not heard of it
    log.write(HoldingChange("a", Holding(-2, 2)))
    assert rebalances(log.told())[-1].end is End.STABLE


def test_a_member_that_still_owns_partitions_is_waited_for() -> None:
    log = Log()
    log.joins("a", 2, [0, 1])
    log.joins("b", 3, [1])
    log.write(HoldingChange("a", Holding(2, 2, UNREVOKED, {T: {0: 2}}, {T: {1: 2}})))
    entry = rebalances(log.told())[-1]
    assert (entry.end, [(handover.member_id, handover.given_ms, handover.partitions, handover.waiting) for handover in entry.handovers]) == (End.OPEN, [("a", -1, (("t", 1),), ("b",))])


def test_missing_epochs_are_a_gap() -> None:
    log = Log()
    log.joins("a", 2, [0])
    log.write(EpochChange(5, 7), TargetEpochChange(5, 1), HoldingChange("a", Holding(5, 4, assigned={T: {0: 2}})))
    gap = log.told()[-1]
    assert isinstance(gap, RebalancesMissing)
    assert (gap.from_generation, gap.to_generation, gap.count_min) == (2, 5, 1)


def test_a_deleted_group_is_told_once() -> None:
    log = Log()
    log.joins("a", 2, [0])
    log.goes("a", 3)
    log.write(TargetEpochChange(3, 0))
    log.write(TargetEpochChange(GONE), EpochChange(GONE))
    told = tell("g", [], log.records)
    assert [type(entry) for entry in told.entries] == [Rebalance, Rebalance, GroupDeleted]
    assert told.group_records[-1].stored is None


def test_an_upgraded_group_goes_on_and_a_downgraded_one_is_not_deleted() -> None:
    log = Log()
    classic = Profile(topics=("t",), classic=ClassicPart(10_000, ()))
    log.write(ProfileChange("a", classic), EpochChange(6, 7), TargetChange("a", {T: [0]}), TargetEpochChange(6), HoldingChange("a", Holding(6, 6, assigned={T: {0: 6}})))
    log.joins("b", 7, [])
    log.write(HoldingChange("a", Holding(7, 6, assigned={T: {0: 6}})))
    log.goes("b", 8)
    log.write(HoldingChange("a", None), TargetChange("a", None), TargetEpochChange(GONE), ProfileChange("a", None), EpochChange(GONE))
    value = GroupMetadataValue("consumer", 8, "range", None, log.at_ms, [])
    records = beside_newer([GroupRecord(len(log.records), log.at_ms, value)], log.records)
    told = tell("g", records, log.records)
    assert [(entry.from_generation, entry.to_generation, why(entry)[0]) for entry in rebalances(told.entries)[:1]] == [(6, 7, "upgraded")]
    assert not any(isinstance(entry, GroupDeleted) for entry in told.entries)
    assert records[0].newer_told


def test_a_record_that_is_not_understood_leaves_the_history_untold() -> None:
    log = Log()
    log.joins("a", 2, [0])
    assert tell("g", [], [*log.records, NewerRecord("consumer", 99, log.at_ms)]).entries == []


def test_an_epoch_during_a_rebalance_begins_another_round() -> None:
    log = Log()
    log.joins("a", 2, [0])
    log.joins("b", 3, [1])
    log.write(HoldingChange("a", Holding(3, 2, assigned={T: {0: 2}})))
    log.goes("b", 4)
    log.write(EpochChange(5, 8))
    assert rebalances(log.told())[-1].restart_causes == [Cause.TOPICS_CHANGED]


def test_a_static_member_that_is_back_with_other_topics_did_not_go_away() -> None:
    log = Log()
    log.joins("a", 2, [0], Profile("i", topics=("t",)))
    log.write(HoldingChange("a", Holding(-2, 2, assigned={T: {0: 0}})))
    log.write(HoldingChange("a", None), TargetChange("a", None), ProfileChange("a", None))
    log.write(ProfileChange("b", Profile("i", topics=("t",))), TargetChange("b", {T: [0]}), HoldingChange("b", Holding(0, 0, assigned={T: {0: 0}})), after_ms=0)
    log.write(ProfileChange("b", Profile("i", topics=("t", "u"))), EpochChange(3, 9), TargetEpochChange(3, 1), HoldingChange("b", Holding(3, 0, assigned={T: {0: 0}})), after_ms=0)
    last = rebalances(log.told())[-1]
    assert (why(last)[0], last.removals, last.joins) == ("member_metadata_changed", [], [])
