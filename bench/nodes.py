"""`make bench ARGS="--nodes 2"`: processor time and throughput of several nodes, compared with one broker for the same requests.

One generator for each node sends the requests of a group that the node coordinates. The single broker gets the same number of groups from the
same number of generators. Both are measured alternately, and every figure is a ratio within one round. No process is pinned.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.load import SETUP_SECONDS, SLACK_SECONDS, WARMUP_SECONDS, LoadError, Sample, parse_result
from bench.native import Tools
from bench.rows import CPU_FIELD
from bench.servers import SETTINGS, broker
from tests.nodes.cluster import Nodes

CPU_AT_MOST = 1.1  # processor time of a request, summed over all processes, relative to one broker
MEMBERS = 100  # of each group, each on its own connection
ROWS = {"heartbeat": (), "commit": ("-w", "commit", "-P", "1", "--create-topics", "1")}
FIGURES = "us/request, requests/s, generators"
FIRST_GROUP = "-000000"  # kgload appends the group's number


class Round(NamedTuple):
    """The sums over all generators of one round."""

    cpu_us: float  # processor time of a request, of all processes of the broker
    rate: float  # requests a second
    generators: float  # share of all processor time that the generators used


class Target(NamedTuple):
    """The broker or node that a generator loads: its port and processes, and names of groups that it coordinates."""

    port: int
    pids: str
    nodes: Nodes | None = None  # None: one broker, which coordinates all groups
    id: int = 0

    def prefix(self, names: count[int]) -> str:
        candidates = map("bench-{}".format, names)
        nodes = self.nodes
        return next(name for name in candidates if nodes is None or nodes.coordinator(name + FIRST_GROUP, 1) == self.id)


def measure(tools: Tools, nodes: int, rounds: int, seconds: float) -> dict[str, list[tuple[Round, Round]]]:
    """Measure the rounds of each row, each on the one broker and on the nodes. Raises LoadError."""
    results: dict[str, list[tuple[Round, Round]]] = {row: [] for row in ROWS}
    with tempfile.TemporaryDirectory(prefix="tenure-bench-", ignore_cleanup_errors=True) as folder, broker(None) as broker_alone:
        cluster = Nodes(Path(folder) / "data", nodes, *SETTINGS)
        try:
            cluster.start()
            assert cluster.supervisor is not None
            on_broker = [Target(broker_alone.port, str(broker_alone.pid))] * nodes
            on_nodes = [Target(cluster.port(id), str(cluster.pid(id)), cluster, id) for id in cluster.ids]
            on_nodes[0] = on_nodes[0]._replace(pids=f"{on_nodes[0].pids},{cluster.supervisor.pid}")
            names = count()
            for row, arguments in ROWS.items():
                for _ in range(rounds):
                    pair = [run_round(tools.kgload, targets, arguments, seconds, names) for targets in (on_broker, on_nodes)]
                    results[row].append((pair[0], pair[1]))
        finally:
            cluster.close()
    return results


def run_round(program: Path, targets: Sequence[Target], arguments: tuple[str, ...], seconds: float, names: count[int]) -> Round:
    prefixes = [target.prefix(names) for target in targets]
    with ThreadPoolExecutor(len(targets)) as pool:
        samples = list(pool.map(lambda target, prefix: generate(program, target, (*arguments, "--group", prefix), seconds), targets, prefixes))
    requests = sum(sample["requests"] for sample in samples)
    spent = {target.pids: sample[CPU_FIELD] * sample["requests"] for target, sample in zip(targets, samples, strict=True)}
    servers = sum(spent.values())
    generators = sum(sample["gen_util"] for sample in samples) * seconds * 1e6
    return Round(servers / requests, sum(sample["rps"] for sample in samples), generators / (generators + servers))


def generate(program: Path, target: Target, arguments: tuple[str, ...], seconds: float) -> Sample:
    command = [str(program), "-p", str(target.port), "--pid", target.pids, "--setup-limit", str(SETUP_SECONDS), "-W", str(WARMUP_SECONDS)]
    command += ["-t", str(seconds), "--json", "-c", str(MEMBERS), "-m", str(MEMBERS), "-M", str(MEMBERS), *arguments]
    bound = SETUP_SECONDS + WARMUP_SECONDS + seconds + SLACK_SECONDS
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=bound, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise LoadError(f"{program.name} did not end within {bound:.0f} s") from None
    return parse_result(program.name, done.returncode, done.stdout, done.stderr)


def report(results: dict[str, list[tuple[Round, Round]]], nodes: int) -> tuple[str, bool]:
    """The table, and whether the processor time of a request is within its target."""
    lines = [f"{nodes} nodes compared with one broker, {len(os.sched_getaffinity(0))} cores for all processes; medians of ratios within a round"]
    lines.append(f"{'':10} {'CPU/request':>12} {'at most':>8} {'requests/s':>11} {f'{nodes} nodes: {FIGURES}':>46} {f'one broker: {FIGURES}':>46}")
    all_within = True
    for row, rounds in results.items():
        cpu = median(on_nodes.cpu_us / on_broker.cpu_us for on_broker, on_nodes in rounds)
        rate = median(on_nodes.rate / on_broker.rate for on_broker, on_nodes in rounds)
        nodes_figures, broker_figures = (figures([pair[which] for pair in rounds]) for which in (1, 0))
        lines.append(f"{row:10} {cpu:12.2f} {CPU_AT_MOST:8.2f} {rate:11.2f} {nodes_figures:>46} {broker_figures:>46}")
        all_within &= cpu <= CPU_AT_MOST
    lines.append("The generators share the cores with the nodes: requests/s can grow to at most 1 / (1 - their share of one broker's round).")
    return "\n".join(lines), all_within


def figures(rounds: list[Round]) -> str:
    return f"{median(round.cpu_us for round in rounds):.1f}, {median(round.rate for round in rounds):.0f}, {median(round.generators for round in rounds):.0%}"
