"""Columns as numpy arrays, and what tables of time series need of them: runs of rows with one key, and searches within a run."""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

MISSING: Final = int(np.iinfo(np.int64).min)  # instead of None, in arrays
MINUTE_MS: Final = 60_000


def ints(column: pa.ChunkedArray) -> Ints:
    """None becomes MISSING."""
    if column.null_count:
        column = pc.fill_null(column, MISSING)
    return np.asarray(column.to_numpy(), dtype=np.int64)


def flags(column: pa.ChunkedArray) -> Flags:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.bool_)


def optional(values: Ints | Floats, known: Flags | None = None) -> pa.Array:
    """MISSING, or what is not `known`, becomes None."""
    return pa.array(values, mask=values == MISSING if known is None else ~known)


def ranks(*columns: pa.ChunkedArray) -> tuple[list[Ints], pa.Array]:
    """For each column its values' places in the sorted list of all, and that list. None is the last."""
    parts = [chunk for column in columns for chunk in column.chunks]
    values = pa.concat_arrays(parts) if parts else pa.array([], pa.string())
    encoded = values.dictionary_encode("encode")
    order = pc.sort_indices(encoded.dictionary)  # by bytes of UTF-8, which is by code points
    places = np.empty(len(order), np.int64)
    places[order.to_numpy()] = np.arange(len(order))
    coded = places[np.asarray(encoded.indices.to_numpy(), np.int64)]
    ends = np.cumsum([len(column) for column in columns])
    return np.split(coded, ends[:-1]), encoded.dictionary.take(order)


def pair(major: Ints, minor: Ints) -> Ints:
    """One number for two, which sorts as they do. Numbers of `major` are places: small, and not below 0."""
    if not len(minor):
        return np.empty(0, np.int64)
    low, high = int(minor.min()), int(minor.max())
    span = high - low + 1
    if (int(major.max()) + 1) * span < 1 << 62:
        return major * span + (minor - low)
    values, places = np.unique(minor, return_inverse=True)
    return major * len(values) + places


def firsts(keys: Ints) -> Flags:
    """Of rows sorted by key: where another one begins."""
    first = np.ones(len(keys), np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    return first


def last_seen(holds: Flags) -> Ints:
    """For each row the last one, up to it, of which `holds` is true; -1: none."""
    return np.maximum.accumulate(np.where(holds, np.arange(len(holds)), -1)) if len(holds) else np.empty(0, np.int64)


def next_seen(holds: Flags) -> Ints:
    """For each row the first one, from it on, of which `holds` is true; the number of rows: none."""
    if not len(holds):
        return np.empty(0, np.int64)
    return np.minimum.accumulate(np.where(holds, np.arange(len(holds)), len(holds))[::-1])[::-1]


def locate(keys: Ints, values: Ints, key: Ints, value: Ints, side: Literal["left", "right"]) -> Ints:
    """Where each (key, value) belongs among rows sorted by both; keys are places. As np.searchsorted, for pairs."""
    if not len(keys) or not len(key):
        return np.zeros(len(key), np.int64)
    both = pair(np.concatenate((keys, key)), np.concatenate((values, value)))
    return np.asarray(np.searchsorted(both[: len(keys)], both[len(keys) :], side), dtype=np.int64)


def rising(keys: Ints, values: Ints) -> Ints:
    """Of rows sorted by key: the largest value so far of the same key."""
    if not len(keys):
        return values
    low = int(values.min())
    span = int(values.max()) - low + 1
    if (int(keys.max()) + 1) * span < 1 << 62:
        return np.maximum.accumulate(keys * span + (values - low)) - keys * span + low
    known, places = np.unique(values, return_inverse=True)
    return known[np.maximum.accumulate(keys * len(known) + places) - keys * len(known)]


def window_sums(values: Ints, since: Ints) -> Ints:
    """For each row the sum from row `since` up to it. Whole numbers: exact wherever the rows begin."""
    totals = np.concatenate((np.zeros(1, np.int64), np.cumsum(values, dtype=np.int64)))
    return totals[np.arange(len(values)) + 1] - totals[since]


def expanded(counts: Ints) -> tuple[Ints, Ints]:
    """Row i stands for counts[i] rows: for each of these its i, and its number among them."""
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
