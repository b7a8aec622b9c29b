"""Passes the result of a commit to the promise about offsets."""

from __future__ import annotations

from typing import Any

from protocol.errors import ErrorCode
from simulator.client import Request
from simulator.commit import REFUSING, Commit
from simulator.scene import Scene


def settle_commit(scene: Scene, request: Request, commit: Commit, values: list[int], reply: Any) -> int | None:
    """Pass the result of a commit to the promise about offsets. Return the worst error; None: the reply is lost, or a power failure voids it."""
    offsets = scene.offsets
    if reply is None or scene.course.is_void(request):
        for partition, value in zip(commit.partitions, values, strict=True):
            offsets.unknown(partition, value)
        return None
    codes = commit.codes(reply)
    worst = 0
    if request.unknown_topics:
        codes = codes or [int(ErrorCode.NONE)] * len(values)
    if codes is None:
        for partition, value in zip(commit.partitions, values, strict=True):
            offsets.acknowledged(partition, value)
    else:
        for partition, value, code in zip(commit.partitions, values, codes, strict=True):
            if code == ErrorCode.NONE and partition[1] in request.unknown_topics:
                offsets.unknown(partition, value)  # it may be one of an earlier topic, which the deletion removes
                scene.topics.committed_elsewhere(request.node, partition, value)
            elif code == ErrorCode.NONE:
                offsets.acknowledged(partition, value)
            elif code in REFUSING:
                offsets.refused(partition, value)
                worst = code
            else:
                offsets.unknown(partition, value)
                worst = worst or code
    return worst
