"""The comparison itself: it must report every difference except the expected ones."""

from __future__ import annotations

import copy
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.sequences.comparing import NO_ANSWER, Difference, first_difference, occurring, real_difference
from tests.sequences.hunting import FoundDifference
from tests.sequences.recipes import MistakeCounts
from tests.sequences.recording import read
from tests.sequences.shrinking import shrunk
from tests.sequences.steps import Step
from tests.sequences.traces import Naming, Trace

pytestmark = pytest.mark.once  # no dependence on the Python version

FILES = sorted((Path(__file__).parent / "recorded").glob("*.jsonl"))
LEFT, ANSWERED = {"error_code": 25}, {"error_code": 0}
LOOK: dict[str, Any] = {"g": ["Stable", "consumer", "range", []]}


def trace(*answers: dict[int, Any], steps: list[str] | None = None) -> Trace:
    done: list[Step] = [{"do": do, "by": f"p{number}"} for number, do in enumerate(steps or ["beat"] * len(answers))]
    return Trace(done, list(answers), [LOOK] * len(answers))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_reply_and_every_group_state_is_compared(file: Path) -> None:
    chance = Random(1)
    for recorded in read(file)[1]:
        assert first_difference(recorded, recorded) is None
        for at, answers in enumerate(recorded.answers):
            for number, answer in answers.items():
                changed = copied_trace(recorded)
                key = chance.choice([*sorted(answer), "more"])
                changed.answers[at][number] = answer | {key: "else"}
                assert first_difference(changed, recorded), (at, number, key)
        at = chance.randrange(len(recorded.group_states))
        changed = copied_trace(recorded)
        changed.group_states[at] = changed.group_states[at] | {"g": ["Strange", "", "", []]}
        assert first_difference(changed, recorded) == Difference(at, "look", changed.group_states[at]["g"], recorded.group_states[at]["g"])


def copied_trace(original: Trace) -> Trace:
    return Trace(original.steps, copy.deepcopy(original.answers), copy.deepcopy(original.group_states))


def test_a_missing_reply_is_a_difference() -> None:
    assert first_difference(trace({}, {}), trace({}, {0: ANSWERED})) == Difference(1, "beat", NO_ANSWER, ANSWERED)


def test_an_answer_to_a_request_that_kafka_parks_is_a_difference() -> None:
    assert first_difference(trace({0: ANSWERED}, {}), trace({}, {})) == Difference(0, "beat", ANSWERED, NO_ANSWER)


def test_a_slightly_later_reply_is_no_difference() -> None:
    assert first_difference(trace({}, {0: ANSWERED, 1: LEFT}), trace({0: ANSWERED}, {1: LEFT})) is None


def test_a_reply_one_tick_later_is_a_difference() -> None:
    steps = ["beat", "tick"]
    assert first_difference(trace({}, {0: ANSWERED}, steps=steps), trace({0: ANSWERED}, {}, steps=steps))


def test_a_parked_sync_is_answered_when_its_member_leaves() -> None:
    ours, kafkas = trace({}, {0: LEFT, 1: ANSWERED}, steps=["sync", "leave"]), trace({}, {1: ANSWERED}, steps=["sync", "leave"])
    assert first_difference(ours, kafkas) is None
    assert occurring(ours, kafkas) == {"Z1"}


def test_a_parked_sync_with_another_reply_is_a_difference() -> None:
    ours, kafkas = trace({}, {0: {"error_code": 22}}, steps=["sync", "leave"]), trace({}, {}, steps=["sync", "leave"])
    assert first_difference(ours, kafkas)
    ours, kafkas = trace({}, {0: LEFT}, steps=["sync", "beat"]), trace({}, {}, steps=["sync", "beat"])
    assert first_difference(ours, kafkas)


def joined(leader: str, *members: str, generation: int) -> dict[int, Any]:
    answers = {}
    for number, member in enumerate(members):
        answers[number] = {"error_code": 0, "generation_id": generation, "leader": leader, "member_id": member}
    return answers


def test_any_survivor_may_lead() -> None:
    first = joined("p0#p0.1", "p0#p0.1", "p1#p1.1", "p2#p2.1", generation=1)
    second = [{number + 2: answer for number, answer in joined(leader, "p1#p1.1", "p2#p2.1", generation=2).items()} for leader in ("p1#p1.1", "p2#p2.1")]
    ours, kafkas = [trace({}, first, {}, answers, steps=["join"] * 4) for answers in second]
    assert first_difference(ours, kafkas) is None
    assert occurring(ours, kafkas) == {"free choice"}


def test_a_leader_that_came_back_leads() -> None:
    first = joined("p0#p0.1", "p0#p0.1", "p1#p1.1", generation=1)
    second = [{number + 2: answer for number, answer in joined(leader, "p0#p0.1", "p1#p1.1", generation=2).items()} for leader in ("p0#p0.1", "p1#p1.1")]
    ours, kafkas = [trace({}, first, {}, answers, steps=["join"] * 4) for answers in second]
    assert first_difference(ours, kafkas)


def test_nothing_is_compared_after_a_taint() -> None:
    kafkas = trace({0: ANSWERED}, {1: ANSWERED}, {2: ANSWERED})
    kafkas.tainted = (1, "Z3")
    assert first_difference(trace({0: ANSWERED}, {1: ANSWERED}, {2: LEFT}), kafkas) is None
    assert first_difference(trace({0: LEFT}, {1: ANSWERED}, {2: LEFT}), kafkas)


def test_a_difference_is_real_if_no_play_of_kafka_has_our_result() -> None:
    good, different, bad = trace({0: ANSWERED}), trace({0: LEFT}), trace({0: {"error_code": 22}})
    assert real_difference([good, bad], [good, different]) is None
    assert real_difference([different], [good, different]) is None
    assert real_difference([bad, bad], [good, different])


def test_member_ids_are_replaced_by_the_names_of_their_members() -> None:
    member = "i1-0b8a3f2e-6c1d-4f7a-9b2e-3d4c5b6a7988"
    naming = Naming("q1.", 9092, {member: "p1@3"})
    assert naming.renamed([member, "q1.g", "zz-0b8a3f2e-6c1d-4f7a-9b2e-3d4c5b6a7988"]) == ["i1-#p1@3", "g", "zz-#lost"]
    assert naming.renamed("i1-0b8a3f2e-6c1d-1f7a-9b2e-3d4c5b6a7988") != "i1-#p1@3", "that is no random UUID"


class FakeServers:
    """Servers at which a sequence differs if a heartbeat of p3 follows a join of p1."""

    def __init__(self) -> None:
        self.plays = 0

    async def find(self, steps: list[Step]) -> FoundDifference | None:
        self.plays += 1
        kinds = [(step["do"], step.get("by")) for step in steps]
        if ("join", "p1") not in kinds or kinds[-1] != ("beat", "p3"):
            return None
        same = Trace(steps, [{}] * len(steps), [{}] * len(steps))
        return FoundDifference(steps, Difference(len(steps) - 1, "beat", LEFT, ANSWERED), same, same)

    async def find_all(self, candidates: list[list[Step]]) -> list[FoundDifference | None]:
        return [await self.find(steps) for steps in candidates]


@pytest.mark.asyncio
async def test_a_find_is_shrunk_to_the_steps_it_needs() -> None:
    plain = {"v": 9, "member": "", "type": "consumer", "protocols": [["a", "m"]], "session": 31_600, "rebalance": 61_640}
    steps: list[Step] = [{"do": "join", "by": f"p{number % 4}", **plain} for number in range(21)]
    steps.append({"do": "beat", "by": "p3", "v": 4, "member": "", "generation": 1})
    servers = FakeServers()
    find = await servers.find(steps)
    assert find is not None
    short = await shrunk(servers, find, {11: (0, 9), 12: (0, 4)}, lambda line: None)
    assert [(step["do"], step["by"]) for step in short.steps] == [("join", "p1"), ("beat", "p3")]


def test_rare_mistakes_are_chosen_first() -> None:
    recipes, chance = MistakeCounts(), Random(1)
    kinds = [("join", str(number)) for number in range(10)]
    for _ in range(100):
        recipes.rarest(chance, kinds, "Stable")
    counts = [recipes.made[("Stable", *kind)] for kind in kinds]
    assert min(counts) > 5
