"""What holds of a group of the consumer protocol after each step."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator import Fact, Shard
from coordinator.classic.group import Group
from coordinator.consumer.group import ConsumerGroup
from simulator.epoch_truths import check_epoch_group, compare_epoch_groups


def check_group(group: ConsumerGroup | None, classic: Group | None) -> None:
    if group is None:
        return
    assert classic is None, "an id belongs to groups of both types"
    check_epoch_group(group)


def check_replay(shard: Shard, log: Sequence[Fact], now: int, wall: int) -> None:
    """The log says what the memory does; a log that was compacted too."""
    for facts in (list(log), compacted(log)):
        other = Shard(shard._config, lambda: "nobody")
        other.clear()
        other.replay(facts)
        for _ in other.open_groups(lambda: (now, wall)):
            pass
        compare_epoch_groups(shard, other)
        classic = {id for id, group in shard.groups.items() if group.last_record is not None or any(True for _ in group.all_offsets())}
        assert classic <= other.groups.keys() <= shard.groups.keys()  # one whose last offset was deleted has no record


def compacted(log: Sequence[Fact]) -> list[Fact]:
    """The newest record of each key, without tombstones, in the order of the log."""
    newest = {key: number for number, (key, _) in enumerate(log)}
    return [(key, value) for number, (key, value) in enumerate(log) if newest[key] == number and value is not None]
