"""Arrow columns as numpy arrays, and helpers for rows sorted by key and time."""

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

MISSING: Final = int(np.iinfo(np.int64).min)  # in place of None
MINUTE_MS: Final = 60_000


def ints(column: pa.ChunkedArray) -> Ints:
    """The column as an array, with MISSING for None."""
    if column.null_count:
        column = pc.fill_null(column, MISSING)
    return np.asarray(column.to_numpy(), dtype=np.int64)


def flags(column: pa.ChunkedArray) -> Flags:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.bool_)


def optional(values: Ints | Floats | Flags, known: Flags | None = None) -> pa.Array:
    """The array as a column, with None for values that are MISSING or not `known`."""
    if values.dtype == np.bool_:
        return pa.array(values)
    unknown = values == MISSING if known is None else ~known
    return pa.array(values, mask=unknown if unknown.any() else None)


def dictionary_column(places: Ints, names: Sequence[str]) -> pa.Array:
    """A dictionary column from indexes into `names`; a negative index becomes None."""
    unknown = places < 0
    return pa.DictionaryArray.from_arrays(pa.array(places.astype(np.int32), mask=unknown if unknown.any() else None), pa.array(names, pa.string()))


def ranks(*columns: pa.ChunkedArray) -> tuple[list[Ints], pa.Array]:
    """For each column the ranks of its values among the values of all columns, and those values, sorted. None comes last."""
    parts = [chunk for column in columns for chunk in column.chunks]
    if any(pa.types.is_dictionary(part.type) for part in parts):
        parts = [part if pa.types.is_dictionary(part.type) else part.dictionary_encode("encode") for part in parts]
    values = pa.concat_arrays(parts) if parts else pa.array([], pa.string())
    encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode("encode")
    order = pc.sort_indices(encoded.dictionary)  # by UTF-8 bytes, so by code points
    places = np.empty(len(order), np.int64)
    places[order.to_numpy()] = np.arange(len(order))
    codes = places[np.asarray(encoded.indices.to_numpy())]
    ends = np.cumsum([len(column) for column in columns])
    return np.split(codes, ends[:-1]), encoded.dictionary.take(order)


def distinct(values: Ints) -> tuple[Ints, Ints]:
    """The sorted distinct values, and for each row the index of its value. Hashing is faster than sorting, as few values occur often."""
    encoded = pa.array(values).dictionary_encode()
    known = np.asarray(encoded.dictionary.to_numpy())
    order = np.argsort(known)
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return known[order], places[np.asarray(encoded.indices.to_numpy())]


def pair(major: Ints, minor: Ints) -> Ints:
    """Combine two numbers into one that sorts the same way. Values of `major` are small and not negative."""
    if not len(minor):
        return np.empty(0, np.int64)
    low, high = int(minor.min()), int(minor.max())
    span = high - low + 1
    if (int(major.max()) + 1) * span < 1 << 62:
        return major * span + (minor - low)
    values, places = np.unique(minor, return_inverse=True)
    return major * len(values) + places


def mark_firsts(keys: Ints) -> Flags:
    """Mark the first row of each key, in rows sorted by key."""
    first = np.ones(len(keys), np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    return first


def last_true(holds: Flags) -> Ints:
    """For each row the index of the last row up to it for which `holds` is true, or -1."""
    return np.maximum.accumulate(np.where(holds, np.arange(len(holds)), -1)) if len(holds) else np.empty(0, np.int64)


def next_true(holds: Flags) -> Ints:
    """For each row the index of the first row from it on for which `holds` is true, or the number of rows."""
    if not len(holds):
        return np.empty(0, np.int64)
    return np.minimum.accumulate(np.where(holds, np.arange(len(holds)), len(holds))[::-1])[::-1]


class SortedRows:
    """Rows sorted by key and time: np.searchsorted for pairs. Keys are small integers."""

    def __init__(self, keys: Ints, at: Ints) -> None:
        self._count = len(keys)
        self._times: Ints | None = None  # the distinct times, if key and time do not fit into one number
        self._low, self._span = (int(at.min()) - 1, int(at.max()) - int(at.min()) + 3) if len(at) else (0, 1)
        if len(keys) and (int(keys.max()) + 2) * self._span >= 1 << 62:
            self._times = np.unique(at)
            self._span = len(self._times) + 1
        self._codes = keys * self._span + self._place(at, "left")

    def _place(self, at: Ints, side: Literal["left", "right"]) -> Ints:
        """The part of a code that stands for the time. A code is one number that sorts by key and time."""
        if self._times is not None:
            return np.asarray(np.searchsorted(self._times, at, side), dtype=np.int64)
        return np.clip(at, self._low, self._low + self._span - 1) - self._low + (side == "right")

    def find(self, key: Ints, at: Ints, side: Literal["left", "right"]) -> Ints:
        """The insertion point of each (key, time)."""
        if not self._count or not len(key):
            return np.zeros(len(key), np.int64)
        return np.asarray(np.searchsorted(self._codes, key * self._span + self._place(at, side), "left"), dtype=np.int64)


def locate(keys: Ints, values: Ints, key: Ints, value: Ints, side: Literal["left", "right"]) -> Ints:
    """The insertion point of each (`key`, `value`) among rows sorted by key and value."""
    return SortedRows(keys, values).find(key, value, side)


def by_key_and_time(keys: Ints, at: Ints) -> Ints:
    """The order of the rows by key and time. Timsort merges runs that are sorted already."""
    return np.argsort(pair(keys, at), kind="stable")


def running_max(keys: Ints, values: Ints) -> Ints:
    """For each row the largest value so far of the same key, in rows sorted by key."""
    if not len(keys):
        return values
    low = int(values.min())
    span = int(values.max()) - low + 1
    if (int(keys.max()) + 1) * span < 1 << 62:
        return np.maximum.accumulate(keys * span + (values - low)) - keys * span + low
    known, places = np.unique(values, return_inverse=True)
    return known[np.maximum.accumulate(keys * len(known) + places) - keys * len(known)]


def window_sums(values: Ints, since: Ints) -> Ints:
    """For each row the sum of the rows from `since` up to it. Exact for integers."""
    totals = np.concatenate((np.zeros(1, np.int64), np.cumsum(values, dtype=np.int64)))
    return totals[np.arange(len(values)) + 1] - totals[since]


def expanded(counts: Ints) -> tuple[Ints, Ints]:
    """Repeat row i counts[i] times: for each copy its i, and its number among the copies."""
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
