"""`tenure produce`: sends records from arguments or lines, and prints their offsets."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from cli.client import Cluster, Exit, Failure, TopicInfo
from cli.failure import UNKNOWN_PARTITION
from cli.records.arguments import ANY
from cli.records.drafts import Draft, LineParser, header_argument, json_line_parser, plain_line_parser
from cli.records.lines import line_groups, open_input, unreadable
from cli.records.partitioning import Partitioner
from cli.records.sending import Sender, Stopped, too_large
from cli.shown import Screen, counted, plain
from cli.topics.create import create_if_missing, planned_topic
from cli.topics.finding import existing_topics, required_topics, unknown_topics
from cli.topics.settings import topic_settings
from protocol.batch import Compression

ACKS: Final = {"all": -1, "1": 1, "0": 0}
LARGE_BYTES: Final = 1_000_000  # near Kafka's default for max.message.bytes
RANGES_NAMED: Final = 5


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    check_options(options)
    with Cluster.of(options) as cluster:
        topic = topic_of(cluster, options, screen)
        if options.partition not in (None, ANY):
            check_partition(options.topic, topic, options.partition, "--partition")
        if options.dry_run:
            return dry_run(screen, cluster, options, topic)
        sender = Sender(cluster, options.topic, acks=ACKS[options.acks], compression=Compression[options.compression.upper()])
        try:
            for assigned in placements(options, topic, checked_sizes(cluster, options, drafts_of(options))):
                sender.send(assigned)
        except Stopped as stopped:
            print_partial_result(screen, options, sender)
            raise stopped.reason.with_line(stopped_text(stopped, sender.records)) from stopped
        except Failure as failure:
            print_partial_result(screen, options, sender)
            raise failure.with_line(f"{failure.line}; {written_text(sender.records)}") from failure
        except KeyboardInterrupt:
            print_partial_result(screen, options, sender)
            raise
    print_result(screen, options, sender)
    return 0


def topic_of(cluster: Cluster, options: argparse.Namespace, screen: Screen) -> TopicInfo:
    """The topic to send to. A missing topic is created only with --create, because the name may be mistyped."""
    name = options.topic
    topics_found, missing = existing_topics(cluster, [name])
    if not missing:
        return topics_found[name]
    if not options.create:
        raise unknown_topics(cluster, missing, more="; --create creates it")
    if options.dry_run:
        planned = planned_topic(cluster, name)
        options.created = True
        if not screen.json:
            screen.line(f"{plain(name)} would be created")
        return planned
    options.created = create_if_missing(cluster, name)
    if options.created and not screen.json:
        screen.line(f"{plain(name)} created")
    return required_topics(cluster, [name])[name]


def check_options(options: argparse.Namespace) -> None:
    used = [name for name, value in (("--value", options.value), ("--value-file", options.value_file), ("--file", options.file)) if value is not None]
    if len(used) > 1:
        raise Failure(Exit.USAGE, f"{used[0]} and {used[1]} exclude each other")
    lines = not used or used == ["--file"]
    if options.null_value and not lines:
        raise Failure(Exit.USAGE, f"--null-value and {used[0]} exclude each other")
    if options.key_separator is not None and (not lines or options.null_value or options.key is not None):
        raise Failure(Exit.USAGE, "--key-separator excludes --value, --value-file, --key and --null-value")
    if options.key_separator == "":
        raise Failure(Exit.USAGE, "--key-separator needs at least one character")
    if options.json_lines:
        for option, value in (("--value", options.value), ("--value-file", options.value_file), ("--key-separator", options.key_separator)):
            if value is not None:
                raise Failure(Exit.USAGE, f"--json-lines and {option} exclude each other: a line of JSON has its own key and value")
        if options.null_value:
            raise Failure(Exit.USAGE, '--json-lines and --null-value exclude each other: a line of JSON is a tombstone with "value": null')
    if options.null_value and options.key is not None and options.file is not None:
        raise Failure(Exit.USAGE, "--key with --null-value sends one tombstone, and excludes --file")
    try:
        options.headers = [header_argument(text) for text in options.header]
    except ValueError as error:
        raise Failure(Exit.USAGE, f"--header {error}") from error


# Input


def drafts_of(options: argparse.Namespace) -> Iterator[list[Draft]]:
    """The records to send, in groups of those that are available at the same time."""
    key = None if options.key is None else os.fsencode(options.key)
    partition = None if options.partition == ANY else options.partition
    if options.value is not None:
        yield [Draft(0, key, os.fsencode(value), options.headers, partition) for value in options.value]
    elif options.value_file is not None:
        yield [Draft(0, key, read_whole(options.value_file), options.headers, partition)]
    elif options.null_value and key is not None:
        yield [Draft(0, key, None, options.headers, partition)]
    else:
        yield from drafts_from_lines(options, parser_of_lines(options, key, partition))


def parser_of_lines(options: argparse.Namespace, key: bytes | None, partition: int | None) -> LineParser:
    if options.json_lines:
        return json_line_parser(key, options.headers, partition, options.partition == ANY)
    separator = None if options.key_separator is None else os.fsencode(options.key_separator)
    return plain_line_parser(key, separator, options.null_value, options.headers, partition)


def drafts_from_lines(options: argparse.Namespace, parse: LineParser) -> Iterator[list[Draft]]:
    """Parse lines. Records before a malformed line are still sent."""
    if options.file is None and sys.stdin is not None and sys.stdin.isatty():
        print("one record a line; Ctrl-D ends", file=sys.stderr)
    number = 0
    with open_input(options.file) as source:
        for lines in line_groups(source, options.file):
            drafts: list[Draft] = []
            try:
                for line in lines:
                    number += 1
                    drafts.append(parse(line, number))
            except Failure:
                if drafts:
                    yield drafts
                raise
            yield drafts


def read_whole(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise unreadable(path, error) from error


def checked_sizes(cluster: Cluster, options: argparse.Namespace, drafts: Iterable[list[Draft]]) -> Iterator[list[Draft]]:
    """Pass records on; raise Failure for one above max.message.bytes before it is sent, unless compression may make it fit."""
    limit: int | None = None
    for group in drafts:
        if options.compression == "none" and any(draft.size > LARGE_BYTES for draft in group):
            if limit is None:
                limit = record_limit(cluster, options.topic)
            for at, draft in enumerate(group):
                if draft.size > limit:
                    if at:
                        yield group[:at]
                    raise too_large(options.topic, draft, limit)
        yield group


def record_limit(cluster: Cluster, topic: str) -> int:
    try:
        return int(topic_settings(cluster, [topic])[topic]["max.message.bytes"].value or "")
    except (Failure, KeyError, ValueError):
        return 1 << 62  # unknown: the broker checks


# Partitions


def placements(options: argparse.Namespace, topic: TopicInfo, groups_of_drafts: Iterable[list[Draft]]) -> Iterator[list[tuple[int, Draft]]]:
    usable = [number for number, partition in topic.partitions.items() if partition.leader >= 0]
    partitioner = Partitioner(len(topic.partitions), usable, round_robin=options.partition == ANY)
    for drafts in groups_of_drafts:
        assigned: list[tuple[int, Draft]] = []
        for draft in drafts:
            if draft.partition is None:
                assigned.append((partitioner.choose(draft.key, draft.size), draft))
                continue
            if draft.partition not in topic.partitions:
                if assigned:
                    yield assigned
                check_partition(options.topic, topic, draft.partition, draft.source)
            assigned.append((draft.partition, draft))
        yield assigned
        partitioner.switch()


def check_partition(name: str, topic: TopicInfo, partition: int, source: str) -> None:
    if partition not in topic.partitions:
        count = len(topic.partitions)
        partitions = "only partition 0" if count == 1 else f"partitions 0 to {count - 1}"
        more = "" if source == "--partition" else f" (--partition {ANY} chooses another)"
        raise Failure(Exit.MISSING, f"{source}: topic {name} has {partitions}, not {partition}{more}", kind=UNKNOWN_PARTITION)


# Output


def print_partial_result(screen: Screen, options: argparse.Namespace, sender: Sender) -> None:
    """Print the result for the records that were sent before a failure."""
    if sender.records or screen.json:
        print_result(screen, options, sender)


def print_result(screen: Screen, options: argparse.Namespace, sender: Sender) -> None:
    rows = [(partition, sent.records, sent.first, sent.last) for partition, sent in sorted(sender.sent.items())]
    if screen.json:
        screen.document(document(options, sender.records, rows))
        return
    if not rows:
        screen.line("there were no records to send")
        return
    if options.acks == "0":
        screen.line(f"{counted(sender.records, 'record')} sent to {options.topic} without acknowledgement (--acks 0)")
        return
    if len(rows) == 1:
        partition, _, first, last = rows[0]
        offsets = "" if first < 0 else f", offset {first}" if first == last else f", offsets {first} to {last}"
        screen.line(f"{counted(sender.records, 'record')} written to {options.topic}: partition {partition}{offsets}")
        return
    screen.line(f"{counted(sender.records, 'record')} written to {options.topic}:")
    table = [[partition, records, known_offset(first), known_offset(last)] for partition, records, first, last in rows]
    screen.table(["PARTITION", "RECORDS", "FIRST OFFSET", "LAST OFFSET"], table)


def known_offset(offset: int) -> int | None:
    return None if offset < 0 else offset


def document(options: argparse.Namespace, records: int, rows: Sequence[tuple[int, int, int, int]]) -> dict[str, Any]:
    return {
        "topic": options.topic,
        "dry_run": False,
        "created": getattr(options, "created", False),
        "records": records,
        "acks": options.acks,
        "partitions": [
            {"partition": partition, "records": count, "first_offset": known_offset(first), "last_offset": known_offset(last)}
            for partition, count, first, last in rows
        ],
    }


def stopped_text(stopped: Stopped, records: int) -> str:
    parts = [plain(stopped.reason.line)]
    if records or not stopped.in_doubt:
        parts.append(written_text(records))
    if stopped.refused and (records or stopped.in_doubt):
        parts.append(f"{lines_of(stopped.refused)} {verb(stopped.refused)} not")
    if stopped.in_doubt:
        parts.append(f"whether {lines_of(stopped.in_doubt)} {verb(stopped.in_doubt)} written is unknown: check before sending again")
    return "; ".join(parts)


def written_text(records: int) -> str:
    return f"{counted(records, 'record')} {'was' if records == 1 else 'were'} written before" if records else "nothing was written"


def lines_of(drafts: Sequence[Draft]) -> str:
    """The line numbers, as ranges."""
    numbers = sorted(draft.line for draft in drafts if draft.line)
    if not numbers:
        return counted(len(drafts), "record")
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    ranges = [str(first) if first == last else f"{first}-{last}" for first, last in runs[:RANGES_NAMED]]
    more = f" and more, {len(numbers)} in all" if len(runs) > RANGES_NAMED else ""
    return f"{'line' if len(numbers) == 1 else 'lines'} {', '.join(ranges)}{more}"


def verb(drafts: Sequence[Draft]) -> str:
    return "was" if len(drafts) == 1 else "were"


def dry_run(screen: Screen, cluster: Cluster, options: argparse.Namespace, topic: TopicInfo) -> int:
    """Check the records without sending them, and print their counts."""
    records = keys = tombstones = size = 0
    for assigned in placements(options, topic, checked_sizes(cluster, options, drafts_of(options))):
        for _, draft in assigned:
            records += 1
            keys += draft.key is not None
            tombstones += draft.value is None
            size += len(draft.key or b"") + len(draft.value or b"")
    if screen.json:
        counts = {"records": records, "with_key": keys, "tombstones": tombstones, "bytes": size}
        created = getattr(options, "created", False)
        screen.document({"topic": options.topic, "dry_run": True, "created": created, "acks": options.acks, **counts})
    else:
        parts = [f"{keys} with a key"] + ([counted(tombstones, "tombstone")] if tombstones else [])
        screen.line(
            f"would send {counted(records, 'record')} of {counted(size, 'byte')} to {options.topic} "
            f"({counted(len(topic.partitions), 'partition')}): {', '.join(parts)}"
        )
    return 0
