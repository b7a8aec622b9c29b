"""End offsets from the directories themselves: the samples of a real Kafka, which writes no notes.

The directories of an ingest are recorded, and read again when the tables are built.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from pipeline.end_samples import from_directory
from pipeline.inputs import Inputs, cluster_of
from pipeline.rows import EndOffset
from pipeline.schema import joined, rows_of, table_of
from pipeline.warehouse import Current, Warehouse

DIRECTORIES = "directories"
BUCKET = "directories"  # of a cluster, beside its partitions


def note_directories(warehouse: Warehouse, inputs: Inputs) -> None:
    """The caller holds the lock."""
    current = warehouse.current()
    found = {str(one): [inputs.cluster or cluster_of(one), one] for one, _ in inputs.directories}
    known = {one[1]: one for one in current.build.get(DIRECTORIES, [])}
    if not found.keys() <= known.keys():
        warehouse.publish(replace(current, build={**current.build, DIRECTORIES: sorted((known | found).values())}))


def with_samples(warehouse: Warehouse, current: Current) -> Current:
    """Add the new samples of the directories, for topics with committed offsets."""
    directories = current.build.get(DIRECTORIES, [])
    topics = set()
    for file in current.of("tails") if directories else ():
        topics.update(warehouse.load(file, columns=["topic"])["topic"].unique().to_pylist())
    for cluster, directory in directories:
        bucket = f"{cluster}/{BUCKET}"
        known = joined("end_offsets", [warehouse.load(file) for file in current.of("end_offsets", bucket)])
        seen = {_key(one) for one in rows_of(EndOffset, known)}
        try:
            rows = [one for one in from_directory(cluster, directory, topics) if _key(one) not in seen]
        except OSError:
            continue  # the directory was moved; its earlier samples stay
        if rows:
            content: pa.Table = table_of("end_offsets", rows)
            current = replace(current, files=current.replacing((), [warehouse.write("end_offsets", current.run, bucket, content)]))
    return current


def _key(one: EndOffset) -> tuple[str, int, int, str]:
    return one.topic, one.topic_partition, one.at_ms, one.origin
