"""`--explain`: the shortest story that leads to a broken promise.

The search repeats the run with smaller plans, which leave out half of the groups or one group, half of the kinds of faults or one kind,
and so on, as long as a smaller plan breaks the same promise. The story is the trace of the smallest run, with the requests of the
clients of the concerned group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any, Final, TypeVar

from simulator.cluster_run import new_run
from simulator.epoch_drawing import FAULTS as EPOCH_FAULTS
from simulator.epoch_plan import EpochGroupPlan, EpochPlan
from simulator.faults import FAULTS
from simulator.plan import Plan
from simulator.story import print_story
from simulator.world import SECOND, Broken, World

T = TypeVar("T")

EXTRA_NS: Final = 60 * SECOND  # a smaller run may take longer to break the promise


def explain(seed: int, events: int | None, nodes: int | None = None) -> int:
    from simulator.command import plan_for

    plan = plan_for(seed, events, nodes)
    first = broken_by(plan, events)
    if first is None:
        print(f"seed {seed} keeps every promise")
        return 0
    broken, world = first
    print(f"seed {seed} breaks a promise after {world.events} events: {broken}")
    tries = 1
    smaller = True
    while smaller:
        smaller = False
        limit = 2 * world.now + EXTRA_NS
        for reduced in reductions(plan, broken.about):
            tries += 1
            outcome = broken_by(reduced, events, limit=limit)
            if outcome is not None and outcome[0].promise == broken.promise:
                plan, (broken, world) = reduced, outcome
                smaller = True
                break
    print(f"\nThe smallest run that breaks the same promise ({tries} runs tried; its members, ids and times are others):")
    for text in new_run(plan).lines():
        print(f"  {text}")
    print()
    _, world = broken_by(plan, events, traced=clients_of(broken.about)) or (broken, world)
    print_story(world, broken)
    return 1


class TimeLimitReached(Exception):
    """A smaller run has not broken the promise within its limit."""


def stop_run() -> None:
    raise TimeLimitReached


def clients_of(about: str) -> Collection[str]:
    """The clients whose requests explain a broken promise: those of the group, or the producer, reader and deleter of the topic."""
    number = about.removeprefix("data")
    return (f"producer-{number}", f"reader-{number}", f"deleter-{number}") if number != about else (about,) if about else ()


def broken_by(plan: Plan, events: int | None, *, traced: Collection[str] = (), limit: int = 0) -> tuple[Broken, World] | None:
    """The promise that the run breaks, or None. `limit`: the longest time of the run, in virtual nanoseconds; 0: none."""
    run = new_run(plan)
    run.world.traced_clients = traced
    if limit:
        run.world.at(limit, stop_run)
    try:
        run.run(events or 1 << 62)
    except Broken as broken:
        return broken, run.world
    except TimeLimitReached:
        return None
    return None


def parts_removed(items: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    """Yield the items without one half of them, then without each quarter, and so on down to each single item."""
    size = (len(items) + 1) // 2
    while items:
        for start in range(0, len(items), size):
            yield items[:start] + items[start + size :]
        if size == 1:
            break
        size = (size + 1) // 2


def with_faults(plan: Plan, faults: tuple[str, ...]) -> Plan:
    """The same plan with only these of its kinds of faults."""
    rates: dict[str, Any] = {fault.rate: 0.0 for fault in FAULTS if fault.rate and fault.name in set(plan.faults) - set(faults)}
    return replace(plan, faults=faults, **rates)


def reductions(plan: Plan, about: str = "") -> Iterator[Plan]:
    """Smaller plans, each with one reduction. `about`: the group of the broken promise. The first plan has only that group."""
    only = tuple(group for group in plan.groups if group.name == about)
    if len(plan.groups) > 1:
        if only:
            yield replace(plan, groups=only)
        for groups in parts_removed(plan.groups):
            if groups:
                yield replace(plan, groups=groups)
    if plan.epochs is not None:
        yield from fewer_epochs(plan, plan.epochs, about)
    if plan.nodes > 2:
        yield replace(plan, nodes=2)
    if plan.producers:
        yield replace(plan, producers=0)
    if plan.policies is not None:
        yield replace(plan, policies=None)
    for setting in plan.broker:
        if setting.startswith("group.policy."):
            yield replace(plan, broker={name: value for name, value in plan.broker.items() if name != setting})
    for faults in parts_removed(plan.faults):
        yield with_faults(plan, faults)
    rare_kinds = ("late_syncs", "abandoned_ids", "offset_resets", "torn", "varied_sessions", "new_user_data", "abandoned_ids_leave", "deletes_records")
    for rare in rare_kinds:
        if getattr(plan, rare):
            yield replace(plan, **{rare: type(getattr(plan, rare))()})
    for number, group in enumerate(plan.groups):
        for name in ("static", "dynamic"):
            if getattr(group, name):
                fewer = replace(group, **{name: getattr(group, name) - 1})
                if fewer.static + fewer.dynamic:
                    yield replace(plan, groups=(*plan.groups[:number], fewer, *plan.groups[number + 1 :]))
    if plan.partitions > 1:
        yield replace(plan, partitions=1)


def fewer_epochs(plan: Plan, epochs: EpochPlan, about: str) -> Iterator[Plan]:
    """Smaller plans, each with less of the groups of the consumer protocol."""
    only = tuple(group for group in epochs.groups if group.name == about)
    if not only:
        yield replace(plan, epochs=None, faults=tuple(fault for fault in plan.faults if fault not in EPOCH_FAULTS))
    elif len(epochs.groups) > 1:
        yield replace(plan, epochs=replace(epochs, groups=only))
    if only and plan.groups:
        yield replace(plan, groups=())
    for rare in ("changes", "hangs", "races", "stale"):
        if getattr(epochs, rare):
            never: dict[str, Any] = {rare: 0.0}
            yield replace(plan, epochs=replace(epochs, **never))
    for number, group in enumerate(epochs.groups):
        for name in ("static", "dynamic"):
            if getattr(group, name) and group.static + group.dynamic > 1:
                fewer: EpochGroupPlan = replace(group, **{name: getattr(group, name) - 1})
                yield replace(plan, epochs=replace(epochs, groups=(*epochs.groups[:number], fewer, *epochs.groups[number + 1 :])))
