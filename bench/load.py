"""Runs of the load generators (kgload, kgdata), and the comparison of floor and brokers over several rounds."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

from bench.machine import Cores, pinned
from bench.native import Tools
from bench.rows import CONNECTIONS, CPU_FIELD, OF_KAFKA_AT_MOST, LoadRow
from bench.servers import Server, broker, floor, served_versions
from bench.witness import Witness, measure_alternately

SETUP_SECONDS = 150
WARMUP_SECONDS = 0.3
SLACK_SECONDS = 15.0
# Kafka is warm when its cost no longer falls: two consecutive laps over all rows each cost at least WARM_LAP_RATIO_MIN times the cheapest lap before.
LAP_SECONDS = 3.0
WARM_LAP_RATIO_MIN = 0.98
WARM_UP_SECONDS_MIN, WARM_UP_SECONDS_MAX = 60.0, 420.0
OUR_BROKERS = ("ours", "compiled", "always")  # "always": with offsets.flush=always
KEPT_FIELDS = ("requests", "rps", "p50_us", "p99_us", "p999_us", CPU_FIELD, "srv_util", "gen_util", "srv_rss_mb")

Sample = dict[str, Any]


class LoadError(Exception):
    """A server closed a connection, a reply was wrong or missing, or the generator failed."""


def generate(program: Path, core: int | None, server: Server, arguments: tuple[str, ...], seconds: float) -> Sample:
    """One run of kgload or kgdata; raises LoadError if a reply was lost or malformed."""
    bound = SETUP_SECONDS + WARMUP_SECONDS + seconds + SLACK_SECONDS
    with pinned(core):
        try:
            done = subprocess.run(
                command_line(program, server, arguments, seconds),
                capture_output=True, text=True, timeout=bound, check=False, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise LoadError(f"{program.name} did not end within {bound:.0f} s") from None
    return parse_result(program.name, done.returncode, done.stdout, done.stderr)


def command_line(program: Path, server: Server, arguments: tuple[str, ...], seconds: float) -> list[str]:
    command = [str(program), "-p", str(server.port), "--pid", str(server.pid), "--setup-limit", str(SETUP_SECONDS)]
    return [*command, "-W", str(WARMUP_SECONDS), "-t", str(seconds), "--json", *arguments]


def parse_result(name: str, code: int, out: str, errors: str) -> Sample:
    """The result that a generator printed; raises LoadError with its message if it failed."""
    if code == 0:
        sample: Sample = json.loads(out)
        return sample
    messages = errors.strip().splitlines()
    counted = json.loads(out) if out.startswith("{") else {}
    failures = [f"{counted[count]} {count}" for count in ("errors", "lost_conns", "malformed") if counted.get(count)]
    raise LoadError("; ".join(failures + messages[-1:]) or f"{name} ended with {code}")


def without_groups(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments for the floor, which only pretends to be a broker: no members join, no topics are created."""
    return (*arguments, "-s", "none", "--no-preflight")


class Comparison:
    """Measures rows of the table of loads (`LoadRow`): the servers all run at the same time, and the load goes to one after the other in turn."""

    def __init__(self, tools: Tools, cores: Cores, rounds: int, seconds: float, patience: float, witness: Witness) -> None:
        self._tools = tools
        self._cores = cores
        self._rounds = rounds
        self._seconds = seconds
        self._patience = patience
        self._witness = witness

    def measure_row(self, row: LoadRow, others: dict[str, Server]) -> dict[str, Any]:
        """Measure one row on the floor and each server that supports it, alternately. A row that our broker does not support has no figures of it.

        If the requests are stored, a second broker, which flushes before it replies, is measured as well.
        """
        with self._pair() as (bottom, ours), ExitStack() as stack:
            missing = row.missing(served_versions(ours.port))
            subjects = {} if missing else {"ours": ours}
            if row.stored and not missing:
                subjects["always"] = stack.enter_context(broker(self._cores.server, "offsets.flush=always"))
            subjects |= {name: other for name, other in others.items() if not row.missing(served_versions(other.port))}
            result = self._compare(row, bottom, subjects)
            return result | ({"status": "not served yet", "missing": missing} if missing else {"status": "measured"})

    def _compare(self, row: LoadRow, bottom: Server, subjects: dict[str, Server]) -> dict[str, Any]:
        if not subjects:
            return {}
        servers = {"floor": bottom, **subjects}
        lost: dict[str, str] = {}
        seconds = max(self._seconds, row.seconds_min)

        def measure(name: str, number: int) -> Sample | None:
            # New names in each round, so that no group has members of an earlier round.
            arguments = (*row.arguments, "--group", f"{row.name}-{number}", "--topic", row.name)
            arguments = without_groups(arguments) if name == "floor" else (*arguments, *row.broker)
            try:
                return self._run(servers[name], arguments, seconds)
            except LoadError as error:
                if name == "floor" or name in OUR_BROKERS:
                    raise
                lost[name] = str(error)  # only failures of our broker end the row
                return None

        rounds = measure_alternately(self._witness, self._rounds, self._patience, lambda: [name for name in servers if name not in lost], measure)
        counts = {"calm": rounds.calm, "taken": rounds.taken, "calm_enough": rounds.calm_enough}
        return compared(row, rounds.samples) | {"rounds": counts} | {f"{name}_failed": reason for name, reason in lost.items()}

    def warm_up(self, server: Server, chosen: list[LoadRow]) -> list[float]:
        """Run the loads of the chosen rows on Kafka, in laps, until the cost of a request no longer falls.

        Returns the cost in each lap, relative to the first lap.
        """
        served = served_versions(server.port)
        warming = [row for row in chosen if not row.paced and not row.missing(served)] or [row for row in chosen if not row.missing(served)]
        laps: list[float] = []
        first: dict[str, float] = {}
        begin = monotonic()
        while warming and not is_warm(laps, monotonic() - begin):
            costs = []
            for row in warming:
                names = ("--group", f"warm-up-{row.name}-{len(laps)}", "--topic", f"warm-up-{row.name}")
                cost = self._run(server, (*row.arguments, *row.broker, *names), LAP_SECONDS)[CPU_FIELD]
                costs.append(cost / first.setdefault(row.name, cost))
            laps.append(sum(costs) / len(costs))
        return laps

    def connect(self, event_loop: str) -> dict[str, list[Sample]]:
        """Handshakes of many connections at once, on a new broker each time, as when all clients reconnect after a restart."""
        samples: dict[str, list[Sample]] = {"floor": [], "ours": []}
        arguments = ("-c", str(CONNECTIONS), "--handshake")
        for _ in range(self._rounds):
            with self._pair(f"event.loop={event_loop}") as (bottom, ours):
                samples["floor"].append(self._run(bottom, arguments, 0))
                samples["ours"].append(self._run(ours, arguments, 0))
        return samples

    def _run(self, server: Server, arguments: tuple[str, ...], seconds: float) -> Sample:
        return generate(self._tools.kgload, self._cores.generator, server, arguments, seconds)

    @contextmanager
    def _pair(self, *settings: str) -> Iterator[tuple[Server, Server]]:
        with floor(self._tools.kgfloor, self._cores.server) as bottom, broker(self._cores.server, *settings) as ours:
            yield bottom, ours


def is_warm(laps: list[float], seconds: float) -> bool:
    """Whether the cost of the laps no longer falls, or the time is up."""
    if seconds >= WARM_UP_SECONDS_MAX:
        return True
    best = min(laps[:-2], default=0.0)
    return len(laps) > 2 and seconds >= WARM_UP_SECONDS_MIN and all(lap >= WARM_LAP_RATIO_MIN * best for lap in laps[-2:])


def compared(row: LoadRow, samples: dict[str, list[Sample]]) -> dict[str, Any]:
    """The ratios to the floor within each round (a slow moment of the machine affects both sides), and the medians of these ratios.

    For processor time also the ratio of the minima over all rounds: other load on the machine can only increase a cost.
    """
    floors = samples["floor"]
    result: dict[str, Any] = {name: summary(taken) for name, taken in samples.items()}
    costs = [sample[CPU_FIELD] for sample in floors]
    result["floor_spread"] = (max(costs) - min(costs)) / median(costs)
    result["metrics"] = []
    for metric in row.metrics:
        entry: dict[str, Any] = {"metric": metric.name, "field": metric.field}
        entry["targets"] = metric.targets._asdict() if metric.targets else None
        for name in samples:
            if name != "floor":
                entry[name] = ratios(samples[name], floors, metric.field)
                if metric.field == CPU_FIELD:
                    entry[name]["least"] = min(sample[CPU_FIELD] for sample in samples[name]) / (min(costs) or 1e-9)
                    if "kafka" in samples and name in OF_KAFKA_AT_MOST:
                        entry[name]["of_kafka"] = ratios(samples[name], samples["kafka"], CPU_FIELD)["median"]
        result["metrics"].append(entry)
    if "ours" in samples:
        if "always" in samples:
            result["always_to_interval"] = ratios(samples["always"], samples["ours"], CPU_FIELD)
        result["beside"] = {field: ratios(samples["ours"], floors, field)["median"] for field in ("rps", "p50_us", "p99_us")}
    return result


def ratios(ours: list[Sample], floors: list[Sample], field: str) -> dict[str, Any]:
    each = [our[field] / (below[field] or 1e-9) for our, below in zip(ours, floors, strict=True)]
    return spread(each)


def spread(each: list[float]) -> dict[str, Any]:
    return {"median": median(each), "min": min(each), "max": max(each), "rounds": each}


def summary(samples: list[Sample]) -> dict[str, float]:
    return {field: median(sample[field] for sample in samples) for field in KEPT_FIELDS}
