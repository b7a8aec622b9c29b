"""The owner of each partition over time, from group metadata records."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.columns import Flags, Ints, expanded, flags, ints, locate, running_max
from pipeline.series import Series, value_at

UNKNOWN, NO_OWNER = -2, -1


class Owners(NamedTuple):
    groups: Ints  # group of each record, sorted by group and time
    at_ms: Ints
    is_known: Flags  # whether the record has a readable assignment: consumer protocol, with members
    owned: Ints  # the record of each owned partition
    names: Ints  # index in `partitions` of each owned partition
    members: Ints  # index in `keys` of the owner of each owned partition
    keys: pa.Array
    partitions: pa.Array  # sorted names
    name_of: Ints  # the index in `partitions` of each series

    def owners_at(self, series: Ints, group: Ints, at: Ints) -> Ints:
        """The index of the owner in `keys`, NO_OWNER, or UNKNOWN."""
        record = locate(self.groups, self.at_ms, group, at, "right") - 1
        in_group = (record >= 0) & (value_at(self.groups, record) == group)
        name = self.name_of[series]
        index = locate(self.owned, self.names, np.maximum(record, 0), name, "left")
        is_owned = (index < len(self.owned)) & (value_at(self.owned, index) == record) & (value_at(self.names, index) == name)
        is_known = in_group & (self.is_known[np.clip(record, 0, len(self.is_known) - 1)] if len(self.is_known) else False)
        return np.where(is_known, np.where(is_owned, value_at(self.members, index), NO_OWNER), UNKNOWN)

    def moments(self, group_of: Ints, since_ms: int) -> tuple[Ints, Ints]:
        """The times of assignments since `since_ms`: for each assignment, one row for each series of its group."""
        recent = self.at_ms >= since_ms
        groups, at = self.groups[recent], self.at_ms[recent]
        low, high = np.searchsorted(group_of, groups, "left"), np.searchsorted(group_of, groups, "right")
        record, number = expanded(high - low)
        return low[record] + number, at[record]


def owners_of(series: Series, names: pa.Array, generations: pa.Table, members: pa.Table) -> Owners:
    """`names`: the sorted groups of the series. `generations`, `members`: silver tables, perhaps also of other groups."""
    place = pc.index_in(generations["group"], names)
    generations = generations.filter(pc.is_valid(place))
    groups = ints(place.drop_null().cast(pa.int64()))
    order = np.lexsort((ints(generations["offset"]), groups))
    generations, groups = generations.take(pa.array(order)), groups[order]
    offsets, at = ints(generations["offset"]), ints(generations["append_ms"])
    count = ints(generations["members"])

    of_member = pc.index_in(members["group"], names)
    members = members.filter(pc.is_valid(of_member))
    record = locate(groups, offsets, ints(of_member.drop_null().cast(pa.int64())), ints(members["offset"]), "left")
    lists = members["assigned"].combine_chunks()
    parents = np.asarray(pc.list_parent_indices(lists).to_numpy(), np.int64)
    assigned = pc.list_flatten(lists)
    keys = pc.coalesce(members["instance_id"], members["member_id"]).combine_chunks().dictionary_encode()

    topic, partition = series.named(np.arange(len(series.heads)), "topic", "topic_partition")
    of_series = pc.binary_join_element_wise(topic.cast(pa.string()), partition.cast(pa.string()), "-")
    partitions = pc.unique(pa.concat_arrays([of_series, assigned.cast(pa.string())])).sort()
    names_owned = np.asarray(pc.index_in(assigned, partitions).to_numpy(), np.int64)
    owned = record[parents]
    by_record = np.lexsort((names_owned, owned))

    has_some = np.zeros(len(groups), np.bool_)
    has_some[owned] = True
    began = running_max(groups, (count > 0).astype(np.int64)) > 0 if len(groups) else np.empty(0, np.bool_)
    consumer = np.asarray(pc.fill_null(pc.equal(generations["protocol_type"], "consumer"), False).to_numpy(zero_copy_only=False), np.bool_)
    is_known = consumer & began & ~flags(generations["tombstone"]) & ((count == 0) | has_some)
    return Owners(
        groups,
        running_max(groups, at),
        is_known,
        owned[by_record],
        names_owned[by_record],
        np.asarray(keys.indices.to_numpy(), np.int64)[parents][by_record],
        keys.dictionary,
        partitions,
        np.asarray(pc.index_in(of_series, partitions).to_numpy(), np.int64),
    )


def unknown_owners(series: Series) -> Owners:
    """Owners without any record: all are unknown."""
    empty = np.empty(0, np.int64)
    strings = pa.array([], pa.string())
    return Owners(empty, empty, np.empty(0, np.bool_), empty, empty, empty, strings, strings, np.zeros(len(series.heads), np.int64))


