"""Columns as numpy arrays, and what tables of time series need of them: runs of rows with one key, and searches within a run."""

from __future__ import annotations

from collections.abc import Sequence
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


def optional(values: Ints | Floats | Flags, known: Flags | None = None) -> pa.Array:
    """MISSING, or what is not `known`, becomes None."""
    if values.dtype == np.bool_:
        return pa.array(values)
    unknown = values == MISSING if known is None else ~known
    return pa.array(values, mask=unknown if unknown.any() else None)


def coded(places: Ints, names: Sequence[str]) -> pa.Array:
    """Texts of which there are few, by their places; below 0: None."""
    unknown = places < 0
    return pa.DictionaryArray.from_arrays(pa.array(places.astype(np.int32), mask=unknown if unknown.any() else None), pa.array(names, pa.string()))


def ranks(*columns: pa.ChunkedArray) -> tuple[list[Ints], pa.Array]:
    """For each column its values' places in the sorted list of all, and that list. None is the last."""
    parts = [chunk for column in columns for chunk in column.chunks]
    if any(pa.types.is_dictionary(part.type) for part in parts):
        parts = [part if pa.types.is_dictionary(part.type) else part.dictionary_encode("encode") for part in parts]
    values = pa.concat_arrays(parts) if parts else pa.array([], pa.string())
    encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode("encode")
    order = pc.sort_indices(encoded.dictionary)  # by bytes of UTF-8, which is by code points
    places = np.empty(len(order), np.int64)
    places[order.to_numpy()] = np.arange(len(order))
    coded = places[np.asarray(encoded.indices.to_numpy())]
    ends = np.cumsum([len(column) for column in columns])
    return np.split(coded, ends[:-1]), encoded.dictionary.take(order)


def distinct(values: Ints) -> tuple[Ints, Ints]:
    """The values in order, each once, and the place of each row's among them. Few of many, for which hashing is faster than sorting."""
    encoded = pa.array(values).dictionary_encode()
    known = np.asarray(encoded.dictionary.to_numpy())
    order = np.argsort(known)
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return known[order], places[np.asarray(encoded.indices.to_numpy())]


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


class Line:
    """Rows sorted by key and time, to be searched by both; keys are places. As np.searchsorted, for pairs."""

    def __init__(self, keys: Ints, at: Ints) -> None:
        self._count = len(keys)
        self._times: Ints | None = None  # where they are too far apart for one number with the key: places among them
        self._low, self._span = (int(at.min()) - 1, int(at.max()) - int(at.min()) + 3) if len(at) else (0, 1)
        if len(keys) and (int(keys.max()) + 2) * self._span >= 1 << 62:
            self._times = np.unique(at)
            self._span = len(self._times) + 1
        self._codes = keys * self._span + self._place(at, "left")

    def _place(self, at: Ints, side: Literal["left", "right"]) -> Ints:
        """Of which row a search for this finds: how many times are before it."""
        if self._times is not None:
            return np.asarray(np.searchsorted(self._times, at, side), dtype=np.int64)
        return np.clip(at, self._low, self._low + self._span - 1) - self._low + (side == "right")

    def find(self, key: Ints, at: Ints, side: Literal["left", "right"]) -> Ints:
        """Where each (key, time) belongs."""
        if not self._count or not len(key):
            return np.zeros(len(key), np.int64)
        return np.asarray(np.searchsorted(self._codes, key * self._span + self._place(at, side), "left"), dtype=np.int64)


def locate(keys: Ints, values: Ints, key: Ints, value: Ints, side: Literal["left", "right"]) -> Ints:
    """One search among rows sorted by key and value."""
    return Line(keys, values).find(key, value, side)


def by_key_and_time(keys: Ints, at: Ints) -> Ints:
    """The order of rows by both, which keeps that of equal ones. What is sorted in stretches is merged."""
    return np.argsort(pair(keys, at), kind="stable")


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
