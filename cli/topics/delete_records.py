"""`tenure topic delete-records`: deletes the records of a topic before an offset or a time."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cli.client import Cluster, Exit, Failure, failure
from cli.failure import UNKNOWN_PARTITION
from cli.records.positions import StartPosition, offsets_at, parse_position
from cli.shown import Screen, counted, plain
from cli.topics.finding import required_topics
from cli.topics.log_offsets import EARLIEST, LATEST, RETRIABLE, log_offsets
from protocol.errors import ErrorCode
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic


class Deletion(NamedTuple):
    """What is deleted of a partition: its records from `earliest` up to, and without, `before`."""

    partition: int
    earliest: int
    before: int
    latest: int

    @property
    def records(self) -> int:
        return self.before - self.earliest

    def document(self, problem: Failure | None) -> dict[str, Any]:
        return {**self._asdict(), "records": self.records, "error": problem and problem.document()}


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    try:
        before = parse_position(options.before)
    except ValueError as error:
        raise Failure(Exit.USAGE, f"--before {error}") from error
    problems: dict[int, Failure] = {}
    with Cluster.of(options) as cluster:
        topic = required_topics(cluster, [options.topic])[options.topic]
        if topic.internal and not (options.yes or options.dry_run):
            raise Failure(Exit.REFUSED, f"{options.topic}: the cluster keeps its state there; --yes deletes its records nevertheless; nothing was deleted")
        plan = plan_of(cluster, options.topic, chosen(options, topic.partitions), before)
        doomed = [deletion for deletion in plan if deletion.records]
        total = counted(sum(deletion.records for deletion in doomed), "offset")
        if not screen.json:
            show(screen, plan)
        if doomed and not options.dry_run:
            if not screen.confirm(f"Delete {total} of {plain(options.topic)} for good?", options):
                raise Failure(Exit.REFUSED, "nothing was deleted")
            problems = delete(cluster, options.topic, {deletion.partition: deletion.before for deletion in doomed})
    if screen.json:
        screen.document({"topic": options.topic, "dry_run": options.dry_run, "partitions": [deletion.document(problems.get(deletion.partition)) for deletion in plan]})
    elif not doomed:
        screen.line("there is nothing to delete")
    elif options.dry_run:
        screen.line(f"dry run: nothing was deleted, {total} of {plain(options.topic)} would be")
    else:
        deleted = sum(deletion.records for deletion in doomed if deletion.partition not in problems)
        screen.line(f"deleted {counted(deleted, 'offset')} of {plain(options.topic)}")
    return max((screen.fail(problem) for problem in problems.values()), default=Exit.DONE)


def chosen(options: argparse.Namespace, partitions: Sequence[int] | Mapping[int, object]) -> list[int]:
    for number in options.partition or ():
        if number not in partitions:
            raise Failure(Exit.MISSING, f"--partition: topic {options.topic} has {counted(len(partitions), 'partition')}, and no {number}", kind=UNKNOWN_PARTITION)
    return sorted(set(options.partition or partitions))


def plan_of(cluster: Cluster, topic: str, partitions: Sequence[int], before: StartPosition) -> list[Deletion]:
    """What is deleted of each partition. Raises Failure if one of them is not known now, so that nothing is deleted in part."""
    tps = [(topic, partition) for partition in partitions]
    starts, ends = offsets_at(cluster, tps, EARLIEST), offsets_at(cluster, tps, LATEST)
    match before.kind:
        case "time":
            found = log_offsets(cluster, dict.fromkeys(tps, before.number))
            for (_, partition), result in found.items():
                if result.error:
                    raise failure(result.error, f"topic {topic} partition {partition}")
            targets = {tp: ends[tp] if found[tp].offset < 0 else found[tp].offset for tp in tps}
        case "last":
            targets = {tp: ends[tp] - before.number for tp in tps}
        case "offset":
            targets = dict.fromkeys(tps, before.number)
            for tp in tps:
                if before.number > ends[tp]:
                    raise Failure(Exit.MISSING, f"--before: {topic}-{tp[1]} ends at offset {ends[tp]}, before {before.number} (--before latest deletes all of its records)")
        case _:
            targets = starts if before.kind == "earliest" else ends
    return [Deletion(tp[1], starts[tp], max(targets[tp], starts[tp]), ends[tp]) for tp in tps]


def delete(cluster: Cluster, topic: str, before: Mapping[int, int]) -> dict[int, Failure]:
    """Delete the records of each partition before its offset; retry while leaders move. Returns the failures."""
    remaining = dict(before)
    problems: dict[int, Failure] = {}
    wait = cluster.wait()
    while True:
        codes = ask_leaders(cluster, topic, remaining, wait.deadline)
        problems |= {partition: problem_of(code, topic, partition) for partition, code in codes.items() if code}
        for partition, code in codes.items():
            if code not in RETRIABLE:
                del remaining[partition]
            if not code:
                problems.pop(partition, None)
        if not remaining or not wait.again():
            return problems
        cluster.topics([topic], refresh=True)


def ask_leaders(cluster: Cluster, topic: str, before: Mapping[int, int], deadline: float) -> dict[int, int]:
    """Send one DeleteRecords to each leader. The error code of each partition."""
    known = cluster.topics([topic])[topic].partitions
    leaders: dict[int, list[int]] = {}
    codes: dict[int, int] = {}
    for partition in before:
        leader = known[partition].leader if partition in known else -1
        if leader in cluster.brokers:
            leaders.setdefault(leader, []).append(partition)
        else:
            codes[partition] = ErrorCode.LEADER_NOT_AVAILABLE
    for leader, partitions in leaders.items():
        entries = [DeleteRecordsPartition(partition, before[partition]) for partition in partitions]
        request = DeleteRecordsRequest([DeleteRecordsTopic(topic, entries)], int(max(deadline - time.monotonic(), 1) * 1000))
        try:
            reply = cluster.send_to_broker(leader, request, retry=False)
        except Failure as lost:
            if lost.exit_code != Exit.UNREACHABLE:
                raise
            codes |= dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
            continue
        codes |= {entry.partition_index: entry.error_code for answer in reply.topics for entry in answer.partitions}
    return codes


def problem_of(code: int, topic: str, partition: int) -> Failure:
    about = f"topic {topic} partition {partition}"
    if code == ErrorCode.POLICY_VIOLATION:
        return failure(code, about).with_line(f"{about}: records are deleted only of topics whose cleanup.policy has delete (tenure topic config show {topic} cleanup.policy)")
    return failure(code, about)


def show(screen: Screen, plan: Sequence[Deletion]) -> None:
    screen.table(
        ["PARTITION", "EARLIEST", "NEW EARLIEST", "LATEST", "DELETED"],
        [(deletion.partition, deletion.earliest, deletion.before, deletion.latest, deletion.records) for deletion in plan],
    )
