"""The replies seen in each state of the group, and those that are missing."""

from __future__ import annotations

from collections import Counter

from tests.sequences.traces import Trace

STATES = ("Dead", "Empty", "PreparingRebalance", "CompletingRebalance", "Stable")
D, E, P, C, S = STATES

# The replies that the rules allow, by the state of the group at the request ("" is any).
REACHABLE: dict[str, dict[str, tuple[int, ...]]] = {
    "join": {
        "": (24, 26), D: (0, 23, 25, 79), E: (0, -1, 23, 25, 79), P: (0, -1, 23, 25, 79, 82), C: (0, -1, 23, 25, 79, 82), S: (0, -1, 23, 25, 79, 82),
    },
    "sync": {"": (24,), D: (23, 25), E: (23, 25), P: (22, 23, 25, 27, 82), C: (0, 22, 23, 25, 27, 82), S: (0, 22, 23, 25, 82)},
    "beat": {"": (24,), D: (25,), E: (25,), P: (22, 25, 27, 82), C: (0, 22, 25, 82), S: (0, 22, 25, 82)},
    "leave": {"": (24,), D: (0, 25), E: (0, 25), P: (0, 25, 82), C: (0, 25, 82), S: (0, 25, 82)},
    "commit": {D: (0, 3, 12, 22, 69), E: (0, 3, 12, 25), P: (0, 3, 22, 25, 82), C: (3, 22, 25, 27, 82), S: (0, 3, 12, 22, 25, 82)},
    "fetch": {"": (0,)},
    "forget": {D: (69,), E: (0, 3), P: (3, 68, 86), C: (3, 68, 86), S: (0, 3, 68, 86)},
    "describe": {"": (0, 69)},
    "list": {"": (0,)},
    "delete": {D: (69,), E: (0,), P: (68,), C: (68,), S: (68,)},
    "find": {"": (0, 42)},
}  # fmt: skip
IN_A_FULL_WORLD = {"join": {P: (81,), C: (81,), S: (81,)}}
Key = tuple[str, str, int]


class Coverage:
    __slots__ = ("requests", "seen", "sequences", "steps")

    def __init__(self) -> None:
        self.sequences = 0
        self.steps = 0
        self.requests: Counter[str] = Counter()
        self.seen: Counter[Key] = Counter()

    def add(self, trace: Trace) -> None:
        self.sequences += 1
        self.steps += len(trace.steps)
        self.requests.update(step["do"] for step in trace.steps)
        for answers in trace.answers:
            for number, answer in answers.items():
                step = trace.steps[number]
                look = trace.group_states[number - 1] if number else {}
                if isinstance(answer, dict):
                    for state, code in codes(step, answer, look):
                        self.seen[(step["do"], state, code)] += 1

    def missing(self, full: bool) -> list[Key]:
        expected = [(do, state, code) for do, states in REACHABLE.items() for state, codes_of_state in states.items() for code in codes_of_state]
        if full:
            expected += [(do, state, code) for do, states in IN_A_FULL_WORLD.items() for state, codes_of_state in states.items() for code in codes_of_state]
        return [key for key in expected if not self._saw(*key)]

    def _saw(self, do: str, state: str, code: int) -> bool:
        return any(key[0] == do and key[2] == code and state in ("", key[1]) for key in self.seen)

    def lines(self, full: bool) -> list[str]:
        lines = [f"{self.sequences} sequences, {self.steps} steps: " + ", ".join(f"{do} {count}" for do, count in self.requests.most_common())]
        for do in REACHABLE:
            for state in STATES:
                counts = sorted((code, count) for (request, state_name, code), count in self.seen.items() if (request, state_name) == (do, state))
                if counts:
                    lines.append(f"  {do:9}{state:20}" + "  ".join(f"{code}: {count}" for code, count in counts))
        missing = self.missing(full)
        lines.append(f"not reached ({len(missing)}): " + (", ".join(f"{do} {code} in {state or 'any state'}" for do, state, code in missing) or "none"))
        return lines


def codes(step: dict, answer: dict, look: dict) -> list[tuple[str, int]]:  # type: ignore[type-arg]
    """Every error code in the reply, with the state of its group."""

    def state(group: str) -> str:
        return look.get(group, [D])[0] or D

    state_of_group = state(step.get("group", "g"))
    do = step["do"]
    if do == "delete":
        return [(state(result.get("group_id", "")), result["error_code"]) for result in answer.get("results", [])]
    if do == "describe":
        return [(state(result.get("group_id", "")), result["error_code"]) for result in answer.get("groups", [])]
    if do == "leave" and answer["error_code"] == 0 and answer.get("members"):
        return [(state_of_group, result["error_code"]) for result in answer["members"]]
    if do in ("commit", "forget") and not answer.get("error_code"):
        return [(state_of_group, part["error_code"]) for topic in answer.get("topics", []) for part in topic.get("partitions", [])]
    if do == "find" and "coordinators" in answer:
        return [(state_of_group, result["error_code"]) for result in answer["coordinators"]]
    return [(state_of_group, answer.get("error_code", 0))]
