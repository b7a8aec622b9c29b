"""The first difference between two traces of one sequence, and whether it is expected.

Some choices are free: the hash of random ids decides which remaining member becomes leader. If the two servers freely elected different
leaders, the comparison ends without a difference, as later steps have different causes. Z1, Z2, ... number our deliberate differences from
Kafka: DEVIATIONS lists some, and the player marks others as a taint of the trace. No other difference is accepted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.sequences.steps import Step
from tests.sequences.traces import LOST, Trace

NO_ANSWER = "no answer"
SHOWN_AFTER = 6  # steps
NEW = {"Empty", "PreparingRebalance", "CompletingRebalance"}


class Difference(NamedTuple):
    """A step, a field and both values. `explanation` names the deviation or free choice that explains the difference; "": none does."""

    step: int
    place: str
    ours: Any
    kafka_value: Any
    explanation: str = ""

    @property
    def signature(self) -> str:
        """A text that is equal for differences that probably have the same cause."""
        return f"{self.place} {code_of(self.ours)}/{code_of(self.kafka_value)}"


class Deviation(NamedTuple):
    """A case in which our broker answers and Kafka leaves the client waiting: the request, our replies, and the kinds of step at that time."""

    name: str
    do: str
    at: tuple[str, ...]
    ours: tuple[dict[str, Any], ...]

    def explains(self, request: Step, at: Step, ours: Any, kafkas: Any) -> bool:
        return kafkas == NO_ANSWER and request["do"] == self.do and at["do"] in self.at and ours in self.ours


DEVIATIONS = [
    Deviation("Z1", "sync", ("leave",), ({"error_code": 25},)),
    Deviation("Z2", "sync", ("sync",), ({"error_code": 27},)),
    Deviation("Z2", "join", ("join",), ({"error_code": 25}, {"error_code": 25, "protocol_name": None})),
]
# Three deviations taint a trace: from the tainted step on (`Trace.tainted`) nothing is compared. Z3: an unnecessary rebalance. Z13: after a kill Kafka has
# an old id of a member. Z17: Kafka shows a new group late. Deviations about failing or slow appends (Z4, Z19), loading (Z6), a first start
# (Z18) or malformed subscriptions (Z7) cannot occur here.


def differences(ours: Trace, kafkas: Trace) -> Iterator[Difference]:
    """All differences, in the order of the steps."""
    by_step: dict[int, list[Difference]] = {}
    length = min(len(ours.answers), len(kafkas.answers))  # a recording may have been cut short
    arrivals = [{number: at for at, answers in enumerate(trace.answers[:length]) for number in answers} for trace in (ours, kafkas)]
    for number in sorted(arrivals[0] | arrivals[1]):
        difference = answers_differ(ours, kafkas, number, arrivals[0].get(number), arrivals[1].get(number))
        if difference:
            by_step.setdefault(difference.step, []).append(difference)
    for at in range(length):
        if parted := free_choices_differ(ours, kafkas, at):
            yield parted
        yield from by_step.get(at, [])
        if ours.group_states[at] != kafkas.group_states[at] and ours.group_states[at]:
            yield from looks_differ(ours, kafkas, at)


def answers_differ(ours: Trace, kafkas: Trace, number: int, mine_at: int | None, theirs_at: int | None) -> Difference | None:
    at = min(step for step in (mine_at, theirs_at) if step is not None)
    request = kafkas.steps[number]
    if mine_at is not None and theirs_at is not None and (mine_at == theirs_at or are_adjacent(kafkas.steps, mine_at, theirs_at)):
        ours_answer, theirs = ours.answers[mine_at][number], kafkas.answers[theirs_at][number]
        return Difference(at, request["do"], ours_answer, theirs) if ours_answer != theirs else None
    ours_answer = ours.answers[at].get(number, NO_ANSWER)
    theirs = kafkas.answers[at].get(number, NO_ANSWER)
    never = theirs_at is None
    explanation = next((deviation.name for deviation in DEVIATIONS if never and deviation.explains(request, kafkas.steps[at], ours_answer, theirs)), "")
    return Difference(at, request["do"], ours_answer, theirs, explanation)


def looks_differ(ours: Trace, kafkas: Trace, at: int) -> Iterator[Difference]:
    for group, theirs in kafkas.group_states[at].items():
        our_look = ours.group_states[at].get(group)
        if our_look == theirs:
            continue
        # Z17: Kafka shows a new group once its record is committed, perhaps a moment after its reply; ours shows it from the reply on.
        soon = range(at + 1, min(at + 1 + SHOWN_AFTER, len(ours.group_states), len(kafkas.group_states)))
        states = {our_look[0], theirs[0]} if our_look else set()
        new = "Dead" in states and not states.isdisjoint(NEW)
        slow = new and any(ours.group_states[later_step].get(group) == kafkas.group_states[later_step][group] for later_step in soon)
        yield Difference(at, "look", our_look, theirs, "Z17" if slow else "")


def are_adjacent(steps: list[Step], first: int, second: int) -> bool:
    """Whether two steps are so close that a slightly late reply may have been recorded with the later one: no tick lies between them."""
    low, high = sorted((first, second))
    return high - low == 1 and steps[high]["do"] != "tick"


def free_choices_differ(ours: Trace, kafkas: Trace, at: int) -> Difference | None:
    """A difference with the two leaders, if the servers elected different leaders here and both had a free choice; else None."""
    for number, theirs in kafkas.answers[at].items():
        our_answer = ours.answers[at].get(number)
        if kafkas.steps[number]["do"] != "join" or not isinstance(our_answer, dict) or not isinstance(theirs, dict):
            continue
        if our_answer["error_code"] or theirs["error_code"] or our_answer.get("generation_id") != theirs.get("generation_id"):
            continue
        leaders = our_answer.get("leader", ""), theirs.get("leader", "")
        if leaders[0] == leaders[1]:
            continue
        group = kafkas.steps[number].get("group", "g")
        before = leader_before(kafkas, at, group)
        member_ids = {success["member_id"] for trace in (ours, kafkas) for success in successes(trace, at, group)}
        member_ids |= {member[0] for trace in (ours, kafkas) for member in trace.group_states[max(0, at - 1)].get(group, [[]] * 4)[3]}  # whose reply was not seen
        if before and not any(same_seat(before, leader) for leader in leaders) and all(leader in member_ids or leader.endswith(LOST) for leader in leaders):
            return Difference(at, "leader", leaders[0], leaders[1], "free choice")
    return None


def successes(trace: Trace, at: int, group: str) -> list[dict[str, Any]]:
    requests = trace.steps
    return [
        answer
        for number, answer in trace.answers[at].items()
        if requests[number]["do"] == "join" and requests[number].get("group", "g") == group and isinstance(answer, dict) and answer["error_code"] == 0
    ]


def leader_before(trace: Trace, at: int, group: str) -> str:
    for earlier in reversed(range(at)):
        for success in successes(trace, earlier, group):
            return str(success.get("leader", ""))
    return ""


def same_seat(first: str, second: str) -> bool:
    """Whether both are the same member, or member ids of the same instance. Only names of dynamic members begin with p."""
    return first == second or (not first.startswith("p") and first.partition("#")[0] == second.partition("#")[0])


def first_difference(ours: Trace, kafkas: Trace) -> Difference | None:
    """The first unexpected difference; the comparison ends at a different free choice, or a taint."""
    tainted = min((trace.tainted for trace in (ours, kafkas) if trace.tainted), default=None)
    for difference in differences(ours, kafkas):
        if tainted and difference.step >= tainted[0]:
            return None
        if difference.place == "leader" and difference.explanation:
            return None
        if not difference.explanation:
            return difference
    return None


def real_difference(ours: list[Trace], kafkas: list[Trace]) -> Difference | None:
    """A difference, if every play on ours differs from every play on Kafka: so it is neither chance nor a slow machine; else None."""
    worst: list[Difference] = []
    for trace in ours:
        against = [first_difference(trace, kafka) for kafka in kafkas]
        if None in against:
            return None
        worst.append(max((difference for difference in against if difference), key=lambda difference: difference.step))
    return min(worst, key=lambda difference: difference.step, default=None)


def code_of(answer: Any) -> str:
    if isinstance(answer, dict):
        inner = sorted({str(member.get("error_code")) for member in answer.get("members", []) if isinstance(member, dict) and "error_code" in member})
        return str(answer.get("error_code", "?")) + "".join(f"[{code}]" for code in inner)
    if isinstance(answer, list):
        return str(answer[0])
    return str(answer)


def occurring(ours: Trace, kafkas: Trace) -> set[str]:
    """The deviations that occur in this pair."""
    return {difference.explanation for difference in differences(ours, kafkas) if difference.explanation}
