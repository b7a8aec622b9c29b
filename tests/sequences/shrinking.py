"""Find the shortest sequence that still differs in the same way: omit steps, then simplify the remaining ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from tests.sequences.hunting import Find, Say
from tests.sequences.player import playable
from tests.sequences.steps import KEYS, Step
from tests.sequences.wire import Versions

AT_ONCE = 24
ROUNDS_MAX = 30


class Finding(Protocol):
    async def find_all(self, some: list[list[Step]]) -> list[Find | None]: ...


async def shrunk(arena: Finding, find: Find, versions: Versions, say: Say) -> Find:
    """Try all shorter candidates of a round at once, and continue with the first that differs."""
    found = find
    for _ in range(ROUNDS_MAX):
        better = await first_of(arena, shorter(found.steps), found)
        if better is None:
            break
        found = better
        say(f"  {len(found.steps)} steps")
    for _ in range(ROUNDS_MAX):
        better = await first_of(arena, plainer(found.steps, versions), found)
        if better is None:
            break
        found = better
    return found


async def first_of(arena: Finding, candidates: Iterator[list[Step]], found: Find) -> Find | None:
    while some := [steps for _, steps in zip(range(AT_ONCE), candidates, strict=False)]:
        for one in await arena.find_all(some):
            if one is not None and one.difference.signature == found.difference.signature:
                one.steps = one.steps[: one.difference.step + 1]
                return one
    return None


def shorter(steps: list[Step]) -> Iterator[list[Step]]:
    """Large pieces first. The last step shows the difference and stays."""
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
