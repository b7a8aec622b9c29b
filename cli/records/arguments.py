"""The arguments of `tenure produce` and `tenure consume`. The commands themselves are imported when they run."""

from __future__ import annotations

import argparse
from typing import Any, Final

from cli.arguments import add_change, add_cluster, add_command, positive_seconds, whole_number

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS: Final = ("all", "1", "0")
ASSIGNORS: Final = ("range", "roundrobin")
ANY: Final = "any"

PRODUCE_NOTES: Final = """\
Lines are sent as they come. Unless --acks says otherwise, each record is written once, whatever breaks meanwhile, or the command
says which lines were not written. A key decides on the partition as in Kafka's own clients.

--json lines look like {"key": "k", "value": "v", "headers": [{"name": "n", "value": "v"}], "partition": 0, "timestamp": "2026-11-21T08:30:00Z"},
where "value": null is a tombstone, key_base64 and value_base64 have bytes, and all but the value may be left out.
What `tenure consume --json` prints is understood."""

CONSUME_NOTES: Final = """\
Without --group nothing is remembered: all partitions are read from the place that --from says. With --group the command is a member
like any other: it shares the partitions with the rest of the group, goes on where the group was, and commits what it has printed.
With --instance it is a static member: it keeps its seat when it ends, for as long as the session timeout, unless --leave is given.

--from takes earliest, latest, an offset, -N for the last N of each partition, a time (2026-11-21T08:30:00Z; UTC without a zone),
or an age (15m, 2d).

--format has {topic} {partition} {offset} {timestamp} {key} {value} {headers}, and \\t, \\n."""


def add(commands: Any) -> None:
    add_produce(commands)
    add_consume(commands)


def add_produce(commands: Any) -> None:
    parser = add_command(
        commands,
        "produce",
        run="cli.records.produce",
        help="send records to a topic",
        description="Send records to a topic: those given as --value, or else read from standard input, one per line.",
        examples=(
            "tenure produce orders --key 17 --value 'two apples'",
            "tenure produce orders --key-separator : < orders.txt",
            "tenure produce orders-new --create --file orders.txt",
            "tenure produce orders --key 17 --null-value           # a tombstone",
            "tenure consume orders --json --from earliest --idle 2 | tenure produce copy --json",
        ),
        notes=PRODUCE_NOTES,
    )
    parser.add_argument("topic", metavar="TOPIC")
    what = parser.add_argument_group("records")
    what.add_argument("--value", metavar="V", action="append", help="a record's value; may be repeated. Default: lines of standard input")
    what.add_argument("--value-file", metavar="FILE", help="one record whose value is the whole file")
    what.add_argument("--file", metavar="FILE", help="lines of a file instead of standard input")
    what.add_argument("--key", metavar="K", help="the key of every record")
    what.add_argument("--key-separator", metavar="SEP", help="each line is a key, SEP and a value")
    what.add_argument("--null-value", action="store_true", help="tombstones: with --key one, else one for each line, which is a key")
    what.add_argument("--plain-lines", action="store_true", help="with --json: lines are plain all the same, only what was sent is printed as JSON")
    what.add_argument("--header", metavar="NAME=VALUE", action="append", default=[], help="a header of every record (NAME alone: without a value); may be repeated")
    how = parser.add_argument_group("sending")
    how.add_argument("--partition", metavar="N", type=partition, help=f"partition for every record; {ANY}: what a line of JSON says, else by key, else round robin")
    how.add_argument("--compression", metavar="CODEC", choices=CODECS, default="none", help=", ".join(CODECS))
    how.add_argument("--acks", choices=ACKS, default="all", help="required acknowledgements: all in-sync replicas, the leader (1), none (0)")
    how.add_argument("--create", action="store_true", help="create a missing topic, with the cluster's defaults")
    add_cluster(parser, json_help="lines are JSON, and what was sent is printed as JSON")
    add_change(parser, asks=False)


def add_consume(commands: Any) -> None:
    parser = add_command(
        commands,
        "consume",
        run="cli.records.consume",
        help="print records of topics, alone or as a member of a group",
        description="Print records of topics as they come, until Ctrl-C, --limit or --idle.",
        examples=(
            "tenure consume orders --from-beginning",
            "tenure consume orders --from -10 --no-follow",
            "tenure consume orders --group billing --instance desk-1 --from-beginning",
            "tenure consume orders invoices --format '{topic} {key}: {value}'",
        ),
        notes=CONSUME_NOTES,
    )
    parser.add_argument("topics", metavar="TOPIC", nargs="+")
    where = parser.add_argument_group("where to begin and end")
    begin = where.add_mutually_exclusive_group()
    begin.add_argument("--from-beginning", action="store_const", const="earliest", dest="begin", help="as --from earliest")
    begin.add_argument("--from", metavar="WHERE", dest="begin", help="with --group: where the group has no offset yet. Default: latest")
    where.add_argument("--partition", metavar="N", type=whole_number, action="append", help="only this one; may be repeated")
    where.add_argument("--limit", metavar="N", type=whole_number, help="stop after this many records")
    where.add_argument("--idle", metavar="SECONDS", type=positive_seconds, help="stop after this time without records")
    where.add_argument("--follow", action=argparse.BooleanOptionalAction, default=True, help="wait for more at the end (default), or end there")
    group = parser.add_argument_group("as a member of a group")
    group.add_argument("--group", metavar="G", help="the group to join")
    group.add_argument("--instance", metavar="ID", help="be a static member of this group.instance.id")
    group.add_argument("--leave", action="store_true", help="leave at the end even as a static member; a dynamic member always does")
    group.add_argument("--no-commit", action="store_true", help="do not commit offsets")
    group.add_argument("--session-timeout", metavar="SECONDS", type=positive_seconds, default=45.0, help="default: 45")
    group.add_argument("--heartbeat", metavar="SECONDS", type=positive_seconds, help="heartbeat interval; default: 3, or a third of the session")
    group.add_argument("--rebalance-timeout", metavar="SECONDS", type=positive_seconds, default=60.0, help="time to rejoin in a rebalance; default: 60")
    group.add_argument("--assignor", action="append", choices=ASSIGNORS, help="assignors to offer; may be repeated. Default: range, roundrobin")
    look = parser.add_argument_group("output")
    shape = look.add_mutually_exclusive_group()
    shape.add_argument("--format", metavar="TEMPLATE", help="default: {value}")
    shape.add_argument("--long", action="store_true", help="time, partition, offset, key and headers too")
    look.add_argument("--raw", action="store_true", help="bytes unchanged, also if they are not text")
    look.add_argument("--verbose", action="store_true", help="report progress on standard error (default on a terminal)")
    look.add_argument("--quiet", action="store_true", help="print only records and failures")
    look.add_argument("--committed", action="store_true", help="skip records of transactions that are open or were aborted")
    add_cluster(parser, json_help="one JSON object a record; bytes that are no text as base64")


def partition(text: str) -> int | str:
    return text if text == ANY else whole_number(text)
