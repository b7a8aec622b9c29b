"""What is meant by the words and options of other Kafka tools, and by the words that people try first. Only usage errors read it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

# A command or action -> what it is called here; the first name that exists in that place.
WORDS: Final[dict[str, tuple[str, ...]]] = {
    "add": ("create", "set"),
    "cat": ("consume", "dump"),
    "change": ("alter", "set"),
    "check": ("verify", "health"),
    "desc": ("describe", "show"),
    "del": ("delete",),
    "destroy": ("delete",),
    "drop": ("delete",),
    "edit": ("alter", "set"),
    "get": ("show", "describe"),
    "info": ("describe", "show"),
    "inspect": ("describe", "show"),
    "kick": ("remove-member",),
    "l": ("list",),
    "log-dirs": ("describe",),
    "ls": ("list",),
    "make": ("create",),
    "modify": ("alter", "set"),
    "new": ("create",),
    "print": ("show", "describe"),
    "purge": ("delete-records",),
    "reassign": ("rebalance",),
    "remove": ("delete", "unset"),
    "reset-offsets": ("reset",),
    "rm": ("delete",),
    "seek": ("reset",),
    "show": ("describe",),
    "tail": ("consume",),
    "truncate": ("delete-records",),
    "trim-prefix": ("delete-records",),
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
    "restart": "a broker stops in order with Ctrl-C or SIGTERM, and tenure serve starts it",
    "stop": "a broker stops in order with Ctrl-C or SIGTERM",
    "txn": "transactions are administered with Kafka's own tools",
    "transactions": "transactions are administered with Kafka's own tools",
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
    "--filter": ("--topic", "--state"),
    "--force": ("--yes",),
    "--group-id": ("--group",),
    "--group-instance-id": ("--instance",),
    "--group.id": ("--group",),
    "--group.instance.id": ("--instance",),
    "--host": ("--listen", "--bootstrap"),
    "--id": ("--instance", "--node-id"),
    "--idle-timeout": ("--idle",),
    "--instance-id": ("--instance",),
    "--key-file": ("--key",),
    "--lag": ("--lag-over",),
    "--limit-records": ("--limit",),
    "--log-dir": ("--data",),
    "--log-dirs": ("--data",),
    "--max-messages": ("--limit",),
    "--member-id": ("--member",),
    "--message": ("--value",),
    "--min-lag": ("--lag-over",),
    "--name": ("--cluster",),
    "--num": ("--limit",),
    "--num-partitions": ("--partitions",),
    "--offset": ("--from", "--to-offset", "--before"),
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
    "--tail": ("--from",),
    "--template": ("--format",),
    "--timeout-ms": ("--timeout",),
    "--tls": ("--config",),
    "--to": ("--until", "--to-offset"),
    "--to-beginning": ("--to-earliest",),
    "--to-end": ("--to-latest",),
    "--to-start": ("--to-earliest",),
    "--to-time": ("--to-datetime",),
    "--to-timestamp": ("--to-datetime",),
    "--topics": ("--topic",),
    "--under-replicated-partitions": ("--state",),
    "--unavailable-partitions": ("--state",),
    "--user": ("--config",),
    "--username": ("--config",),
    "--validate-only": ("--dry-run",),
    "-D": ("--data",),
    "-F": ("--config", "--file"),
    "-G": ("--group",),
    "-H": ("--header",),
    "-J": ("--json",),
    "-K": ("--key-separator",),
    "-X": ("--config",),
    "-Z": ("--null-value",),
    "-a": ("--all", "--acks"),
    "-b": ("--bootstrap",),
    "-c": ("--limit", "--config", "--partitions"),
    "-d": ("--data",),
    "-e": ("--no-follow",),
    "-f": ("--format", "--follow", "--from-file", "--file"),
    "-g": ("--group",),
    "-i": ("--instance", "--internal"),
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
    "-y": ("--yes",),
    "-z": ("--compression",),
}
# Answers to options that have no counterpart, if the command has the option in the second place ("": always).
REMARKS: Final[dict[str, tuple[str, str]]] = {
    "--execute": ("--dry-run", "the change is made without it; --dry-run only shows it"),
    "--timeout-ms": ("--idle", "stop after a time without records with --idle SECONDS"),
    "--verbose": ("--members", "members are counted with --members"),
    "--zookeeper": ("--bootstrap", "name a broker with --bootstrap"),
}
# Answers for one command, by its words and the option.
OF_COMMANDS: Final[dict[tuple[str, str], str]] = {
    ("group list", "--all"): "all groups are listed without it",
    ("produce", "--plain-lines"): "lines are plain text, unless --json-lines is given",
    ("topic alter", "--set"): "settings are changed with tenure topic config set",
    ("topic alter", "--unset"): "settings are reset with tenure topic config unset",
    ("topic describe", "--all-settings"): "tenure topic config show lists all settings",
    ("topic list", "--all"): "all topics are listed without it, with --internal also internal ones",
}
PATTERN_OPTIONS: Final = ("--filter", "--include", "--match", "--pattern", "--regex", "--whitelist", "--groups", "--prefix", "--exclude")


def plain_name(word: str) -> str:
    """The name of a tool without its folder and its ending."""
    return re.sub(r"\.(sh|bat|py)$", "", word.rpartition("/")[2].lower())


def not_here(word: str) -> str:
    """An answer to a first word for what this command does not do; "" if there is none."""
    remark = NOT_HERE.get(plain_name(word))
    return f": {remark}" if remark else ""


def commands_for(word: str) -> tuple[str, ...]:
    """The commands that a first word of another tool means."""
    return COMMANDS.get(plain_name(word), ())


def action_for(word: str, names: Iterable[str]) -> str | None:
    """The action of these names that a word means."""
    names = list(names)
    meant = (word.lower(), *WORDS.get(word.lower(), ()), word.lower().removesuffix("s"))
    return next((name for name in meant if name in names), None)


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
