"""The arguments of `tenure produce` and `tenure consume`. The commands themselves are imported when they run."""

from __future__ import annotations

import argparse
from typing import Any, Final

from cli.arguments import TIMEOUT_HELP, add_change_options, add_cluster_options, add_command, one_partition, positive_seconds, whole_number

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS: Final = ("all", "1", "0")
ASSIGNORS: Final = ("range", "roundrobin")
ANY: Final = "any"

PRODUCE_NOTES: Final = """\
Lines are sent as they arrive. With --acks all, each record is written exactly once in spite of failures, or the command
reports which lines were not written. A key selects the partition as in Kafka's own clients. --partition any lets the output of
`tenure consume --json` be copied to a topic with fewer partitions.

With --json-lines, which reads the output of `tenure consume --json`, lines look like {"key": "k", "value": "v", "headers": [{"name": "n", "value": "v"}], "partition": 0, "timestamp": "2026-11-21T08:30:00Z"},
where "value": null is a tombstone and key_base64 and value_base64 contain bytes. Only the value is required."""

CONSUME_NOTES: Final = """\
Without --group the command reads all partitions from the position of --from, and commits nothing. With --group it is a member of the
group: it shares the partitions with the other members, continues at the committed offsets, and commits what it has printed.
With --instance it is a static member: after it ends it keeps its seat until the session timeout, unless --leave is given.
A member waits while other brokers take over the partitions and groups of a failed one, and while other members join again in a rebalance. It
ends when the first lasts longer than its session timeout, or either longer than --timeout if given: exit code 75, or 69 if no broker
answers. With and without --group the command ends with exit code 66 when a topic is deleted.
Without --group a partition whose leader does not answer is named and tried again while the others are read. Where reading has an end, what was
not read within --timeout is named there, with exit code 75.

--from and --until accept earliest, latest, end, an offset, -N for the last N of each partition, a time (2026-11-21T08:30:00Z; UTC without
a zone), or an age (15m, 2d). The record at --until, or the first one of that time, is the first that is not printed; until a time to come, the
command waits for it.

--format has {topic} {partition} {offset} {timestamp} {key} {value} {headers}, or kcat's letters: %t topic, %p partition, %o offset, %T timestamp
in ms, %k key, %s value, %h headers, %K and %S sizes of key and value (-1: null), %% for a percent sign; and \\n, \\t. Null is `null` in
{key} and {value}, and empty in %k and %s, as kcat prints it. A line feed is added unless the template ends with one."""


def add(commands: Any) -> None:
    add_produce(commands)
    add_consume(commands)


def add_produce(commands: Any) -> None:
    parser = add_command(
        commands,
        "produce",
        run="cli.records.produce",
        help="send records to a topic",
        description="Send records to a topic: those given as --value, otherwise one per line of standard input.",
        examples=(
            "tenure produce orders --key 17 --value 'two apples'",
            "tenure produce orders --key-separator : < orders.txt",
            "tenure produce orders-new --create --file orders.txt",
            "tenure produce orders --key 17 --null-value           # a tombstone",
            "tenure consume orders --json --from earliest --until end | tenure produce copy --json-lines",
        ),
        notes=PRODUCE_NOTES,
    )
    parser.add_argument("topic", metavar="TOPIC")
    records = parser.add_argument_group("records")
    records.add_argument("--value", metavar="V", action="append", help="a record's value; may be repeated. Default: lines of standard input")
    records.add_argument("--value-file", metavar="FILE", help="send one record with the file as its value")
    records.add_argument("--file", metavar="FILE", help="lines of a file instead of standard input")
    records.add_argument("--key", metavar="K", help="the key of every record")
    records.add_argument("--key-separator", metavar="SEP", help="each line is a key, SEP and a value")
    records.add_argument("--null-value", action="store_true", help="send tombstones: one with --key, else one for each line, which is the key")
    records.add_argument("--json-lines", action="store_true", help="each line is a record as a JSON object, as consume --json prints it")
    records.add_argument("--header", metavar="NAME=VALUE", action="append", default=[], help="a header of every record (NAME alone: without a value); may be repeated")
    sending = parser.add_argument_group("sending")
    sending.add_argument(
        "--partition",
        metavar="N",
        type=partition,
        help=f"partition for every record; {ANY}: by key, else round robin, without regard to the partition of a line of JSON. "
        "Default: that of a line of JSON, else by key, else another one for each batch",
    )
    sending.add_argument("--compression", metavar="CODEC", choices=CODECS, default="none", help=", ".join(CODECS))
    sending.add_argument("--acks", choices=ACKS, default="all", help="required acknowledgements: all in-sync replicas, the leader (1), none (0)")
    sending.add_argument("--create", action="store_true", help="create a missing topic, with the cluster's defaults")
    add_cluster_options(parser)
    add_change_options(parser, asks=False)


def add_consume(commands: Any) -> None:
    parser = add_command(
        commands,
        "consume",
        run="cli.records.consume",
        help="print records of topics, alone or as a member of a group",
        description="Print records of topics as they arrive, until Ctrl-C, --limit or --idle.",
        examples=(
            "tenure consume orders --from-beginning",
            "tenure consume orders --from -10 --no-follow",
            "tenure consume orders --group billing --instance desk-1 --from-beginning",
            "tenure consume orders --from 2d --until end --format '%p %o %k %s'",
            "tenure consume orders invoices --format '{topic} {key}: {value}'",
        ),
        notes=CONSUME_NOTES,
    )
    parser.add_argument("topics", metavar="TOPIC", nargs="+")
    range_options = parser.add_argument_group("range")
    begin = range_options.add_mutually_exclusive_group()
    begin.add_argument("--from-beginning", action="store_const", const="earliest", dest="begin", help="the same as --from earliest")
    begin.add_argument("--from", metavar="WHERE", dest="begin", help="where to start; with --group: in partitions without a committed offset. Default: latest")
    range_options.add_argument("--until", metavar="WHERE", help="where to stop in each partition: before an offset or a time, or at the present end (end)")
    range_options.add_argument("--partition", metavar="N", type=one_partition, action="append", help="only this partition; may be repeated")
    range_options.add_argument("--limit", metavar="N", type=whole_number, help="stop after this many records")
    range_options.add_argument("--idle", metavar="SECONDS", type=positive_seconds, help="stop after this time without records")
    range_options.add_argument("--follow", action=argparse.BooleanOptionalAction, default=True, help="wait for new records at the end (default); --no-follow: the same as --until end")
    group = parser.add_argument_group("as a member of a group")
    group.add_argument("--group", metavar="G", help="the group to join")
    group.add_argument("--instance", metavar="ID", help="be a static member of this group.instance.id")
    group.add_argument("--leave", action="store_true", help="leave the group at the end, as a dynamic member always does")
    group.add_argument("--no-commit", action="store_true", help="do not commit offsets")
    group.add_argument("--session-timeout", metavar="SECONDS", type=positive_seconds, default=45.0, help="default: 45")
    group.add_argument("--heartbeat", metavar="SECONDS", type=positive_seconds, help="heartbeat interval; default: 3, or a third of the session")
    group.add_argument("--rebalance-timeout", metavar="SECONDS", type=positive_seconds, default=60.0, help="time to rejoin in a rebalance; default: 60")
    group.add_argument("--assignor", action="append", choices=ASSIGNORS, help="assignors to offer; may be repeated. Default: range, roundrobin")
    output = parser.add_argument_group("output")
    layout = output.add_mutually_exclusive_group()
    layout.add_argument("--format", metavar="TEMPLATE", help="default: {value}")
    layout.add_argument("--long", action="store_true", help="time, partition, offset, key and headers too")
    output.add_argument("--raw", action="store_true", help="print bytes unchanged, also if they are not text")
    output.add_argument("--verbose", action="store_true", help="report progress on standard error (default on a terminal)")
    output.add_argument("--quiet", action="store_true", help="print only records and failures")
    output.add_argument("--committed", action="store_true", help="skip records of transactions that are open or were aborted")
    add_cluster_options(
        parser,
        json_help="one JSON object a record; bytes that are not text as base64",
        timeout_help=f"{TIMEOUT_HELP}, and a member reconnects for its session timeout",
    )


def partition(text: str) -> int | str:
    return text if text == ANY else whole_number(text)
