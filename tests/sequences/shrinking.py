"""Find the shortest sequence that still differs in the same way: omit steps, then simplify the remaining ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from tests.sequences.hunting import FoundDifference, Say
from tests.sequences.player import playable
from tests.sequences.steps import KEYS, Step
from tests.sequences.wire import Versions

AT_ONCE = 24
ROUNDS_MAX = 30


class FindsDifferences(Protocol):
    async def find_all(self, candidates: list[list[Step]]) -> list[FoundDifference | None]: ...


async def shrunk(servers: FindsDifferences, find: FoundDifference, versions: Versions, say: Say) -> FoundDifference:
    """Try shorter candidates, then simpler ones, several at once; continue with the first that still differs in the same way."""
    best = find
    for _ in range(ROUNDS_MAX):
        better = await first_of(servers, shorter(best.steps), best)
        if better is None:
            break
        best = better
        say(f"  {len(best.steps)} steps")
    for _ in range(ROUNDS_MAX):
        better = await first_of(servers, plainer(best.steps, versions), best)
        if better is None:
            break
        best = better
    return best


async def first_of(servers: FindsDifferences, candidates: Iterator[list[Step]], best: FoundDifference) -> FoundDifference | None:
    while candidates_now := [steps for _, steps in zip(range(AT_ONCE), candidates, strict=False)]:
        for candidate_find in await servers.find_all(candidates_now):
            if candidate_find is not None and candidate_find.difference.signature == best.difference.signature:
                candidate_find.steps = candidate_find.steps[: candidate_find.difference.step + 1]
                return candidate_find
    return None


def shorter(steps: list[Step]) -> Iterator[list[Step]]:
    """Sequences with a part of the steps left out, large parts first. The last step, which shows the difference, stays."""
    size = max(1, (len(steps) - 1) // 2)
    while size:
        for begin in range(0, len(steps) - 1, size):
            end = min(begin + size, len(steps) - 1)
            yield steps[:begin] + steps[end:]
        size //= 2


def plainer(steps: list[Step], versions: Versions) -> Iterator[list[Step]]:
    for number, step in enumerate(steps):
        for simple in simpler(step, versions):
            if simple != step and playable(simple):
                yield [*steps[:number], simple, *steps[number + 1 :]]


def simpler(step: Step, versions: Versions) -> Iterator[Step]:
    do = step["do"]
    if do == "tick":
        if step.get("n", 1) > 1:
            yield step | {"n": 1}
        return
    if do in KEYS and step["v"] != versions[KEYS[do]][1]:
        yield step | {"v": versions[KEYS[do]][1]}
    if do == "join":
        if len(step["protocols"]) > 1:
            yield step | {"protocols": step["protocols"][:1]}
        if any(text != "m" for _, text in step["protocols"]):
            yield step | {"protocols": [[name, "m"] for name, _ in step["protocols"]]}
        if step["session"] != 31_600:
            yield step | {"session": 31_600}
        if step["rebalance"] != 61_640:
            yield step | {"rebalance": 61_640}
    for name in ("offsets", "groups", "members", "assign"):
        if isinstance(step.get(name), list) and len(step[name]) > 1:
            yield step | {name: step[name][:1]}
            yield step | {name: step[name][-1:]}
    if step.get("instance") is not None:
        yield {name: value for name, value in step.items() if name != "instance"}
