"""The generators' runs, and the comparison of floor and brokers over several rounds."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from bench.machine import Cores, pinned
from bench.native import Tools
from bench.rows import CONNECTIONS, CPU_FIELD, LOAD_ROWS, LoadRow
from bench.servers import Server, broker, floor, served_versions
from bench.witness import Witness, in_turn

SETUP_SECONDS = 40
WARMUP_SECONDS = 0.3
SLACK_SECONDS = 15.0
WARMING = ("api-versions", "metadata", "heartbeat-200", "commit-10", "fetch-10")
OURS = ("ours", "always")
KEPT = ("requests", "rps", "p50_us", "p99_us", "p999_us", CPU_FIELD, "srv_util", "gen_util", "srv_rss_mb")

Sample = dict[str, Any]


class LoadError(Exception):
    """The broker lost a connection, answered wrongly or not at all."""


def generate(program: Path, core: int | None, server: Server, arguments: tuple[str, ...], seconds: float) -> Sample:
    """One run of kgload or kgdata; raises LoadError when anything was lost or malformed."""
    bound = SETUP_SECONDS + WARMUP_SECONDS + seconds + SLACK_SECONDS
    with pinned(core):
        try:
            done = subprocess.run(
                command_line(program, server, arguments, seconds),
                capture_output=True, text=True, timeout=bound, check=False, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise LoadError(f"{program.name} did not end within {bound:.0f} s") from None
    return taken(program.name, done.returncode, done.stdout, done.stderr)


def command_line(program: Path, server: Server, arguments: tuple[str, ...], seconds: float) -> list[str]:
    command = [str(program), "-p", str(server.port), "--pid", str(server.pid), "--setup-limit", str(SETUP_SECONDS)]
    return [*command, "-W", str(WARMUP_SECONDS), "-t", str(seconds), "--json", *arguments]


def taken(name: str, code: int, out: str, complaints: str) -> Sample:
    """What a generator found; LoadError with its own words when something was wrong."""
    if code == 0:
        sample: Sample = json.loads(out)
        return sample
    said = complaints.strip().splitlines()
    counted = json.loads(out) if out.startswith("{") else {}
    wrong = [f"{counted[count]} {count}" for count in ("errors", "lost_conns", "malformed") if counted.get(count)]
    raise LoadError("; ".join(wrong + said[-1:]) or f"{name} ended with {code}")


def without_groups(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """The same requests for a server that only pretends: no members join, no topics are made."""
    return (*arguments, "-s", "none", "--no-preflight")


class Comparison:
    """Runs rows of load; what is compared is alive side by side and measured in turn."""

    def __init__(self, tools: Tools, cores: Cores, rounds: int, seconds: float, patience: float, witness: Witness) -> None:
        self._tools = tools
        self._cores = cores
        self._rounds = rounds
        self._seconds = seconds
        self._patience = patience
        self._witness = witness

    def row(self, row: LoadRow, others: dict[str, Server]) -> dict[str, Any]:
        """One row: the floor, then each that serves it, and again; what the broker does not serve yet is told, not guessed.

        Where something is stored, a second broker of ours takes its turn too, whose replies wait until that is flushed.
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
            # Names of its own for each round: no group meets members that an earlier one left behind.
            arguments = (*row.arguments, "--group", f"{row.name}-{number}", "--topic", row.name)
            arguments = without_groups(arguments) if name == "floor" else (*arguments, *row.broker)
            try:
                return self._run(servers[name], arguments, seconds)
            except LoadError as error:
                if name == "floor" or name in OURS:
                    raise
                lost[name] = str(error)  # another broker's failure is no failure of ours
                return None

        found = in_turn(self._witness, self._rounds, self._patience, lambda: [name for name in servers if name not in lost], measure)
        counts = {"calm": found.calm, "taken": found.taken, "calm_enough": found.calm_enough}
        return compared(row, found.samples) | {"rounds": counts} | {f"{name}_failed": reason for name, reason in lost.items()}

    def warm_up(self, server: Server, seconds: float) -> None:
        """A JVM needs about a minute of load before its speed is its own."""
        for row in LOAD_ROWS:
            if row.name in WARMING and not row.missing(served_versions(server.port)):
                arguments = (*row.arguments, *row.broker, "--group", f"warm-up-{row.name}", "--topic", f"warm-up-{row.name}")
                self._run(server, arguments, seconds / len(WARMING))

    def connect(self, event_loop: str) -> dict[str, list[Sample]]:
        """Handshakes of many connections at once, on a fresh broker each time: that is when fleets reconnect."""
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


def compared(row: LoadRow, samples: dict[str, list[Sample]]) -> dict[str, Any]:
    """Ratios round by round, so that a slow moment of the machine is in both halves; then their medians.

    Of processor time also that of the least each needed: whatever else runs on a machine only ever adds to it.
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
                    entry[name]["least"] = min(one[CPU_FIELD] for one in samples[name]) / (min(costs) or 1e-9)
        result["metrics"].append(entry)
    if "ours" in samples:
        if "always" in samples:
            result["always_to_interval"] = ratios(samples["always"], samples["ours"], CPU_FIELD)
        result["beside"] = {field: ratios(samples["ours"], floors, field)["median"] for field in ("rps", "p50_us", "p99_us")}
    return result


def ratios(ours: list[Sample], floors: list[Sample], field: str) -> dict[str, Any]:
    each = [one[field] / (below[field] or 1e-9) for one, below in zip(ours, floors, strict=True)]
    return spread(each)


def spread(each: list[float]) -> dict[str, Any]:
    return {"median": median(each), "min": min(each), "max": max(each), "rounds": each}


def summary(samples: list[Sample]) -> dict[str, float]:
    return {field: median(sample[field] for sample in samples) for field in KEPT}
