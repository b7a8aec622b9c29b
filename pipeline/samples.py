"""End offsets from data directories: the only samples of Apache Kafka, which writes no notes.

An ingest stores the paths of its directories; each later build reads end offsets from them.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from pipeline.end_samples import from_directory
from pipeline.inputs import Inputs, cluster_of
from pipeline.rows import EndOffset
from pipeline.schema import joined, rows_of, table_of
from pipeline.warehouse import PublishedState, Warehouse

DIRECTORIES = "directories"
BUCKET = "directories"  # in place of a partition


def record_directories(warehouse: Warehouse, inputs: Inputs) -> None:
    """Record the directories of an ingest. The caller holds the lock."""
    current = warehouse.current()
    ingested = {str(directory): [inputs.cluster or cluster_of(directory), directory] for directory, _ in inputs.directories}
    recorded = {entry[1]: entry for entry in current.build.get(DIRECTORIES, [])}
    if not ingested.keys() <= recorded.keys():
        warehouse.publish(replace(current, build={**current.build, DIRECTORIES: sorted((recorded | ingested).values())}))


def with_samples(warehouse: Warehouse, current: PublishedState) -> PublishedState:
    """Add the new samples of the directories, for topics with committed offsets."""
    directories = current.build.get(DIRECTORIES, [])
    topics = set()
    for file in current.files_of("tails") if directories else ():
        topics.update(warehouse.load(file, columns=["topic"])["topic"].unique().to_pylist())
    for cluster, directory in directories:
        bucket = f"{cluster}/{BUCKET}"
        known = joined("end_offsets", [warehouse.load(file) for file in current.files_of("end_offsets", bucket)])
        known_keys = {_key(sample) for sample in rows_of(EndOffset, known)}
        try:
            rows = [sample for sample in from_directory(cluster, directory, topics) if _key(sample) not in known_keys]
        except OSError:
            continue  # the directory was moved; its earlier samples stay
        if rows:
            content: pa.Table = table_of("end_offsets", rows)
            current = replace(current, files=current.replacing((), [warehouse.write("end_offsets", current.run, bucket, content)]))
    return current


def _key(sample: EndOffset) -> tuple[str, int, int, str]:
    return sample.topic, sample.topic_partition, sample.at_ms, sample.origin
