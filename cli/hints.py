"""What is meant by the words and options of other Kafka tools, and by the words that people try first. Only usage errors read it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

# A command or action -> what it is called here; the first name that exists in that place.
WORDS: Final[dict[str, tuple[str, ...]]] = {
    "add": ("create", "set"),
    "alter": ("set",),
    "backup": ("export",),
    "cat": ("consume", "dump"),
    "change": ("alter", "set"),
    "check": ("verify", "health"),
    "del": ("delete",),
    "delete": ("unset",),
    "desc": ("describe", "show"),
    "describe": ("show",),
    "destroy": ("delete",),
    "drop": ("delete",),
    "edit": ("alter", "set"),
    "evict": ("remove-member",),
    "get": ("describe", "show"),
    "info": ("describe", "show"),
    "inspect": ("describe", "show"),
    "kick": ("remove-member",),
    "l": ("list",),
    "lag": ("describe",),
    "leave": ("remove-member",),
    "list": ("show",),
    "log-dirs": ("describe",),
    "ls": ("list", "show"),
    "make": ("create",),
    "modify": ("alter", "set"),
    "new": ("create",),
    "offsets": ("describe",),
    "partitions": ("describe", "alter"),
    "print": ("show", "describe"),
    "purge": ("delete-records",),
    "reassign": ("rebalance",),
    "remove": ("delete", "unset"),
    "reset-offsets": ("reset",),
    "restore": ("import",),
    "rm": ("delete",),
    "seek": ("reset",),
    "show": ("describe", "dump"),
    "size": ("describe",),
    "sizes": ("describe",),
    "tail": ("consume", "dump"),
    "trim": ("delete-records",),
    "trim-prefix": ("delete-records",),
    "truncate": ("delete-records",),
    "update": ("alter", "set"),
    "view": ("describe", "show"),
    "watch": ("list",),
}
# A first word -> the commands that do it; of Kafka's own tools without their ending.
COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "broker": ("serve", "cluster"),
    "brokers": ("cluster",),
    "console-consumer": ("consume",),
    "console-producer": ("produce",),
    "consumer-groups": ("group",),
    "fetch": ("consume",),
    "get-offsets": ("topic describe",),
    "kafka-broker-api-versions": ("cluster --versions",),
    "kafka-cluster": ("cluster",),
    "kafka-configs": ("topic config",),
    "kafka-console-consumer": ("consume",),
    "kafka-console-producer": ("produce",),
    "kafka-consumer-groups": ("group",),
    "kafka-delete-records": ("topic delete-records",),
    "kafka-dump-log": ("log dump",),
    "kafka-get-offsets": ("topic describe",),
    "kafka-log-dirs": ("topic describe",),
    "kafka-metadata-quorum": ("cluster",),
    "kafka-run-class": ("log dump",),
    "kafka-server-start": ("serve",),
    "kafka-topics": ("topic",),
    "lag": ("group describe", "group list --lag-over"),
    "metadata": ("cluster", "topic describe"),
    "ping": ("health",),
    "publish": ("produce",),
    "read": ("consume",),
    "ready": ("health",),
    "run": ("serve",),
    "send": ("produce",),
    "server": ("serve",),
    "start": ("serve",),
    "status": ("health", "cluster"),
    "subscribe": ("consume",),
    "top": ("group list --watch",),
    "up": ("serve",),
    "version": ("--version",),
    "write": ("produce",),
}
# What this command does not administer, by the words of other tools.
NOT_HERE: Final[dict[str, str]] = {
    "acl": "ACLs are administered with Kafka's own tools",
    "acls": "ACLs are administered with Kafka's own tools",
    "connect": "Kafka Connect has its own REST interface",
    "kafka-acls": "ACLs are administered with Kafka's own tools",
    "kafka-reassign-partitions": "replicas are moved with Kafka's own tools",
    "kafka-server-stop": "a broker stops in order with Ctrl-C or SIGTERM",
    "kafka-storage": "a data directory needs no formatting: tenure serve creates it",
    "quota": "quotas are administered with Kafka's own tools",
    "quotas": "quotas are administered with Kafka's own tools",
    "reassign": "replicas are moved with Kafka's own tools",
    "reassign-partitions": "replicas are moved with Kafka's own tools",
    "restart": "a broker stops in order with Ctrl-C or SIGTERM, and tenure serve starts it",
    "stop": "a broker stops in order with Ctrl-C or SIGTERM",
    "transactions": "transactions are administered with Kafka's own tools",
    "txn": "transactions are administered with Kafka's own tools",
    "user": "users are administered with Kafka's own tools",
    "users": "users are administered with Kafka's own tools",
}

# An option of kafka-*.sh, kcat, rpk, kcl or kaf, or a common guess -> what it is called here, if the command has one of these.
OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "--add": ("--add-instances",),
    "--add-config": ("--set",),
    "--address": ("--listen", "--bootstrap"),
    "--advertised-listeners": ("--advertise",),
    "--all-groups": ("--all",),
    "--all-members": ("--all",),
    "--all-topics": ("--all",),
    "--assume-yes": ("--yes",),
    "--bind": ("--listen",),
    "--bootstrap-server": ("--bootstrap",),
    "--bootstrap-servers": ("--bootstrap",),
    "--broker": ("--bootstrap",),
    "--broker-list": ("--bootstrap",),
    "--brokers": ("--bootstrap",),
    "--check": ("--dry-run",),
    "--command-config": ("--config",),
    "--consumer-property": ("--config",),
    "--consumer.config": ("--config",),
    "--count": ("--limit",),
    "--data-dir": ("--data",),
    "--delete-config": ("--unset",),
    "--delimiter": ("--key-separator",),
    "--dry": ("--dry-run",),
    "--end": ("--until",),
    "--exit": ("--no-follow",),
    "--file-name": ("--file",),
    "--force": ("--yes",),
    "--from": ("--from-offset",),
    "--group-id": ("--group",),
    "--group-instance-id": ("--instance",),
    "--group.id": ("--group",),
    "--group.instance.id": ("--instance",),
    "--host": ("--listen", "--bootstrap"),
    "--id": ("--instance", "--node-id"),
    "--idle-timeout": ("--idle",),
    "--input": ("--file",),
    "--instance-id": ("--instance",),
    "--isolation-level": ("--committed",),
    "--key-file": ("--key",),
    "--lag": ("--lag-over",),
    "--last": ("--limit", "--from"),
    "--limit-records": ("--limit",),
    "--log-dir": ("--data",),
    "--log-dirs": ("--data",),
    "--max-messages": ("--limit",),
    "--member-id": ("--member",),
    "--message": ("--value",),
    "--min-lag": ("--lag-over",),
    "--name": ("--cluster",),
    "--newest": ("--limit", "--from"),
    "--num": ("--limit",),
    "--num-partitions": ("--partitions",),
    "--offset": ("--from", "--to-offset", "--before"),
    "--offsets": ("--from",),
    "--order": ("--sort",),
    "--order-by": ("--sort",),
    "--output": ("--json", "--export"),
    "--output-format": ("--json",),
    "--password": ("--password-file", "--config"),
    "--payload": ("--value",),
    "--plan": ("--dry-run",),
    "--port": ("--listen", "--bootstrap"),
    "--print-data-log": ("--kind",),
    "--producer-property": ("--config",),
    "--producer.config": ("--config",),
    "--properties": ("--config",),
    "--property": ("--set", "--format", "--key-separator"),
    "--remove": ("--remove-instances",),
    "--replicas": ("--replication-factor",),
    "--sasl-mechanism": ("--config",),
    "--security-protocol": ("--config",),
    "--seed": ("--bootstrap",),
    "--server": ("--bootstrap",),
    "--servers": ("--bootstrap",),
    "--since": ("--from", "--to-datetime"),
    "--skip-message-on-error": ("--verbose",),
    "--sort-by": ("--sort",),
    "--start": ("--from",),
    "--stop": ("--until",),
    "--tail": ("--from", "--follow"),
    "--template": ("--format",),
    "--timeout-ms": ("--idle", "--timeout"),
    "--tls": ("--config",),
    "--to": ("--until", "--to-offset"),
    "--to-beginning": ("--to-earliest",),
    "--to-end": ("--to-latest",),
    "--to-offset": ("--before", "--until"),
    "--to-start": ("--to-earliest",),
    "--to-time": ("--to-datetime",),
    "--to-timestamp": ("--to-datetime",),
    "--topic-config": ("--set",),
    "--topics": ("--topic",),
    "--type": ("--kind",),
    "--user": ("--config",),
    "--username": ("--config",),
    "--validate-only": ("--dry-run",),
    "-a": ("--all", "--acks"),
    "-b": ("--bootstrap",),
    "-c": ("--limit", "--config", "--partitions"),
    "-D": ("--data",),
    "-d": ("--data",),
    "-e": ("--no-follow",),
    "-F": ("--config", "--file"),
    "-f": ("--format", "--follow", "--from-file", "--file"),
    "-G": ("--group",),
    "-g": ("--group",),
    "-H": ("--header",),
    "-i": ("--instance", "--internal"),
    "-J": ("--json",),
    "-K": ("--key-separator",),
    "-k": ("--key",),
    "-l": ("--long", "--file"),
    "-n": ("--limit", "--dry-run"),
    "-o": ("--from", "--json"),
    "-p": ("--partition", "--partitions"),
    "-q": ("--quiet",),
    "-r": ("--replication-factor",),
    "-s": ("--set", "--session-timeout"),
    "-t": ("--topic",),
    "-v": ("--version", "--verbose", "--long"),
    "-V": ("--version",),
    "-w": ("--watch",),
    "-X": ("--config",),
    "-y": ("--yes",),
    "-Z": ("--null-value",),
    "-z": ("--compression",),
}
# Answers to options that have no counterpart, if the command has the option in the second place ("": always).
REMARKS: Final[dict[str, tuple[str, str]]] = {
    "--execute": ("--dry-run", "the change is made without it; --dry-run only shows it"),
    "--unavailable-partitions": ("--state", "topics with such partitions are listed with --state without-leader"),
    "--under-replicated-partitions": ("--state", "topics with such partitions are listed with --state under-replicated"),
    "--zookeeper": ("--bootstrap", "name a broker with --bootstrap"),
}
# Answers for one command, by its words and the option.
OF_COMMANDS: Final[dict[tuple[str, str], str]] = {
    ("consume", "-C"): "tenure consume needs no such option",
    ("group describe", "--members"): "tenure group members shows them",
    ("group describe", "--offsets"): "they are shown without it, and by tenure group offsets show",
    ("group describe", "--verbose"): "tenure group members shows the assignment of each member",
    ("group list", "--all"): "all groups are listed without it",
    ("group list", "--all-groups"): "all groups are listed without it",
    ("group list", "--verbose"): "--members counts the members of many groups, --sort lag shows the lag",
    ("group offsets delete", "--partition"): "partitions are named with their topic: --topic orders:0,2",
    ("group offsets reset", "--partition"): "partitions are named with their topic: --topic orders:0,2",
    ("group offsets show", "--partition"): "partitions are named with their topic: --topic orders:0,2",
    ("produce", "--plain-lines"): "lines are plain text, unless --json-lines is given",
    ("produce", "-P"): "tenure produce needs no such option",
    ("serve", "--bootstrap"): "the address to listen on is --listen HOST:PORT",
    ("serve", "--daemon"): "a service manager runs it in the background: docs/operating.md has a unit for systemd",
    ("topic alter", "--set"): "settings are changed with tenure topic config set",
    ("topic alter", "--unset"): "settings are reset with tenure topic config unset",
    ("topic create", "-c"): "a setting is --set NAME=VALUE, the number of partitions --partitions N",
    ("topic describe", "--all-settings"): "tenure topic config show lists all settings",
    ("topic list", "--all"): "all topics are listed without it, with --internal also internal ones",
}
# Answers to an action that a command does not have.
OF_ACTIONS: Final[dict[tuple[str, str], str]] = {
    ("group", "create"): "a group exists from its first member or committed offset on (tenure consume --group, tenure group offsets reset)",
    ("node", "list"): "tenure cluster lists the nodes",
    ("node", "ls"): "tenure cluster lists the nodes",
    ("node", "status"): "tenure cluster shows the nodes",
}
# Answers to a word too many.
TOO_MANY: Final[dict[str, str]] = {
    "cluster": "tenure cluster has no actions",
    "group policy list": "tenure group policy show shows the policies of one group",
    "health": "several brokers are named with --bootstrap HOST:PORT,...",
    "produce": "a record is --value TEXT, or a line of standard input",
    "serve": "the data directory is --data DIR",
}
# Values of options as others write them.
VALUES: Final[dict[tuple[str, str], str]] = {
    ("--acks", "-1"): "all",
    ("--compression", "gz"): "gzip",
    ("--compression", "uncompressed"): "none",
}
PATTERN_OPTIONS: Final = ("--filter", "--include", "--match", "--pattern", "--regex", "--whitelist", "--groups", "--prefix", "--exclude")


def plain_name(word: str) -> str:
    """The name of a tool without its folder and its ending."""
    return re.sub(r"\.(sh|bat|py)$", "", word.rpartition("/")[2].lower())


def not_here(command: str, word: str) -> str:
    """An answer to a word for what this command does not do, or what another one does; "" if there is none. `command`: the words before it."""
    remark = OF_ACTIONS.get((command, word.lower())) or NOT_HERE.get(plain_name(word))
    return f": {remark}" if remark else ""


def commands_for(word: str) -> tuple[str, ...]:
    """The commands that a first word of another tool means."""
    return COMMANDS.get(plain_name(word), ())


def action_for(word: str, names: Iterable[str]) -> str | None:
    """The action of these names that a word means."""
    names = list(names)
    meant = (word.lower(), *WORDS.get(word.lower(), ()), word.lower().removesuffix("s"))
    return next((name for name in meant if name in names), None)


def too_many(command: str, word: str) -> str:
    """An answer to a word too many; "" if there is none."""
    if re.fullmatch(r"\d{1,2}:\d{2}.*", word, re.ASCII):
        return ": a time is one word, as 2026-11-21T08:30:00Z"
    return f": {TOO_MANY[command]}" if command in TOO_MANY else ""


def option_for(command: str, name: str, options: Sequence[str]) -> str:
    """A suggestion for an option of another tool; "" if there is none. `command`: its words, such as `topic list`."""
    if (command, name) in OF_COMMANDS:
        return f": {OF_COMMANDS[command, name]}"
    for ours in OPTIONS.get(name, ()):
        if ours in options:
            return f"; did you mean {ours}?"
    needed, remark = REMARKS.get(name, (None, ""))
    if needed is not None and (not needed or needed in options):
        return f": {remark}"
    return ""
