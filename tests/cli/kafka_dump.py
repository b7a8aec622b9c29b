"""The output of Apache Kafka's dump tool for a segment."""

from __future__ import annotations

import re
from pathlib import Path

KAFKA_WRITTEN = Path(__file__).parent / "kafka_written"
DUMP = "org.apache.kafka.tools.DumpLogSegments"
RECORD = re.compile(r"\| offset: (\d+) CreateTime: (\d+) .*? key: (\{.*?\}\}) payload: (\{.*\}|<DELETE>|null)$")
