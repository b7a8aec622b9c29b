"""`tenure produce`: arguments and lines become records; it prints the result of each."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from cli.client import EXIT, Cluster, Failure, TopicInfo
from cli.failure import UNKNOWN_PARTITION, UNKNOWN_TOPIC
from cli.records.arguments import ANY
from cli.records.drafts import Draft, Parse, header_argument, json_lines, plain_lines
from cli.records.lines import groups, opened
from cli.records.partitioning import Partitioner
from cli.records.sending import Sender, Stopped, too_large
from cli.shown import Screen, counted, plain
from cli.topics.create import ensure
from cli.topics.finding import absent, existing, required
from cli.topics.settings import topic_settings
from protocol.batch import Compression

ACKS: Final = {"all": -1, "1": 1, "0": 0}
LARGE_BYTES: Final = 1_000_000  # near Kafka's default for max.message.bytes
LINES_NAMED: Final = 5


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    checked(options)
    with Cluster.of(options) as cluster:
        topic = topic_of(cluster, options, screen)
        if options.partition not in (None, ANY):
            check_partition(options.topic, topic, options.partition, "--partition")
        if options.dry_run:
            return tell_only(screen, cluster, options, topic)
        sender = Sender(cluster, options.topic, acks=ACKS[options.acks], compression=Compression[options.compression.upper()])
        try:
            for placed in placements(options, topic, checked_sizes(cluster, options, drafts_of(options))):
                sender.send(placed)
        except Stopped as stopped:
            tell_sent(screen, options, sender)
            raise stopped.reason.saying(explained(stopped, sender.records)) from stopped
        except Failure as failure:
            tell_sent(screen, options, sender)
            raise failure.saying(f"{failure.line}; {written(sender.records)}") from failure
        except KeyboardInterrupt:
            tell_sent(screen, options, sender)
            raise
    tell(screen, options, sender)
    return 0


def topic_of(cluster: Cluster, options: argparse.Namespace, screen: Screen) -> TopicInfo:
    """The topic to send to; a missing topic is created only on request, as a name may be mistyped."""
    name = options.topic
    there, missing = existing(cluster, [name])
    if not missing:
        return there[name]
    if not options.create:
        raise absent(cluster, missing, more="; --create makes it: unasked it is not made, for the name may be mistyped")
    if options.dry_run:
        raise Failure(EXIT.MISSING, f"topic {name} does not exist yet: --create would make it", word=UNKNOWN_TOPIC)
    options.created = ensure(cluster, name)
    if options.created and not screen.json:
        screen.line(f"{plain(name)} created")
    return required(cluster, [name])[name]


def checked(options: argparse.Namespace) -> None:
    given = [name for name, value in (("--value", options.value), ("--value-file", options.value_file), ("--file", options.file)) if value is not None]
    if len(given) > 1:
        raise Failure(EXIT.USAGE, f"{given[0]} and {given[1]} exclude each other")
    lines = not given or given == ["--file"]
    if options.null_value and not lines:
        raise Failure(EXIT.USAGE, f"--null-value and {given[0]} exclude each other")
    if options.key_separator is not None and (not lines or options.null_value or options.key is not None):
        raise Failure(EXIT.USAGE, "--key-separator is for lines of a key and a value: without --value, --value-file, --key and --null-value")
    if options.key_separator == "":
        raise Failure(EXIT.USAGE, "--key-separator needs at least one character")
    if options.json and lines and not options.plain_lines and (options.key_separator is not None or (options.null_value and options.key is None)):
        raise Failure(EXIT.USAGE, "lines of JSON say themselves what is key and what is value; --plain-lines: they are no JSON")
    if options.null_value and options.key is not None and options.file is not None:
        raise Failure(EXIT.USAGE, "--key with --null-value is one tombstone, which needs no --file")
    try:
        options.headers = [header_argument(text) for text in options.header]
    except ValueError as error:
        raise Failure(EXIT.USAGE, f"--header {error}") from error


# Where records come from


def drafts_of(options: argparse.Namespace) -> Iterator[list[Draft]]:
    """Groups of those that are there at once."""
    key = None if options.key is None else os.fsencode(options.key)
    partition = None if options.partition == ANY else options.partition
    if options.value is not None:
        yield [Draft(0, key, os.fsencode(value), options.headers, partition) for value in options.value]
    elif options.value_file is not None:
        yield [Draft(0, key, whole_file(options.value_file), options.headers, partition)]
    elif options.null_value and key is not None:
        yield [Draft(0, key, None, options.headers, partition)]
    else:
        yield from from_lines(options, parser_of_lines(options, key, partition))


def parser_of_lines(options: argparse.Namespace, key: bytes | None, partition: int | None) -> Parse:
    if options.json and not options.plain_lines:
        return json_lines(key, options.headers, partition, options.partition == ANY)
    separator = None if options.key_separator is None else os.fsencode(options.key_separator)
    return plain_lines(key, separator, options.null_value, options.headers, partition)


def from_lines(options: argparse.Namespace, parse: Parse) -> Iterator[list[Draft]]:
    """Records before an unreadable line are still sent."""
    if options.file is None and sys.stdin is not None and sys.stdin.isatty():
        print("one record a line; Ctrl-D ends", file=sys.stderr)
    number = 0
    with opened(options.file) as source:
        for lines in groups(source):
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


def whole_file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise Failure(EXIT.MISSING, f"{path}: {(error.strerror or str(error)).lower()}") from error


def checked_sizes(cluster: Cluster, options: argparse.Namespace, drafts: Iterable[list[Draft]]) -> Iterator[list[Draft]]:
    """A record that is larger than its topic takes need not travel there first (compressed it may fit)."""
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
        return 1 << 62  # not known here: the broker decides


# Where they go


def placements(options: argparse.Namespace, topic: TopicInfo, groups_of_drafts: Iterable[list[Draft]]) -> Iterator[list[tuple[int, Draft]]]:
    usable = [number for number, partition in topic.partitions.items() if partition.leader >= 0]
    partitioner = Partitioner(len(topic.partitions), usable)
    for drafts in groups_of_drafts:
        placed: list[tuple[int, Draft]] = []
        for draft in drafts:
            if draft.partition is None:
                placed.append((partitioner.choose(draft.key, draft.size), draft))
                continue
            if draft.partition not in topic.partitions:
                if placed:
                    yield placed
                check_partition(options.topic, topic, draft.partition, draft.place)
            placed.append((draft.partition, draft))
        yield placed
        partitioner.move()


def check_partition(name: str, topic: TopicInfo, partition: int, who: str) -> None:
    if partition not in topic.partitions:
        count = len(topic.partitions)
        there = "partition 0 alone" if count == 1 else f"partitions 0 to {count - 1}"
        more = "" if who == "--partition" else f" (--partition {ANY} chooses anew)"
        raise Failure(EXIT.MISSING, f"{who}: topic {name} has {there}, not {partition}{more}", word=UNKNOWN_PARTITION)


# Output


def tell_sent(screen: Screen, options: argparse.Namespace, sender: Sender) -> None:
    """The records sent before a failure, for the failure's line."""
    if sender.records or screen.json:
        tell(screen, options, sender)


def tell(screen: Screen, options: argparse.Namespace, sender: Sender) -> None:
    rows = [(partition, sent.records, sent.first, sent.last) for partition, sent in sorted(sender.sent.items())]
    if screen.json:
        screen.document(document(options, sender.records, rows))
        return
    if not rows:
        screen.line("no records were there to send")
        return
    if options.acks == "0":
        screen.line(f"{counted(sender.records, 'record')} handed to the brokers of {options.topic}; whether they were written, nobody says (--acks 0)")
        return
    if len(rows) == 1:
        partition, _, first, last = rows[0]
        offsets = "" if first < 0 else f", offset {first}" if first == last else f", offsets {first} to {last}"
        screen.line(f"{counted(sender.records, 'record')} written to {options.topic}: partition {partition}{offsets}")
        return
    screen.line(f"{counted(sender.records, 'record')} written to {options.topic}:")
    table = [[partition, records, unknown(first), unknown(last)] for partition, records, first, last in rows]
    screen.table(["PARTITION", "RECORDS", "FIRST OFFSET", "LAST OFFSET"], table)


def unknown(offset: int) -> int | None:
    return None if offset < 0 else offset


def document(options: argparse.Namespace, records: int, rows: Sequence[tuple[int, int, int, int]]) -> dict[str, Any]:
    return {
        "topic": options.topic,
        "dry_run": False,
        "created": getattr(options, "created", False),
        "records": records,
        "acks": options.acks,
        "partitions": [
            {"partition": partition, "records": count, "first_offset": unknown(first), "last_offset": unknown(last)}
            for partition, count, first, last in rows
        ],
    }


def explained(stopped: Stopped, records: int) -> str:
    parts = [plain(stopped.reason.line)]
    if records or not stopped.in_doubt:
        parts.append(written(records))
    if stopped.refused and (records or stopped.in_doubt):
        parts.append(f"{lines_of(stopped.refused)} {verb(stopped.refused)} not")
    if stopped.in_doubt:
        parts.append(f"whether {lines_of(stopped.in_doubt)} {verb(stopped.in_doubt)} written is not known: look before sending again")
    return "; ".join(parts)


def written(records: int) -> str:
    return f"{counted(records, 'record')} {'was' if records == 1 else 'were'} written before" if records else "nothing was written"


def lines_of(drafts: Sequence[Draft]) -> str:
    """Which lines, in stretches."""
    numbers = sorted(draft.line for draft in drafts if draft.line)
    if not numbers:
        return counted(len(drafts), "record")
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    named = [str(first) if first == last else f"{first}-{last}" for first, last in runs[:LINES_NAMED]]
    more = f" and more, {len(numbers)} in all" if len(runs) > LINES_NAMED else ""
    return f"{'line' if len(numbers) == 1 else 'lines'} {', '.join(named)}{more}"


def verb(drafts: Sequence[Draft]) -> str:
    return "was" if len(drafts) == 1 else "were"


def tell_only(screen: Screen, cluster: Cluster, options: argparse.Namespace, topic: TopicInfo) -> int:
    """--dry-run: everything but sending."""
    records = keys = tombstones = size = 0
    for placed in placements(options, topic, checked_sizes(cluster, options, drafts_of(options))):
        for _, draft in placed:
            records += 1
            keys += draft.key is not None
            tombstones += draft.value is None
            size += len(draft.key or b"") + len(draft.value or b"")
    if screen.json:
        counts = {"records": records, "with_key": keys, "tombstones": tombstones, "bytes": size}
        screen.document({"topic": options.topic, "dry_run": True, "acks": options.acks, **counts})
    else:
        parts = [f"{keys} with a key"] + ([counted(tombstones, "tombstone")] if tombstones else [])
        screen.line(
            f"would send {counted(records, 'record')} of {counted(size, 'byte')} to {options.topic} "
            f"({counted(len(topic.partitions), 'partition')}): {', '.join(parts)}"
        )
    return 0
