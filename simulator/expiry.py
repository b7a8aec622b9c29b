"""The promise about expiry of offsets, as a comparison of the coordinator's memory at two moments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from coordinator.classic.group import CONSUMER
from coordinator.facts import read_offset
from coordinator.states import EMPTY, STABLE
from simulator.truths import offsets_of
from simulator.world import Broken, Promise


class _Snapshot(NamedTuple):
    group: Any
    version: object
    offsets: dict[tuple[str, int], bytes]


class Expiry:
    """Offsets of topics that members consume never expire. Offsets of an empty group expire only a retention time after its last member left."""

    promise = Promise(
        "expiry",
        "an offset expires only when its topic was not consumed, or its group was empty, for the retention time",
        unless=("wall", "delete_topic"),
    )

    def __init__(self, retention_ms: int, administered: bool) -> None:
        """`administered`: an administrator deletes groups, and offsets of empty groups."""
        self._retention_ms = retention_ms
        self._administered = administered
        self._snapshots: dict[int, dict[str, _Snapshot]] = {}  # partition -> its groups at the last check

    def check(self, partition: int, groups: Mapping[str, Any], wall: int) -> None:
        before = self._snapshots.get(partition, {})
        self._snapshots[partition] = {id: _Snapshot(group, group.version, offsets_of(group)) for id, group in groups.items()}
        for id, snapshot in before.items():
            now = self._snapshots[partition].get(id)
            removed = sorted(snapshot.offsets.keys() - now.offsets.keys()) if now is not None else sorted(snapshot.offsets)
            if not removed:
                continue
            group, key = snapshot.group, removed[0]
            unchanged = now is not None and now.group is snapshot.group and now.version == snapshot.version
            if unchanged and group.state is STABLE and group.protocol_type == CONSUMER and group.subscribes_to(key[0]):
                raise Broken(self.promise, f"the offset of {key} expired, although members of {id} consume the topic", id)
            if group.state is EMPTY and not self._administered and (unchanged or now is None):
                empty_since = group.state_ms if group.protocol_type is not None else -1
                since = empty_since if empty_since >= 0 else read_offset(snapshot.offsets[key]).commit_ms
                if wall - since < self._retention_ms:
                    raise Broken(self.promise, f"the offset of {key} of {id} expired {wall - since} ms after the group became empty", id)

    def forget(self) -> None:
        self._snapshots.clear()
