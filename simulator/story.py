"""The story of a broken promise, for readers who do not know the simulator: the promise, and the lines of the trace that lead to its end.

The run is repeated for the story, so that the trace also has the requests of the clients of the concerned group.
"""

from __future__ import annotations

import re
from typing import Any, Final

from protocol.apis import APIS
from protocol.batch import read_header
from protocol.errors import ErrorCode
from simulator.world import SECOND, Broken, Line, World, format_time

LINES_MAX: Final = 60
BEFORE_NS: Final = 120 * SECOND
LAST_NS: Final = SECOND  # how long before the end the story shows every request
ROUTINE: Final = ("Heartbeat", "ConsumerGroupHeartbeat", "OffsetCommit", "OffsetFetch", "Produce", "Fetch")
PARTITION: Final = re.compile(r"\b(?:t|data)\d+-\d+\b")
NO_OFFSET: Final = re.compile(rf"{PARTITION.pattern}|\d+:\d+:[\d.]+|'[^']*'")  # partitions, times, values of records
ROLES: Final = (  # the name at the start of a line of the story, and its explanation
    (re.compile(r"\b(g\d+)/s(\d+): "), "the process of the static member i{2} of group {1}"),
    (re.compile(r"\b(g\d+)/s(\d+)': "), "a second process with the instance id i{2}"),
    (re.compile(r"\b(g\d+)/d\d+: "), "the process of a dynamic member of group {1}"),
    (re.compile(r"\b(e\d+)/s(\d+): "), "the process of the static member i{2} of group {1}, which speaks the consumer protocol"),
    (re.compile(r"\b(e\d+)/d\d+: "), "the process of a dynamic member of group {1}, which speaks the consumer protocol"),
    (re.compile(r"\bnote: "), "the coordinator notes a change of a group; a static member counts until its session ends, also without a process"),
)
LEGEND: Final = """\
  >       the line has an offset or member id of the broken promise; member ids are shortened to their last eight characters
Heartbeats, commits, OffsetFetches, Produces and Fetches without an error are shown only with such an offset, or in the last second."""
ID_LENGTH: Final = 8  # of shortened member ids


def describe_request(key: int, version: int, body: bytes) -> str:
    """The API, generation, member and instance of a request; of OffsetCommit, Produce and Fetch also offsets and numbers of records."""
    request: Any = APIS[key].request.decode(body, 0, version)[0]
    name = type(request).__name__.removesuffix("Request")
    words = [name]
    generation = getattr(request, "generation_id", getattr(request, "generation_id_or_member_epoch", None))
    if generation is not None:
        words.append(f"generation {generation}")
    member = getattr(request, "member_id", None)
    if member is not None:
        words.append(f"as {member[-ID_LENGTH:] or 'a new member'}")
    instance = getattr(request, "group_instance_id", None)
    if instance:
        words.append(f"instance {instance}")
    if name == "ConsumerGroupHeartbeat":
        words.append(f"epoch {request.member_epoch}")
        words += [f"instance {request.instance_id}"] if request.instance_id else []
        words += [f"owns {counted(request.topic_partitions)}"] if request.topic_partitions is not None else []
    elif name == "OffsetCommit":
        words.append(" ".join(f"{topic.name}-{each.partition_index}={each.committed_offset}" for topic in request.topics for each in topic.partitions))
    elif name == "Produce":
        words += [f"{read_header(each.records, 0).last_offset_delta + 1} records" for topic in request.topic_data for each in topic.partition_data]
    elif name == "Fetch":
        words += [f"{topic.topic}-{each.partition} from {each.fetch_offset}" for topic in request.topics for each in topic.partitions]
    return ", ".join(words)


def describe_reply(reply: Any) -> str:
    """The errors of a reply by name, its offsets, member id and generation."""
    if reply is None:
        return "no reply"
    words = []
    codes = {reply.error_code} if getattr(reply, "error_code", 0) else set()
    groups = getattr(reply, "groups", None) or [reply]
    for topic in [topic for group in groups for topic in getattr(group, "topics", None) or getattr(group, "responses", None) or ()]:
        for each in getattr(topic, "partitions", getattr(topic, "partition_responses", ())):
            codes |= {each.error_code} - {0}
            if hasattr(each, "committed_offset"):
                words.append(f"{topic.name}-{each.partition_index}={each.committed_offset}")
            elif hasattr(each, "base_offset"):
                words.append(f"{topic.name}-{each.index}={each.base_offset}")
            elif hasattr(each, "log_start_offset"):
                words.append(f"{len(each.records or b'')} bytes, log start {each.log_start_offset}, high watermark {each.high_watermark}")
    words += [ErrorCode(code).name for code in sorted(codes)]
    if hasattr(reply, "leader") and not codes:
        words.append(f"generation {reply.generation_id}, member {reply.member_id[-ID_LENGTH:]}, leader {reply.leader[-ID_LENGTH:]}")
    elif getattr(reply, "heartbeat_interval_ms", 0):
        words.append(f"epoch {reply.member_epoch}" + (f", assigned {counted(reply.assignment.topic_partitions)}" if reply.assignment is not None else ""))
    return " ".join(words) or "ok"


def counted(topics: Any) -> str:
    """How many partitions these are, and their numbers, topic by topic."""
    return f"{sum(len(topic.partitions) for topic in topics)} ({'; '.join(f'{topic.topic_id.hex()[:4]} {sorted(topic.partitions)}' for topic in topics)})"


class Story:
    """The lines of the trace about nodes, and about the group or partition of the broken promise, without most of its routine requests."""

    def __init__(self, world: World, broken: Broken) -> None:
        self._from = world.now - BEFORE_NS
        self._last_from = world.now - LAST_NS
        self._name = broken.about
        self._about = re.compile(rf"\b{re.escape(broken.about)}\b") if broken.about else None
        text = str(broken)
        self._partitions = PARTITION.findall(text) if broken.promise.has_offsets else []
        self._offsets = set(map(int, re.findall(r"\b\d+\b", NO_OFFSET.sub("", text))))
        self._ids = {id[-ID_LENGTH:] for id in re.findall(r"[\w-]{22,}", str(broken))}
        self.lines = [line for line in world.lines if line.moment and self._matters(line)]

    def _matters(self, line: Line) -> bool:
        if line.moment < self._from:
            return False
        if self._about is not None and line.about not in (self._name, "node", "") and not self._about.search(line.text):
            return False
        return not line.routine or line.moment >= self._last_from or self._has_offset(line)

    def _has_offset(self, line: Line) -> bool:
        records = re.search(r", (\d+) records", line.text)
        count = int(records[1]) if records else 1
        first_offsets = [int(first) for partition in self._partitions for first in re.findall(rf"\b{partition}=(\d+)", line.text)]
        return any(first <= offset < first + count for first in first_offsets for offset in self._offsets)

    def show(self, line: Line) -> str:
        marked = self._has_offset(line) or any(id in line.text for id in self._ids)
        return f"{'>' if marked else ' '} {line}"


def print_story(world: World, broken: Broken) -> None:
    story = Story(world, broken)
    omitted = max(0, len(story.lines) - LINES_MAX)
    print(f"The promise: {broken.promise.sentence}.\n")
    for pattern, meaning in ROLES:
        example = next(filter(None, (pattern.search(line.text) for line in story.lines[omitted:])), None)
        if example is not None:
            print(f"  {example[0].rstrip(': '):7} {meaning.format(*example.group(0, *range(1, pattern.groups + 1)))}")
    print(f"{LEGEND}\n")
    print(f"What happened, in virtual time{f' (without {omitted} earlier lines)' if omitted else ''}:")
    for line in story.lines[omitted:]:
        print(story.show(line))
    print(f"> {format_time(world.now)}  BROKEN PROMISE: {broken}")
