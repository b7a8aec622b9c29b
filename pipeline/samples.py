"""End offsets from data directories: the only samples of Apache Kafka, which writes no notes.

A round that reads directories stores their paths; each later round reads end offsets from them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from pipeline.end_samples import from_directory
from pipeline.inputs import Inputs, cluster_of
from pipeline.rows import EndOffset


def directories_with(inputs: Inputs, known: Sequence[Sequence[str]]) -> list[list[str]]:
    """The known directories and those of the input, each with its cluster."""
    read = {str(directory): [inputs.cluster or cluster_of(directory), str(directory)] for directory, _ in inputs.directories}
    return sorted(({entry[1]: list(entry) for entry in known} | read).values())


def samples_of(directories: Iterable[Sequence[str]], topics: Mapping[str, Collection[str]], known: Iterable[EndOffset]) -> list[EndOffset]:
    """The new samples of the directories, for topics with committed offsets."""
    seen = {_key(sample) for sample in known}
    rows: list[EndOffset] = []
    for cluster, directory in directories:
        try:
            samples = from_directory(cluster, directory, topics.get(cluster, ()))
        except OSError:
            continue  # the directory was moved; its earlier samples stay
        rows += [sample for sample in samples if _key(sample) not in seen]
        seen.update(map(_key, samples))
    return rows


def _key(sample: EndOffset) -> tuple[str, str, int, int, str]:
    return sample.cluster, sample.topic, sample.topic_partition, sample.at_ms, sample.origin
