"""What is meant by the words and options of other Kafka tools, and by the words that people try first. Only usage errors read it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

LIKENESS: Final = 0.7  # of a mistyped word and what is suggested; less likeness misleads
LIKENESS_OF_OTHERS: Final = 0.85  # of a mistyped option of another tool
PREFIX_MIN: Final = 3
ABBREVIATION_MAX: Final = 4
# A command or action -> what it is called here; the first name that exists in that place.
WORDS: Final[dict[str, tuple[str, ...]]] = {
    "add": ("create", "set"),
    "alter": ("set",),
    "backup": ("export",),
    "cat": ("consume", "dump"),
    "change": ("alter", "set"),
    "check": ("verify", "health"),
    "clear": ("delete-records",),
    "clients": ("members",),
    "commit": ("reset",),
    "configs": ("config",),
    "configure": ("config",),
    "consumers": ("members",),
    "create": ("set",),
    "del": ("delete",),
    "delete": ("unset",),
    "desc": ("describe", "show"),
    "describe": ("show",),
    "destroy": ("delete",),
    "drop": ("delete",),
    "edit": ("alter", "set"),
    "empty": ("delete-records",),
    "erase": ("delete",),
    "events": ("history",),
    "evict": ("remove-member",),
    "expire": ("delete-records",),
    "export": ("show",),
    "find": ("list",),
    "get": ("describe", "show"),
    "import": ("reset",),
    "increase": ("alter",),
    "info": ("describe", "show"),
    "inspect": ("describe", "show"),
    "kick": ("remove-member",),
    "kill": ("delete", "remove-member"),
    "l": ("list",),
    "lag": ("describe",),
    "leave": ("remove-member",),
    "list": ("show",),
    "log": ("history",),
    "log-dirs": ("describe",),
    "lookup": ("describe",),
    "ls": ("list", "show"),
    "make": ("create",),
    "modify": ("alter", "set"),
    "new": ("create",),
    "offsets": ("describe",),
    "partitions": ("describe", "alter"),
    "peek": ("consume", "describe"),
    "print": ("show", "describe"),
    "purge": ("delete-records",),
    "reassign": ("rebalance",),
    "rebalances": ("history",),
    "register": ("create",),
    "remove": ("delete", "unset"),
    "remove-instance": ("remove-member",),
    "reset": ("unset",),
    "reset-offsets": ("reset",),
    "restore": ("import",),
    "rm": ("delete",),
    "scale": ("alter",),
    "search": ("list",),
    "seek": ("reset",),
    "settings": ("config",),
    "show": ("describe", "dump"),
    "size": ("describe",),
    "sizes": ("describe",),
    "stat": ("describe",),
    "state": ("describe",),
    "stats": ("describe",),
    "status": ("describe", "show"),
    "tail": ("consume", "dump"),
    "trim": ("delete-records",),
    "trim-prefix": ("delete-records",),
    "truncate": ("delete-records",),
    "update": ("alter", "set"),
    "view": ("describe", "show"),
    "watch": ("list",),
    "wipe": ("delete-records",),
}
# A first word -> the commands that do it; of Kafka's own tools without their ending.
COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "broker": ("serve", "cluster"),
    "brokers": ("cluster",),
    "console-consumer": ("consume",),
    "console-producer": ("produce",),
    "consumer": ("consume", "group"),
    "consumer-groups": ("group",),
    "consumers": ("group list", "group members"),
    "dump": ("log dump",),
    "fetch": ("consume",),
    "get-offsets": ("topic describe",),
    "info": ("cluster",),
    "kaf": ("topic", "group", "cluster"),
    "kafka-broker-api-versions": ("cluster --versions",),
    "kafka-cluster": ("cluster",),
    "kafka-configs": ("topic config",),
    "kafka-console-consumer": ("consume",),
    "kafka-console-producer": ("produce",),
    "kafka-console-share-consumer": ("consume",),
    "kafka-consumer-groups": ("group",),
    "kafka-delete-records": ("topic delete-records",),
    "kafka-dump-log": ("log dump",),
    "kafka-get-offsets": ("topic describe",),
    "kafka-log-dirs": ("topic describe",),
    "kafka-metadata-quorum": ("cluster",),
    "kafka-replica-verification": ("topic list --state under-replicated",),
    "kafka-run-class": ("log dump",),
    "kafka-server-start": ("serve",),
    "kafka-topics": ("topic",),
    "kafkacat": ("consume", "produce"),
    "kcat": ("consume", "produce"),
    "kcl": ("topic", "group", "cluster"),
    "lag": ("group describe", "group list --lag-over"),
    "messages": ("consume",),
    "metadata": ("cluster", "topic describe"),
    "offset": ("group offsets",),
    "partition": ("topic describe",),
    "partitions": ("topic describe",),
    "ping": ("health",),
    "producer": ("produce",),
    "publish": ("produce",),
    "read": ("consume",),
    "ready": ("health",),
    "records": ("consume",),
    "report": ("analyze report",),
    "rpk": ("topic", "group", "cluster"),
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
    "--add": ("--add-instances", "--partitions"),
    "--add-config": ("--set",),
    "--address": ("--listen", "--bootstrap"),
    "--advertised": ("--advertise",),
    "--advertised-listener": ("--advertise",),
    "--advertised-listeners": ("--advertise",),
    "--all-groups": ("--all",),
    "--all-members": ("--all",),
    "--all-topics": ("--all",),
    "--assume-yes": ("--yes",),
    "--auto-offset-reset": ("--from",),
    "--because": ("--reason",),
    "--begin": ("--from",),
    "--beginning": ("--from-beginning",),
    "--bind": ("--listen",),
    "--bootstrap-server": ("--bootstrap",),
    "--bootstrap-servers": ("--bootstrap",),
    "--broker": ("--bootstrap",),
    "--broker-list": ("--bootstrap",),
    "--brokers": ("--bootstrap",),
    "--check": ("--dry-run",),
    "--client-config": ("--config",),
    "--codec": ("--compression",),
    "--command-config": ("--config",),
    "--consumer-property": ("--config",),
    "--consumer.config": ("--config",),
    "--count": ("--limit",),
    "--data": ("--value",),
    "--data-dir": ("--data",),
    "--delete-config": ("--unset",),
    "--delimiter": ("--key-separator",),
    "--detailed": ("--long",),
    "--dir": ("--data", "--out"),
    "--directory": ("--data", "--out"),
    "--dry": ("--dry-run",),
    "--end": ("--until",),
    "--end-offset": ("--until",),
    "--env": ("--config",),
    "--everything": ("--all",),
    "--exit": ("--no-follow",),
    "--exit-eof": ("--no-follow",),
    "--exit-on-end": ("--no-follow",),
    "--file": ("--from-file",),
    "--file-name": ("--file",),
    "--follow": ("--watch",),
    "--force": ("--yes",),
    "--format": ("--json",),
    "--from": ("--from-offset", "--since"),
    "--from-earliest": ("--from-beginning",),
    "--from-end": ("--from",),
    "--from-file": ("--file",),
    "--from-start": ("--from-beginning",),
    "--group-id": ("--group",),
    "--group-instance-id": ("--instance",),
    "--group-protocol": ("--assignor",),
    "--group.id": ("--group",),
    "--group.instance.id": ("--instance",),
    "--host": ("--listen", "--bootstrap"),
    "--id": ("--instance", "--node-id"),
    "--idle-timeout": ("--idle",),
    "--input": ("--file",),
    "--instance-id": ("--instance",),
    "--interval": ("--every",),
    "--isolation-level": ("--committed",),
    "--json-output": ("--json",),
    "--key-file": ("--key",),
    "--key-only": ("--format",),
    "--lag": ("--lag-over",),
    "--last": ("--limit", "--from"),
    "--limit-records": ("--limit",),
    "--listener": ("--listen",),
    "--listeners": ("--listen",),
    "--log-dir": ("--data",),
    "--log-dirs": ("--data",),
    "--max": ("--limit",),
    "--max-messages": ("--limit",),
    "--max-records": ("--limit",),
    "--member-id": ("--member",),
    "--message": ("--value", "--reason"),
    "--min-lag": ("--lag-over",),
    "--msg": ("--value",),
    "--name": ("--cluster",),
    "--newest": ("--limit", "--from"),
    "--no-wait": ("--no-follow",),
    "--num": ("--limit",),
    "--num-partitions": ("--partitions",),
    "--number": ("--limit", "--partitions"),
    "--offset": ("--from", "--to-offset", "--before"),
    "--offset-reset": ("--from",),
    "--offsets": ("--from",),
    "--older-than": ("--before",),
    "--order": ("--sort",),
    "--order-by": ("--sort",),
    "--output": ("--json", "--export"),
    "--output-format": ("--json",),
    "--password": ("--password-file", "--config"),
    "--payload": ("--value",),
    "--plan": ("--dry-run",),
    "--port": ("--listen", "--bootstrap"),
    "--print-data-log": ("--kind",),
    "--print-headers": ("--long", "--format"),
    "--print-key": ("--long", "--format"),
    "--print-timestamp": ("--long", "--format"),
    "--producer-property": ("--config",),
    "--producer.config": ("--config",),
    "--profile": ("--config",),
    "--properties": ("--config",),
    "--property": ("--set", "--format", "--key-separator"),
    "--raw-bytes": ("--raw",),
    "--record": ("--value",),
    "--refresh": ("--watch",),
    "--remove": ("--remove-instances",),
    "--replicas": ("--replication-factor",),
    "--sasl-mechanism": ("--config",),
    "--seconds": ("--every", "--timeout"),
    "--security-protocol": ("--config",),
    "--seed": ("--bootstrap",),
    "--sep": ("--key-separator",),
    "--separator": ("--key-separator",),
    "--server": ("--bootstrap",),
    "--servers": ("--bootstrap",),
    "--setting": ("--set",),
    "--settings": ("--set",),
    "--show-sizes": ("--long",),
    "--since": ("--from", "--to-datetime"),
    "--size": ("--sort",),
    "--sizes": ("--long",),
    "--skip-message-on-error": ("--verbose",),
    "--sort-by": ("--sort",),
    "--start": ("--from",),
    "--start-offset": ("--from",),
    "--static": ("--instance",),
    "--static-id": ("--instance",),
    "--static-member": ("--instance",),
    "--stop": ("--until",),
    "--stop-at-end": ("--no-follow",),
    "--string": ("--value",),
    "--tail": ("--from", "--follow"),
    "--template": ("--format",),
    "--text": ("--value",),
    "--timeout-ms": ("--idle", "--timeout"),
    "--tls": ("--config",),
    "--to": ("--until", "--to-offset", "--partitions"),
    "--to-beginning": ("--to-earliest",),
    "--to-end": ("--to-latest",),
    "--to-offset": ("--before", "--until"),
    "--to-start": ("--to-earliest",),
    "--to-time": ("--to-datetime",),
    "--to-timestamp": ("--to-datetime",),
    "--topic-config": ("--set",),
    "--topic-regex": ("--topic",),
    "--topics": ("--topic",),
    "--type": ("--kind",),
    "--until": ("--before",),
    "--user": ("--config",),
    "--username": ("--config",),
    "--validate-only": ("--dry-run",),
    "--why": ("--reason",),
    "--wide": ("--long",),
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
    "--cleanup-policy": ("--set", "a setting is --set NAME=VALUE, such as --set cleanup.policy=compact"),
    "--compact": ("--set", "a setting is --set NAME=VALUE, such as --set cleanup.policy=compact"),
    "--execute": ("--dry-run", "the change is made without it; --dry-run only shows it"),
    "--retention": ("--set", "a setting is --set NAME=VALUE, such as --set retention.ms=86400000"),
    "--retention-ms": ("--set", "a setting is --set NAME=VALUE, such as --set retention.ms=86400000"),
    "--stdin": ("--value", "standard input is read without it"),
    "--unavailable-partitions": ("--state", "topics with such partitions are listed with --state without-leader"),
    "--under-replicated-partitions": ("--state", "topics with such partitions are listed with --state under-replicated"),
    "--zookeeper": ("--bootstrap", "name a broker with --bootstrap"),
}
# Answers for one command, by its words and the option.
OF_COMMANDS: Final[dict[tuple[str, str], str]] = {
    ("consume", "--commit"): "a member of a group commits without it",
    ("consume", "-C"): "tenure consume needs no such option",
    ("group describe", "--members"): "tenure group members shows them",
    ("group describe", "--offsets"): "they are shown without it, and by tenure group offsets show",
    ("group describe", "--topic"): "tenure group offsets show takes --topic",
    ("group describe", "--verbose"): "tenure group members shows the assignment of each member",
    ("group list", "--all"): "all groups are listed without it",
    ("group list", "--all-groups"): "all groups are listed without it",
    ("group list", "--verbose"): "--members counts the members of many groups, --sort lag shows the lag",
    ("group list", "-l"): "--sort lag shows the lag, --members counts the members",
    ("group offsets delete", "--partition"): "partitions are named with their topic: --topic orders:0,2",
    ("group offsets reset", "--partition"): "partitions are named with their topic: --topic orders:0,2",
    ("group offsets show", "--partition"): "partitions are named with their topic: --topic orders:0,2",
    ("group policy set", "--set"): "policies are written without it: registration.timeout.ms=900000",
    ("health", "--nowait"): "it does not wait without --wait",
    ("produce", "--plain-lines"): "lines are plain text, unless --json-lines is given",
    ("produce", "--timestamp"): "a line of --json-lines may have a timestamp",
    ("produce", "-P"): "tenure produce needs no such option",
    ("serve", "--bootstrap"): "the address to listen on is --listen HOST:PORT",
    ("serve", "--daemon"): "a service manager runs it in the background: docs/operating.md has a unit for systemd",
    ("topic alter", "--config"): "settings are changed with tenure topic config set",
    ("topic alter", "--set"): "settings are changed with tenure topic config set",
    ("topic alter", "--unset"): "settings are reset with tenure topic config unset",
    ("topic config set", "--set"): "settings are written without it: retention.ms=86400000",
    ("topic config show", "--all"): "all settings are shown without it",
    ("topic config unset", "--all"): "name the settings; tenure topic config show lists them",
    ("topic create", "-c"): "a setting is --set NAME=VALUE, the number of partitions --partitions N",
    ("topic delete-records", "--all"): "all partitions are meant without it",
    ("topic describe", "--all-settings"): "tenure topic config show lists all settings",
    ("topic describe", "--partitions"): "they are shown without it",
    ("topic describe", "--settings"): "tenure topic config show lists all settings",
    ("topic list", "--all"): "all topics are listed without it, with --internal also internal ones",
}
# Answers to an action that a command does not have.
OF_ACTIONS: Final[dict[tuple[str, str], str]] = {
    ("group offsets", "export"): "tenure group offsets show GROUP --json > FILE saves them",
    ("group offsets", "import"): "tenure group offsets reset GROUP --from-file FILE sets them",
    ("group", "create"): "a group exists from its first member or committed offset on (tenure consume --group, tenure group offsets reset)",
    ("group", "delete-offsets"): "tenure group offsets delete deletes them",
    ("group", "reset-offset"): "tenure group offsets reset sets them",
    ("group", "reset-offsets"): "tenure group offsets reset sets them",
    ("log", "repair"): "tenure serve repairs a log when it opens it; tenure log verify says what is damaged",
    ("node", "list"): "tenure cluster lists the nodes",
    ("node", "ls"): "tenure cluster lists the nodes",
    ("node", "remove"): "tenure node drain hands its partitions to the others",
    ("node", "status"): "tenure cluster shows the nodes",
    ("topic", "copy"): "tenure consume --json ... | tenure produce --json-lines copies records",
    ("topic", "count"): "tenure topic list --long counts records",
    ("topic", "exists"): "tenure topic describe NAME has exit code 66 if it does not exist",
    ("topic", "rename"): "Kafka renames no topic",
}
# Answers to a word too many.
TOO_MANY: Final[dict[str, str]] = {
    "cluster": "tenure cluster has no actions",
    "group members": "one group at a time; tenure group describe takes several",
    "group policy list": "tenure group policy show shows the policies of one group",
    "group remove-member": "a static member is --instance ID, another one --member ID",
    "health": "several brokers are named with --bootstrap HOST:PORT,...",
    "node drain": "one node at a time",
    "produce": "a record is --value TEXT, or a line of standard input",
    "serve": "settings are --set NAME=VALUE, the data directory is --data DIR",
    "topic config show": "one topic at a time",
}
# Values of options as others write them.
VALUES: Final[dict[tuple[str, str], str]] = {
    ("--acks", "-1"): "all",
    ("--compression", "gz"): "gzip",
    ("--compression", "uncompressed"): "none",
}
PATTERN_OPTIONS: Final = ("--filter", "--include", "--match", "--pattern", "--regex", "--whitelist", "--groups", "--prefix", "--exclude")


def nearest(word: str, among: Iterable[str], likeness: float = LIKENESS, *, cut_off: bool = True) -> str | None:
    """The word of these that is meant by a mistyped one: in other case, with letters exchanged, cut off, or else as difflib finds it."""
    from difflib import get_close_matches

    words = {known.lower(): known for known in among}
    written = word.lower()
    if written in words:
        return words[written]
    exchanged = [known for known in words if sorted(known) == sorted(written)]
    longer = [known for known in words if cut_off and len(written) >= PREFIX_MIN and known.startswith(written)]
    matches = exchanged or (longer if len(longer) == 1 else get_close_matches(written, list(words), 1, likeness))
    return words[matches[0]] if matches else None


def abbreviated(word: str, among: Iterable[str]) -> str | None:
    """The only one of these that has the consonants of a short word in their order, from its first one on: --rf is --replication-factor."""
    pattern = re.compile(".*".join(map(re.escape, word)))
    is_short = 2 <= len(word) <= ABBREVIATION_MAX and set(word).isdisjoint("aeiou")
    matches = [known for known in among if is_short and pattern.match(known)]
    return matches[0] if len(matches) == 1 else None


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
    if word == "ago":
        return ": an age is one word, as 10m or 2h"
    if re.fullmatch(r"[a-z.]+\.[a-z]+=.*", word):
        return f": repeat --set for each: --set {word}"
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
