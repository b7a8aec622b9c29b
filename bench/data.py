"""Measures the data rows: the cost of topics, in units of their own, of the broker, Kafka, and the floor if it supports the request."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from bench import rows
from bench.kafka import kafka_on
from bench.load import OUR_BROKERS, SETUP_SECONDS, SLACK_SECONDS, LoadError, Sample, command_line, generate, parse_result, spread
from bench.machine import Cores, pinned, touch_memory
from bench.native import ROOT, Tools
from bench.rows import DataRow
from bench.servers import Server, broker, broker_on, first_line, floor, resident_mib, served_versions

RESTARTS = 3
IDLE_SECONDS = 1.0
WARM_UP_LAPS, WARM_UP_LAP_SECONDS = 3, 8.0  # Kafka warms up in each row
TOUCHED_BYTES = 1 << 29  # before batches of 1 MB are produced: twice what a round writes
FLOOR_TOPIC = "kgdata-topic"  # the topic in the floor's constant reply

Result = dict[str, Any]
Starting = Callable[[Path], AbstractContextManager[Server]]


class DataPlane:
    """Runs data rows, each on its own broker, alternately with the floor and the other servers."""

    def __init__(self, tools: Tools, cores: Cores, rounds: int, seconds: float) -> None:
        self._tools = tools
        self._cores = cores
        self._rounds = rounds
        self._seconds = seconds

    def measure_row(self, row: DataRow, others: dict[str, Server], jars: Path | None, compiled: Path | None) -> Result:
        with broker(self._cores.server) as ours:
            missing = row.missing(served_versions(ours.port))
            status: Result = {"status": "not served yet", "missing": missing} if missing else {"status": "measured"}
            if row is not rows.PARTITIONS:
                return self._in_turn(row, {} if missing else {"ours": ours}, others) | status
        starts: dict[str, Starting] = {} if missing else {"ours": self._our_start}
        if starts and compiled is not None:
            starts["compiled"] = lambda folder: self._our_start(folder, compiled)
        return self._restarted(starts, jars) | status

    # Rows measured alternately.

    def _in_turn(self, row: DataRow, ours: dict[str, Server], others: dict[str, Server]) -> Result:
        with floor(self._tools.kgfloor, self._cores.server) as bottom:
            subjects = ({"floor": bottom} if row.on_floor else {}) | ours | others
            samples: dict[str, list[Sample]] = {name: [] for name in subjects}
            lost: dict[str, str] = {}
            for number in range(-WARM_UP_LAPS, self._rounds):
                for name in subjects.keys() - lost.keys():
                    if number < 0 and name != "kafka":
                        continue  # only a JVM has to warm up
                    try:
                        sample = self._run(row, name, subjects[name], number)
                    except LoadError as error:
                        if name in OUR_BROKERS or name == "floor":
                            raise
                        lost[name] = str(error)
                        continue
                    if number >= 0:
                        samples[name].append(sample)
        for name in lost:
            del samples[name]
        return summary(row, samples) | {f"{name}_failed": reason for name, reason in lost.items()}

    def _run(self, row: DataRow, name: str, server: Server, number: int) -> Sample:
        seconds = WARM_UP_LAP_SECONDS if number < 0 else max(self._seconds, row.seconds_min)
        topic = f"{row.name}-{number if number >= 0 else f'warm-up{-number}'}"
        if row is rows.HEARTBEATS:
            return self._during_fetch(row, server, topic, seconds)
        if row is rows.PRODUCE_1MB:
            touch_memory(TOUCHED_BYTES)
        arguments = (*row.arguments, "--topic", topic)
        if name == "floor":
            arguments = (*row.arguments, "--topic", FLOOR_TOPIC, "--parts", "1", "--no-preflight")
        return generate(self._tools.kgdata, self._cores.generator, server, arguments, seconds)

    def _during_fetch(self, row: DataRow, server: Server, topic: str, seconds: float) -> Sample:
        """Measure heartbeats while another process fetches at full speed; then end that process."""
        arguments = (*rows.FETCH_BESIDE, "--announce", "--topic", topic)
        bound = SETUP_SECONDS + seconds + SLACK_SECONDS
        with pinned(self._cores.generator):
            fetching = subprocess.Popen(
                command_line(self._tools.kgdata, server, arguments, bound),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
        try:
            if first_line(fetching, SETUP_SECONDS) != "running\n":
                fetching.kill()
                raise LoadError(f"the concurrent fetch did not begin: {fetching.communicate()[1].strip()}")
            sample = generate(self._tools.kgload, self._cores.generator, server, (*row.arguments, "--group", topic), seconds)
            fetching.terminate()
            out, errors = fetching.communicate(timeout=SLACK_SECONDS)
        except subprocess.TimeoutExpired:
            raise LoadError("the concurrent fetch did not end") from None
        finally:
            fetching.kill()
            fetching.wait()
        fetch_result = parse_result("kgdata", fetching.returncode, out, errors)
        return sample | {"beside_mb_per_s": fetch_result["mb_per_s"]}

    # Restarts.

    def _restarted(self, starts: dict[str, Starting], jars: Path | None) -> Result:
        if jars is not None:
            starts |= {"kafka": lambda folder: kafka_on(folder, jars, self._cores.server)}
        samples, lost = {}, {}
        for name, start in starts.items():
            try:
                samples[name] = self._restarts(start, RESTARTS if name in OUR_BROKERS else 1)
            except LoadError as error:
                if name in OUR_BROKERS:
                    raise
                lost[f"{name}_failed"] = str(error)
        return summary(rows.PARTITIONS, samples) | lost

    @contextmanager
    def _our_start(self, folder: Path, packages: Path = ROOT) -> Iterator[Server]:
        with broker_on(folder, self._cores.server, packages=packages, may_end=True) as server:
            yield server
            if server.process.poll() is None:
                server.process.terminate()
                if (code := server.process.wait(SLACK_SECONDS)) != 0:
                    raise LoadError(f"the broker ended with {code} after SIGTERM")

    def _restarts(self, start: Starting, times: int) -> list[Sample]:
        folder = Path(tempfile.mkdtemp(prefix="tenure-bench-"))
        samples: list[Sample] = []
        try:
            with start(folder) as server:
                self._kgdata(server, "fill")
            for _ in range(times):
                with start(folder) as server:
                    sample = self._kgdata(server, "await", "--born", str(server.born))
                    time.sleep(IDLE_SECONDS)
                    sample["rss_mib"] = resident_mib(server.pid)
                    server.process.kill()
                    server.process.wait()
                with start(folder) as server:
                    sample["killed_served_s"] = self._kgdata(server, "await", "--born", str(server.born))["served_s"]
                samples.append(sample)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return samples

    def _kgdata(self, server: Server, *work: str) -> Sample:
        return generate(self._tools.kgdata, self._cores.generator, server, ("-w", *work, *rows.PARTITIONS.arguments), 0)


def summary(row: DataRow, samples: dict[str, list[Sample]]) -> Result:
    """The spread of each figure for each server, and the ratio of our median to each other server's."""
    figures: list[Result] = []
    for figure in row.figures:
        entry: Result = {"figure": figure.name, "unit": figure.unit, "at_least": figure.at_least, "at_most": figure.at_most}
        entry |= {name: spread([sample[figure.field] / figure.divisor for sample in each]) for name, each in samples.items()}
        for name in samples.keys() - {"ours"} if "ours" in samples else ():
            entry[f"of_{name}"] = entry["ours"]["median"] / (entry[name]["median"] or 1e-9)
        if "compiled" in entry and "kafka" in entry:
            entry["compiled_of_kafka"] = entry["compiled"]["median"] / (entry["kafka"]["median"] or 1e-9)
        figures.append(entry)
    result: Result = {"figures": figures}
    if "floor" in samples:
        costs = [sample["srv_us_per_req"] for sample in samples["floor"]]
        result["floor_spread"] = (max(costs) - min(costs)) / median(costs)
    return result
