"""The option that bounds a batch of a stream, where PySpark knows it: not in 4.1."""

from __future__ import annotations


def limit(records: int) -> dict[str, int]:
    from pipeline.stream import HAS_LIMITS

    return {"maxRecordsPerTrigger": records} if HAS_LIMITS else {}
