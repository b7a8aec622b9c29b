"""A streaming query from Kafka to Kafka that can be stopped and restarted."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from tests.spark.session import SparkTopics, await_that

SOON = {"processingTime": "100 milliseconds"}


class Copy:
    """Copies a topic partition by partition; a restarted copy continues from its checkpoint."""

    def __init__(self, kafka: SparkTopics, folder: Path, source: str, **options: object) -> None:
        self.kafka = kafka
        self.target = f"{source}-copy"
        self._folder = folder
        self._source = source
        self._options: dict[str, object] = {"startingOffsets": "earliest"} | options

    def writer(self, **trigger: object) -> Any:
        frame = self.kafka.stream(self._source, **self._options)
        sink = {"kafka.bootstrap.servers": self.kafka.bootstrap, "topic": self.target, "checkpointLocation": f"{self._folder}/checkpoint"}
        return frame.select("key", "value", "partition").writeStream.format("kafka").options(**sink).trigger(**trigger)

    def copied(self) -> list[int]:
        return sorted(self.kafka.values(self.target))

    def ends(self, query: Any) -> dict[int, int]:
        """The end offsets of the newest finished batch, by partition; a failed query reports why."""
        if query.exception() is not None:
            raise query.exception()
        progress = query.lastProgress
        ends = {} if progress is None else ast.literal_eval(progress["sources"][0]["endOffset"])[self._source]  # JSON; in PySpark 4.1 a dictionary as Python prints it
        return {int(partition): offset for partition, offset in ends.items()}

    def position(self, query: Any) -> int:
        """The number of records read."""
        return sum(self.ends(query).values())

    def await_ends(self, query: Any, ends: dict[int, int]) -> None:
        await_that(lambda: self.ends(query) == ends, lambda: (query.status, query.lastProgress))
