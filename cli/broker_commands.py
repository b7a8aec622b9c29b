"""Arguments of `tenure serve`, `tenure health` and `tenure log`."""

from __future__ import annotations

import argparse
from typing import Any

from cli.arguments import BOOTSTRAP, add_command, add_family, add_security_options, addresses, positive_number, seconds, whole_number


def add_serve(commands: Any) -> None:
    serve = add_command(
        commands,
        "serve",
        run="cli.serve",
        for_output=False,
        help="run a broker",
        description="Run a broker until SIGTERM, SIGINT or SIGHUP. Settings have Kafka's names where Kafka has one; docs/configuration.md lists them.",
        examples=(
            "tenure serve",
            "tenure serve --data /var/lib/tenure --listen 0.0.0.0:9092 --advertise broker.example:9092",
            "tenure serve --nodes 3",
        ),
        notes="Precedence: --set and the other flags, then TENURE_... variables (TENURE_GROUP_MAX_SIZE=50), the file, the profile, the default.",
    )
    serve.add_argument("--config", metavar="FILE", help='a TOML file ("max.connections" = 100, or max_connections = 100), or FILE.properties as Kafka reads it')
    serve.add_argument("--listen", metavar="HOST:PORT", action="append", default=[], help="the address to listen on (127.0.0.1:9092); port 0: a free port")
    serve.add_argument("--advertise", metavar="HOST:PORT", action="append", default=[], help="the address advertised to clients")
    serve.add_argument("--data", metavar="DIR", action="append", default=[], help="the data directory (./data)")
    several = serve.add_mutually_exclusive_group()
    several.add_argument("--nodes", metavar="N", type=positive_number, help="experimental: N nodes over one data directory, a process and a port each")
    several.add_argument("--node-id", metavar="N", type=whole_number, help="run as node N of several over one data directory or store, each started by hand")
    serve.add_argument("--store", metavar="nats://HOST:PORT[,...]", help="experimental: keep all logs in NATS JetStream instead of a directory")
    serve.add_argument("--cluster", metavar="NAME", help="with --store: the cluster that this node belongs to (tenure)")
    serve.add_argument("--profile", metavar="NAME", help="a named set of settings; test: for integration tests, the data is deleted when the process ends")
    serve.add_argument(
        "--exit-with-parent",
        action=argparse.BooleanOptionalAction,
        help="stop when the parent process ends or closes its pipe to standard input; on in the profile test",
    )
    serve.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], dest="settings", help="one setting; may be repeated")
    serve.add_argument("--test-control", metavar="HOST:PORT", help="for tests: an HTTP port at which a test makes clusters, faults, restarts and time (docs/testing.md); port 0: a free port")
    serve.add_argument("--test-control-anywhere", action="store_true", help="let --test-control listen on addresses that are not loopback, as in a container; set $TENURE_TEST_TOKEN")
    serve.add_argument("--test-control-on-data", action="store_true", help="let --test-control change the data of --data")
    serve.add_argument("--trace-start", action="store_true", help="log how long each step of the start took, and how many modules it imported")


def add_health(commands: Any) -> None:
    health = add_command(
        commands,
        "health",
        run="cli.health",
        for_output=False,
        help="check whether a broker is ready",
        description="Ask a broker whether it serves groups: exit code 0 when it is ready, 1 when it does not answer, 2 when it is not ready yet.",
        examples=("tenure health", "tenure health --wait 30 127.0.0.1:9092", "tenure health --bootstrap kafka1:9092,kafka2:9092 --json"),
        notes="With several addresses each broker is checked; the exit code is the worst of theirs. Without its login a secured broker is only known to answer: exit code 0, with --ready 2.",
    )
    health.add_argument("broker", metavar="HOST:PORT", nargs="?", help=f"default: ${BOOTSTRAP}, else the broker of the configuration (TENURE_..., --config)")
    health.add_argument("--bootstrap", metavar="HOST:PORT[,...]", type=addresses, help="several addresses, as for the other commands")
    health.add_argument("--wait", metavar="SECONDS", type=seconds, default=0.0, help="how long to wait until it is ready")
    health.add_argument("--timeout", metavar="SECONDS", type=seconds, help="time limit of each request; default: 2")
    health.add_argument("--config", metavar="FILE", help="the configuration that the broker was started with")
    add_security_options(health, config=("--command-config",), user=False)
    health.add_argument("--ready", action="store_true", help="exit code 2, not 0, if the broker answers and wants a login that is not given")
    health.add_argument("--json", action="store_true", help="print JSON")


def add_log(commands: Any) -> None:
    actions = add_family(
        commands,
        "log",
        help="show and check the logs on disk",
        description="Read the logs of a data directory, Tenure's or Apache Kafka's. Nothing is changed or locked; a broker may run on it.",
    )
    dump = add_command(
        actions,
        "dump",
        run="cli.logs.run",
        help="print records",
        description="Print the records of segments, of logs or of a whole data directory, in order: groups, offsets and notes decoded, others as text or hex.",
        examples=("tenure log dump data", "tenure log dump --kind offsets --group orders --json data"),
        notes="Times are UTC. Without --json, damage is one line on standard error and the exit code is 65; docs/logs.md explains both.",
    )
    dump.add_argument("paths", metavar="FILE|DIR", nargs="+", help="a segment (NNN.log), the folder of a log, or a data directory")
    dump.add_argument("--json", action="store_true", help="one JSON object per line")
    dump.add_argument("--batches", action="store_true", help="a line for each record batch too")
    dump.add_argument("--group", metavar="G", help="only records about this group")
    dump.add_argument("--topic", metavar="T", help="only records of this topic, offsets committed for it, and its settings")
    dump.add_argument("--kind", choices=("offsets", "groups", "notes", "topics", "records"), help="only records of this kind")
    dump.add_argument("--from-offset", metavar="N", type=whole_number, default=0, help="only records at this offset of their log or later")
    dump.add_argument("--limit", metavar="N", type=whole_number, help="maximum number of records")
    dump.add_argument("--log", metavar="NAME", help="decode a segment that is outside of its folder as one of this log")
    verify = add_command(
        actions,
        "verify",
        run="cli.logs.run",
        for_output=False,
        help="check a data directory",
        description="Check a data directory without changing it: a line for each problem, its meaning and remedy, and a line about the sound logs.",
        examples=("tenure log verify data",),
        notes="While a broker runs on the directory, the ends of its logs are not checked: they are still being written.",
    )
    verify.add_argument("directory", metavar="DIR", help="a data directory, or the folder of one log")
    verify.add_argument("--json", action="store_true", help="one JSON object per line")
