"""One run: measure every chosen row, one after the other. A failed row does not stop the run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from bench import pipeline_row, rows, single
from bench.data import DataPlane
from bench.load import Comparison, LoadError, ratios, spread
from bench.machine import Cores
from bench.native import Tools
from bench.servers import Server, ServerError
from bench.witness import Witness

Result = dict[str, Any]


class Run:
    """A run: the servers that are measured beside the broker, and the results by row."""

    def __init__(self, tools: Tools | None, cores: Cores, rounds: int, seconds: float, patience: float, only: set[str]) -> None:
        self._witness = Witness(cores.server)
        self._comparison = Comparison(tools, cores, rounds, seconds, patience, self._witness) if tools else None
        self._data_plane = DataPlane(tools, cores, rounds, seconds) if tools else None
        self._cores = cores
        self._only = only
        self._jars: Path | None = None
        self._compiled: Path | None = None
        self._others: dict[str, Server] = {}
        self.kafka_laps: list[float] = []  # during warm-up: the cost of a request, as a multiple of the first lap's
        self.results: dict[str, Result] = {}

    def add_kafka(self, jars: Path, server: Server) -> None:
        """Warm up this Kafka; `measure` then measures it in every row that it supports."""
        self._jars = jars
        self._others["kafka"] = server
        if self._comparison is not None and self._has_load:
            progress("Kafka warms up")
            chosen = [row for row in rows.LOAD_ROWS if row.name in self._only]
            self.kafka_laps = self._comparison.warm_up(server, chosen)

    def add_compiled(self, packages: Path, server: Server) -> None:
        """Measure this compiled broker in every row."""
        self._compiled = packages
        self._others["compiled"] = server

    def measure(self) -> None:
        if self._has_load:
            self._witness.settle()
        for row in rows.LOAD_ROWS:
            self._measure_rows((row.name,), lambda row=row: {row.name: self._load(row)})  # type: ignore[misc]
        for data in rows.DATA_ROWS:
            self._measure_rows((data.name,), lambda row=data: {row.name: self._data(row)})  # type: ignore[misc]
        for connect, loop in ((rows.CONNECT, "uvloop"), (rows.CONNECT_ASYNCIO, "asyncio")):
            self._measure_rows((connect.name,), lambda row=connect, loop=loop: {row.name: self._connecting(row, loop)})  # type: ignore[misc]
        self._measure_rows((rows.START.name, rows.START_RATIO.name, rows.MEMORY.name), self._starting)
        self._measure_rows((rows.CODEC,), lambda: {rows.CODEC: single.codec(self._cores.server)})
        for analysis in rows.PIPELINE_ROWS:
            self._measure_rows((analysis.name,), lambda row=analysis: {row.name: pipeline_row.measured(row, self._cores.server)})  # type: ignore[misc]

    @property
    def _has_load(self) -> bool:
        return any(row.name in self._only for row in rows.LOAD_ROWS)

    def floor_spread(self) -> float:
        """The spread of the floor's cost between rounds, in the median row."""
        spreads: list[float] = [result["floor_spread"] for result in self.results.values() if "floor_spread" in result]
        return median(spreads) if spreads else 0.0

    def busy(self) -> float:
        """How much of its core the broker used, in the row where it used least. Rows with a fixed request rate do not count."""
        closed = [self.results[row.name] for row in rows.LOAD_ROWS if row.name in self.results and not row.paced]
        return min((result["ours"]["srv_util"] for result in closed if "ours" in result), default=1.0)

    def witnessed(self) -> float:
        """The longest time of the witness, as a multiple of its shortest."""
        return self._witness.worst / self._witness.best

    def _measure_rows(self, names: tuple[str, ...], measuring: Callable[[], dict[str, Result]]) -> None:
        chosen = [name for name in names if name in self._only]
        if not chosen:
            return
        progress(", ".join(chosen))
        try:
            results = measuring()
        except (LoadError, ServerError, OSError) as error:
            reason = " ".join([str(error), *getattr(error, "__notes__", ())])
            results = {name: {"status": "failed", "reason": reason} for name in names}
        self.results.update({name: results[name] for name in chosen})

    def _load(self, row: rows.LoadRow) -> Result:
        return self._comparison.measure_row(row, self._others) if self._comparison else NO_GENERATOR

    def _data(self, row: rows.DataRow) -> Result:
        return self._data_plane.measure_row(row, self._others, self._jars, self._compiled) if self._data_plane else NO_GENERATOR

    def _connecting(self, row: rows.SingleRow, event_loop: str) -> Result:
        if self._comparison is None:
            return NO_GENERATOR
        samples = self._comparison.connect(event_loop)
        ours, floor = ([sample["secs"] for sample in samples[name]] for name in ("ours", "floor"))
        return single.measured(row, ours) | {"floor": spread(floor), "ratio": ratios(samples["ours"], samples["floor"], "secs")}

    def _starting(self) -> dict[str, Result]:
        starts = single.starts(self._cores.server)
        results = {
            rows.START.name: single.measured(rows.START, [start.seconds for start in starts]),
            rows.START_RATIO.name: single.measured(rows.START_RATIO, [start.seconds / start.import_uvloop_seconds for start in starts]),
            rows.MEMORY.name: single.measured(rows.MEMORY, [start.mib for start in starts]),
        }
        if self._jars is not None:
            figures = single.kafka_start_and_memory(self._jars, self._cores.server)
            for row, figure in zip((rows.START, rows.MEMORY), figures, strict=True):
                results[row.name]["kafka"] = spread([figure])
        return results


NO_GENERATOR: Result = {"status": "not measured", "reason": "there is no load generator"}


def progress(line: str) -> None:
    if sys.stderr.isatty():
        print(f"bench: {line}", file=sys.stderr, flush=True)
