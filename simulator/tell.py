"""The story of a broken promise, for people who do not know the simulator: what was promised, and the lines that lead to the end.

A run that is told again says what the clients of the concerned group asked and heard.
"""

from __future__ import annotations

import re
from typing import Any, Final

from protocol.apis import APIS
from protocol.errors import ErrorCode
from simulator.world import SECOND, Broken, Line, World, format_time

LINES_MAX: Final = 60
BEFORE_NS: Final = 120 * SECOND
LAST_NS: Final = SECOND  # before the end: every request is told
ROUTINE: Final = ("Heartbeat", "OffsetCommit", "OffsetFetch")

PROMISED: Final = {
    "offsets": "an acknowledged commit is not lost, and an offset that is read is never older than an acknowledged one or one read before",
    "instances": "one member speaks for an instance id; a member that was replaced is fenced, and never succeeds again",
    "generations": "a generation stands for one assignment in which a partition has one owner, generations do not go back, and an older one is refused",
    "sessions": "no member is removed before its session has ended, nor while its JoinGroup waits, nor stays much longer",
    "records": "an acknowledged record stays where it is, for its retention time, and readers see nothing else there",
    "static restart": "a static member that returns within its session moves no other member and is no new member",
    "replies in order": "replies come whole and in the order of their requests",
    "answers": "every request is answered, or its connection ends",
    "replay": "a coordinator that reads the log knows the groups, members and offsets that memory has",
    "invariants": "counters and indexes of a group agree with its members",
    "bounds": "connections and members stay within what clients can account for",
    "no defect": "no exception reaches the containment of faults or the event loop",
    "liveness": "without faults every group with living members is stable within a bounded time, every living member in it",
    "rebalances": "a rebalance ends in time, waits for ids that were handed out, and its generation has the members that it ended with",
    "expiry": "an offset expires when its topic is not consumed, or its group is empty, for the retention time",
    "deletions": "a group with members is not deleted, nor are offsets of topics that they consume",
    "topics": "a topic whose deletion was acknowledged is gone",
}


def describe_request(key: int, version: int, body: bytes) -> str:
    """A request in a few words. Of a commit: its offsets."""
    request: Any = APIS[key].request.decode(body, 0, version)[0]
    name = type(request).__name__.removesuffix("Request")
    words = [name]
    generation = getattr(request, "generation_id", getattr(request, "generation_id_or_member_epoch", None))
    if generation is not None:
        words.append(f"generation {generation}")
    member = getattr(request, "member_id", None)
    if member is not None:
        words.append(f"as {member[-8:] or 'a new member'}")
    instance = getattr(request, "group_instance_id", None)
    if instance:
        words.append(f"instance {instance}")
    if name == "OffsetCommit":
        words += [f"{topic.name}-{each.partition_index}={each.committed_offset}" for topic in request.topics for each in topic.partitions]
    return " ".join(words)


def describe_reply(reply: Any) -> str:
    """What a reply says: errors by name, offsets, member ids and generations."""
    if reply is None:
        return "no reply"
    words = []
    codes = {reply.error_code} if getattr(reply, "error_code", 0) else set()
    groups = getattr(reply, "groups", None) or [reply]
    for topic in [topic for group in groups for topic in getattr(group, "topics", None) or ()]:
        for each in getattr(topic, "partitions", ()):
            codes |= {each.error_code} - {0}
            if hasattr(each, "committed_offset"):
                words.append(f"{topic.name}-{each.partition_index}={each.committed_offset}")
    words += [ErrorCode(code).name for code in sorted(codes)]
    if hasattr(reply, "leader") and not codes:
        words.append(f"generation {reply.generation_id}, member {reply.member_id[-8:]}, leader {reply.leader[-8:]}")
    return " ".join(words) or "ok"


def story(world: World, broken: Broken) -> list[Line]:
    """The lines about the concerned group or partition and the nodes; of routine requests those that matter."""
    about = re.compile(rf"\b{re.escape(broken.about)}\b") if broken.about else None
    values = set(re.findall(r"\b\d+\b", str(broken)))

    def matters(line: Line) -> bool:
        if line.moment < world.now - BEFORE_NS:
            return False
        if about is not None and line.about not in (broken.about, "node", "") and not about.search(line.text):
            return False
        if line.routine and line.moment < world.now - LAST_NS:
            return any(value in values for value in re.findall(r"=(\d+)\b", line.text))
        return True

    return [line for line in world.lines if line.moment and matters(line)]


def tell(world: World, broken: Broken) -> None:
    lines = story(world, broken)
    left_out = max(0, len(lines) - LINES_MAX)
    if left_out:
        print(f"... {left_out} lines before")
    for line in lines[left_out:]:
        print(line)
    print(f"{format_time(world.now)}  BROKEN PROMISE: {broken}")
    if broken.promise in PROMISED:
        print(f"What is promised: {PROMISED[broken.promise]}.")
