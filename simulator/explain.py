"""`--explain`: the shortest story that leads to a broken promise.

The run is repeated with less and less: without each kind of fault, without each group, without producers, while the same promise is
still broken. What is left is told from the moment from which on it concerns the group or partition of the promise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from simulator.cluster_run import new_run
from simulator.plan import Plan
from simulator.tell import tell
from simulator.world import SECOND, Broken, World

PATIENCE_NS: Final = 60 * SECOND  # of smaller runs, which may take longer to break the promise


def explain(seed: int, events: int | None, nodes: int | None = None) -> int:
    from simulator.command import plan_for

    plan = plan_for(seed, events, nodes)
    found = broken_by(plan, events)
    if found is None:
        print(f"seed {seed} keeps every promise")
        return 0
    broken, world = found
    print(f"seed {seed} breaks a promise after {world.events} events: {broken}")
    tries = 1
    smaller = True
    while smaller:
        smaller = False
        limit = 2 * world.now + PATIENCE_NS
        for less in reductions(plan, broken.about):
            tries += 1
            again = broken_by(less, events, limit=limit)
            if again is not None and again[0].promise == broken.promise:
                plan, (broken, world) = less, again
                smaller = True
                break
    print(f"the same promise is broken by less ({tries} runs tried):")
    for text in plan.lines():
        print(f"  {text}")
    print()
    _, world = broken_by(plan, events, told=broken.about) or (broken, world)
    tell(world, broken)
    return 1


class GaveUp(Exception):
    """A smaller run goes on for too long."""


def give_up() -> None:
    raise GaveUp


def broken_by(plan: Plan, events: int | None, *, told: str = "", limit: int = 0) -> tuple[Broken, World] | None:
    """`told`: the group whose requests are told. `limit`: how long a run may last, in virtual time."""
    run = new_run(plan)
    run.world.told = told
    if limit:
        run.world.at(limit, give_up)
    try:
        run.run(events or 1 << 62)
    except Broken as broken:
        return broken, run.world
    except GaveUp:
        return None
    return None


def reductions(plan: Plan, about: str = "") -> Iterator[Plan]:
    """Smaller plans, each without one thing. `about`: a group that is probably enough."""
    only = tuple(group for group in plan.groups if group.name == about)
    if len(plan.groups) > 1:
        if only:
            yield replace(plan, groups=only)
        for group in plan.groups:
            yield replace(plan, groups=tuple(each for each in plan.groups if each is not group))
    if plan.nodes > 2:
        yield replace(plan, nodes=2)
    if plan.producers:
        yield replace(plan, producers=0)
    if plan.policies is not None:
        yield replace(plan, policies=None)
    for setting in plan.broker:
        if setting.startswith("group.policy."):
            yield replace(plan, broker={name: value for name, value in plan.broker.items() if name != setting})
    for fault in plan.faults:
        yield plan.without(fault)
    for number, group in enumerate(plan.groups):
        for name in ("static", "dynamic"):
            if getattr(group, name):
                fewer = replace(group, **{name: getattr(group, name) - 1})
                if fewer.static + fewer.dynamic:
                    yield replace(plan, groups=(*plan.groups[:number], fewer, *plan.groups[number + 1 :]))
    if plan.partitions > 1:
        yield replace(plan, partitions=1)
