"""The command line of the simulator."""

from __future__ import annotations

import argparse
import gc
import math
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from broker.runtime.build import build
from simulator.cluster_plan import with_nodes
from simulator.cluster_run import new_run
from simulator.drawing import draw, with_deletions
from simulator.epoch_drawing import with_epochs
from simulator.explain import explain
from simulator.plan import Plan
from simulator.world import SECOND, Broken, format_time

MILLION: Final = 1_000_000
LINES_SHOWN: Final = 40  # last lines of the trace, printed at a broken promise


class Outcome(NamedTuple):
    seed: int
    broken: str  # the promise and what broke it, or ""
    events: int
    virtual_ns: int
    digest: str
    seconds: float
    counts: dict[str, int]
    story: list[str]  # the last lines of the trace, if a promise was broken


class Limits(NamedTuple):
    """Limits of many runs: the events of each, and the seconds after which no run is started."""

    events: int | None
    seconds: float
    cpu_seconds: float


def main(arguments: Sequence[str]) -> int:
    """Exit code 0: every promise held; 1: one was broken; 2: the command line is wrong."""
    parser = argparse.ArgumentParser(prog="python -m simulator", description="Run brokers and clients in virtual time. One seed explains everything.")
    parser.add_argument("--seed", type=int, default=0, help="the seed of one run, or the first of many (default 0)")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="run N seeds, one after the other")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes to share the seeds")
    parser.add_argument("--nodes", type=int, metavar="N", help="nodes in each run; 0: two to four, as drawn (default: several in some runs)")
    parser.add_argument("--events", type=int, default=0, metavar="N", help="continue each run until it has simulated N events")
    parser.add_argument("--seconds", type=float, default=0, metavar="S", help="start no run after S seconds of real time")
    parser.add_argument("--cpu-seconds", type=float, default=0, metavar="S", help="start no run after S seconds of CPU time")
    parser.add_argument("--step", type=int, default=1, metavar="N", help="run every Nth seed; from 4 on, every 4th seed is about policies")
    parser.add_argument("--also", type=Path, metavar="FILE", help="first run the seeds of this file: a seed a line, and a comment")
    parser.add_argument("--stop", action="store_true", help="stop at the first broken promise")
    parser.add_argument("--quiet", action="store_true", help="do not print the trace of a single seed")
    parser.add_argument("--explain", action="store_true", help="if the seed breaks a promise, print the shortest story that leads to it")
    options = parser.parse_args(arguments)
    if min(options.seeds, options.jobs, options.step) < 1 or min(options.events, options.seconds, options.cpu_seconds) < 0:
        parser.error("numbers must be above 0")
    warnings.simplefilter("ignore", RuntimeWarning)  # coroutines of killed processes are never awaited
    gc.freeze()  # imported modules live as long as the process
    if options.explain:
        return explain(options.seed, options.events or None, options.nodes)
    known = read_seeds(options.also) if options.also is not None else []
    if options.seeds == 1 and not known:
        return run_one(options.seed, options.events or None, not options.quiet, options.nodes)
    seeds = [*known, *range(options.seed, options.seed + options.seeds * options.step, options.step)]
    limits = Limits(options.events or None, options.seconds or math.inf, options.cpu_seconds or math.inf)
    return run_many(seeds, options.jobs, limits, options.stop, options.nodes)


def run_one(seed: int, events: int | None, show: bool, nodes: int | None = None) -> int:
    outcome = simulate(seed, events, print_line if show else None, nodes)
    print_summary([outcome])
    return 1 if outcome.broken else 0


def print_line(line: str) -> None:
    """Print a line, or end the process if its output is closed (`| head`).

    An exception might not end it, since the simulated broker contains exceptions.
    """
    try:
        print(line)
    except BrokenPipeError:
        os._exit(1)


def simulate(seed: int, events: int | None = None, show: Callable[[str], object] | None = None, nodes: int | None = None) -> Outcome:
    return simulate_plan(plan_for(seed, events, nodes), events, show)


def plan_for(seed: int, events: int | None, nodes: int | None = None) -> Plan:
    """The plan of a seed. `events`: the phase with faults lasts until this number of events."""
    plan = with_epochs(with_deletions(with_nodes(draw(seed), nodes)))
    return plan if events is None else plan.lasting(1 << 40)


def simulate_plan(plan: Plan, events: int | None = None, show: Callable[[str], object] | None = None) -> Outcome:
    gc.disable()  # a run collects the garbage of killed processes itself
    began = time.process_time()
    run = new_run(plan, show)
    broken = ""
    try:
        run.run(events or 1 << 62)
    except Broken as error:
        broken = str(error)
        run.world.trace(f"BROKEN PROMISE: {error}", error.about)
    except Exception as error:  # most likely the broker sent a reply that the simulated client cannot handle
        last = traceback.extract_tb(error.__traceback__)[-1]
        broken = f"no defect: {error!r} in {Path(last.filename).name}, line {last.lineno}, at {format_time(run.world.now)}"
        for line in traceback.format_exc().splitlines():
            run.world.trace(line, "node")
        run.world.trace(f"BROKEN PROMISE: {broken}", "node")
    world = run.world
    gc.collect()
    story = [str(line) for line in list(world.lines)[-LINES_SHOWN:]] if broken else []
    return Outcome(plan.seed, broken, world.events, world.now, world.digest, time.process_time() - began, world.counts, story)


def run_many(seeds: Sequence[int], jobs: int, limits: Limits, stop: bool, nodes: int | None) -> int:
    """Run the seeds in processes; print a line for each broken promise and for each million of events, and a summary."""
    began = time.monotonic()
    until = began + limits.seconds
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(jobs) as pool:
        waiting = iter(seeds)
        running = {pool.submit(simulate, seed, limits.events, None, nodes) for seed in islice(waiting, 2 * jobs)}
        simulated, cpu_seconds = 0, 0.0
        while running:
            done = next(as_completed(running))
            running.discard(done)
            outcome = done.result()
            outcomes.append(outcome)
            simulated, before = simulated + outcome.events, simulated
            if simulated // MILLION > before // MILLION:
                print(f"{simulated // MILLION} million events", flush=True)
            cpu_seconds += outcome.seconds
            if outcome.broken:
                print(f"seed {outcome.seed}: {outcome.broken}", flush=True)
                if stop:
                    processes = list(pool._processes.values())
                    pool.shutdown(wait=False, cancel_futures=True)
                    for process in processes:
                        process.kill()
                    break
            if time.monotonic() < until and cpu_seconds < limits.cpu_seconds:
                running |= {pool.submit(simulate, seed, limits.events, None, nodes) for seed in islice(waiting, 1)}
    print_summary(sorted(outcomes))
    seconds = time.monotonic() - began
    print(f"{seconds:.0f} s on the clock with {jobs} processes: {simulated / seconds / jobs:.0f} events/s each")
    return 1 if any(outcome.broken for outcome in outcomes) else 0


def read_seeds(path: Path) -> list[int]:
    return [int(line.split()[0]) for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]


def print_summary(outcomes: list[Outcome]) -> None:
    events = sum(outcome.events for outcome in outcomes)
    virtual = sum(outcome.virtual_ns for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes)
    counts: dict[str, int] = {}
    for outcome in outcomes:
        for name, count in outcome.counts.items():
            counts[name] = counts.get(name, 0) + count
    broken = [outcome for outcome in outcomes if outcome.broken]
    if len(outcomes) == 1:
        print(f"seed {outcomes[0].seed}, digest {outcomes[0].digest}")
    print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    print(
        f"{build()}: {len(outcomes)} seeds, {events} events in {format_time(virtual)} of virtual time ({virtual / SECOND / 86_400:.2f} days), "
        f"{seconds:.1f} s of CPU time ({events / max(seconds, 0.001):.0f} events/s); promises broken: {len(broken)}"
    )
    for outcome in broken:
        print(f"seed {outcome.seed}: {outcome.broken}")
    if broken:
        print(f"python -m simulator --seed {broken[0].seed} --explain    prints the story of the first", file=sys.stderr)

