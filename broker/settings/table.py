"""Tables of the supported settings, the refused settings, and the profiles; config.py reads them.

A Kafka name has Kafka's meaning and unit. Names of kafka_names.py that are in neither table are accepted without effect.
`python -m docs.configuration` writes docs/configuration.md from this file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

Value = bool | int | float | str | tuple[str, ...]


class Setting(NamedTuple):
    """One setting. `kind` is boolean, int, long, double, string or list; `low` and `high` are inclusive.

    With `choices`, the value (or each entry of a list) must be one of them.
    """

    name: str
    kind: str
    default: Value
    doc: str
    low: int = 0
    high: int = INT_MAX
    choices: tuple[str, ...] = ()
    unit: str = ""

    @property
    def field(self) -> str:
        return self.name.replace(".", "_")


SETTINGS: tuple[Setting, ...] = (
    # --- identity and addresses ---
    Setting(
        "listeners", "list", ("PLAINTEXT://127.0.0.1:9092",),
        "Where to listen: NAME://HOST:PORT, several separated by commas, each with its own name and port. An empty host listens on every "
        "address, port 0 on a free port. Kafka's default listens on every address; ours only on this machine, because every client that reaches "
        "the port may do everything.",
    ),
    Setting(
        "advertised.listeners", "list", (),
        "The addresses to which clients connect, by listener name. A listener that is missing here advertises the address it listens on, "
        "which cannot be a wildcard. Host names are not resolved; port 0 means the port listened on.",
    ),
    Setting(
        "listener.security.protocol.map", "list", (),
        "NAME:PROTOCOL for every listener. Only PLAINTEXT is supported. Without a map every listener is PLAINTEXT, unless its name is that of "
        "another protocol.",
    ),
    Setting(
        "controller.listener.names", "list", (),
        "Listeners that Kafka reserves for its controllers. They are not opened here, so that a file written for Kafka in combined mode can be "
        "used.",
    ),
    Setting("node.id", "int", 1, "The id by which clients know this broker; `broker.id` is another name for it."),
    Setting(
        "cluster.id", "string", "",
        "The id of the cluster when a data directory is used for the first time; empty: a random id. Afterwards it must equal the id in the "
        "directory.",
    ),
    Setting(
        "cluster.nodes", "int", 1,
        "How many nodes share the data directory. With more than 1 each node is a process with its own node.id and listeners, and owns a "
        "part of the logs; this is experimental. The flag is --nodes.", low=1, high=64, unit="nodes",
    ),
    Setting(
        "cluster.node.timeout.ms", "int", 30_000,
        "`tenure serve --nodes N` kills and restarts a node that has not answered for so long, so that the other nodes acquire its logs; 0: never.",
        high=INT_MAX, unit="ms",
    ),
    Setting(
        "store", "string", "",
        "Keeps the logs in NATS JetStream instead of a data directory: nats://HOST:PORT,HOST:PORT or tls://..., the servers of its cluster. A "
        "user and password, or a token, are written before the first host; better in a file (`store.credentials.location`) or in TENURE_STORE, since "
        "`ps` shows the command line. Experimental; docs/cluster.md. The flag is --store.",
    ),
    Setting(
        "store.credentials.location", "string", "",
        "With `store`: a file with the login of its servers, `user:password` or a token, in one line. Other users should not be able to read it.",
    ),
    Setting(
        "cluster.name", "string", "tenure",
        "With `store`: nodes with the same cluster name are one cluster, and the names of its streams begin with it. Up to 64 letters, digits, "
        "- and _. The flag is --cluster.",
    ),
    Setting(
        "store.replicas", "int", 3, "With `store`: how many JetStream servers store each log. 1 is for a trial with one server.", low=1, high=5,
        unit="replicas",
    ),
    Setting(
        "store.lease.ms", "int", 10_000,
        "With `store`: a node that has not renewed its lease for so long counts as dead, and the other nodes take over its logs. It stops "
        "serving by itself after 0.9 of that time. Below 10 seconds a leader election inside JetStream can end leases.", low=300, high=600_000, unit="ms",
    ),
    Setting("store.tls.ca.location", "string", "", "With tls:// in `store`: a file of certificate authorities; empty: the system's."),
    Setting("log.dirs", "list", ("./data",), "The data directory, exactly one; `log.dir` is another name for it. The flag is --data."),
    # --- connections ---
    Setting(
        "max.connections", "int", INT_MAX,
        "Connections at one time, within the open-file limit; by default as many as that limit and the memory allow. At the maximum, idle "
        "connections are closed for new ones; while none is idle, new connections wait in the backlog until one closes.", unit="connections",
    ),
    Setting(
        "max.connections.per.ip", "int", INT_MAX,
        "Connections at one time from one address. 0 is allowed together with max.connections.per.ip.overrides.", unit="connections",
    ),
    Setting(
        "max.connections.per.ip.overrides", "list", (),
        "ADDRESS:COUNT, a different maximum for single IP addresses (not host names).",
    ),
    Setting(
        "connections.max.idle.ms", "long", 600_000,
        "A connection that sends nothing for this long is closed; waiting for a parked reply is not idleness. Below 0: never.",
        low=-(2**63), high=LONG_MAX, unit="ms",
    ),
    Setting(
        "socket.request.max.bytes", "int", 104_857_600, "The largest request. A larger one closes its connection.", low=1, unit="bytes",
    ),
    Setting(
        "socket.response.max.bytes", "int", 100_000_000,
        "The largest reply, without the records of a fetch (fetch.max.bytes). A request for more is answered with POLICY_VIOLATION. Clients with "
        "librdkafka read no larger reply (receive.message.max.bytes).", low=65_536, unit="bytes",
    ),
    Setting(
        "request.elements.max", "int", 100_000,
        "The most elements of one request: topics, partitions and others in lists, the lists themselves, tagged fields, and one for each 128 bytes "
        "of a long string. A request with more closes its connection, since many small elements need too much memory and time.", low=1, unit="elements",
    ),
    Setting(
        "socket.listen.backlog.size", "int", 4096,
        "Connections that may wait to be accepted, within the system's own limit. Kafka's default, 50, is too small for many clients that "
        "reconnect at once.", low=1, unit="connections",
    ),
    Setting(
        "connection.unread.replies.max.bytes", "int", 1_048_576,
        "Bytes of replies that a client may leave unread; above this, the broker reads no more of its requests until the client reads replies.", low=1, unit="bytes",
    ),
    Setting(
        "connections.unread.replies.max.bytes", "long", 268_435_456,
        "Bytes of large replies that are being built or not read yet, of all connections together; at least socket.response.max.bytes. Above it, "
        "connections with at least the average of them are closed, the longest inactive first.", low=1, high=LONG_MAX, unit="bytes",
    ),
    Setting(
        "connection.waiting.requests.max.bytes", "int", 1_048_576,
        "Requests of one connection that may wait while an earlier reply is parked; above it the broker reads no more from the connection. A single "
        "larger request may wait alone.", low=1, unit="bytes",
    ),
    Setting(
        "connections.partial.requests.max.bytes", "long", 536_870_912,
        "The received bytes of incomplete requests, of all connections together; at least socket.request.max.bytes. Above it, connections with "
        "at least the average of them are closed, the longest inactive first.", low=1, high=LONG_MAX, unit="bytes",
    ),
    # --- topics ---
    Setting("auto.create.topics.enable", "boolean", True, "Create a missing topic when a client requests its metadata and allows the creation."),
    Setting(
        "num.partitions", "int", 1, "Partitions of a topic that is created without a number of partitions.", low=1, high=10_000, unit="partitions",
    ),
    Setting(
        "partitions.max", "int", 20_000,
        "Partitions of all topics together. Creating a topic beyond it is refused, so that a client inventing names cannot fill the disk. With "
        "`store` the default is 500.",
        low=1, unit="partitions",
    ),
    Setting(
        "message.max.bytes", "int", 1_048_588,
        "The largest record batch that is accepted from a producer, in its compressed size, and the largest append to the offsets log. "
        "A topic's max.message.bytes overrides it.", unit="bytes",
    ),
    Setting(
        "fetch.max.bytes", "int", 57_671_680,
        "The most bytes of records in the reply to one fetch; a larger first batch is sent nevertheless.",
        low=1024, unit="bytes",
    ),
    # --- topic logs: a topic's own setting overrides these ---
    Setting(
        "log.retention.ms", "long", 604_800_000,
        "How old a segment's newest record may become before the segment is dropped, where cleanup.policy has delete (retention.ms). -1: for "
        "ever. log.retention.minutes and log.retention.hours set it in coarser units; ms overrides minutes, and minutes override hours.",
        low=-1, high=LONG_MAX, unit="ms",
    ),
    Setting("log.retention.minutes", "int", 10_080, "See log.retention.ms.", low=-1, unit="minutes"),
    Setting("log.retention.hours", "int", 168, "See log.retention.ms.", low=-1, unit="hours"),
    Setting(
        "log.retention.bytes", "long", -1,
        "How large the log of one partition may be before its oldest segments are dropped, where cleanup.policy has delete (retention.bytes). "
        "-1: no limit.", low=-(2**63), high=LONG_MAX, unit="bytes",
    ),
    Setting(
        "log.retention.check.interval.ms", "long", 300_000, "How often old segments are closed and dropped.", low=1, high=LONG_MAX,
        unit="ms",
    ),
    Setting(
        "log.segment.bytes", "int", 1_073_741_824, "Size at which a segment is closed and the next one begun (segment.bytes).",
        low=1_048_576, unit="bytes",
    ),
    Setting(
        "log.roll.ms", "long", 604_800_000,
        "Age at which a segment is closed even if it is not full (segment.ms): only closed segments can be dropped or compacted. "
        "log.roll.hours sets it in hours.", low=1, high=LONG_MAX, unit="ms",
    ),
    Setting("log.roll.hours", "int", 168, "See log.roll.ms.", low=1, unit="hours"),
    Setting(
        "log.roll.jitter.ms", "long", 0,
        "The maximum of a random time that is subtracted from log.roll.ms for each segment, so that not all close at once (segment.jitter.ms).",
        high=LONG_MAX, unit="ms",
    ),
    Setting("log.roll.jitter.hours", "int", 0, "See log.roll.jitter.ms.", unit="hours"),
    Setting(
        "log.segment.delete.delay.ms", "long", 60_000,
        "How long the files of a dropped segment or a deleted topic stay on the disk, under another name (file.delete.delay.ms).",
        high=LONG_MAX, unit="ms",
    ),
    Setting(
        "log.cleanup.policy", "list", ("delete",),
        "`delete` drops old segments, `compact` keeps the newest record of each key; both may be set (cleanup.policy).",
        choices=("compact", "delete"),
    ),
    Setting(
        "log.cleaner.enable", "boolean", True, "Whether topics whose cleanup.policy has compact are compacted.",
    ),
    Setting(
        "log.cleaner.backoff.ms", "long", 15_000, "How long to wait after a search that found no topic log to compact.", high=LONG_MAX, unit="ms",
    ),
    Setting(
        "log.cleaner.min.cleanable.ratio", "double", 0.5,
        "A topic's log is compacted when this ratio of its bytes was appended since the last compaction (min.cleanable.dirty.ratio).",
        high=1,
    ),
    Setting(
        "log.cleaner.min.compaction.lag.ms", "long", 0, "Records younger than this are not compacted away (min.compaction.lag.ms).",
        high=LONG_MAX, unit="ms",
    ),
    Setting(
        "log.cleaner.max.compaction.lag.ms", "long", LONG_MAX,
        "A log with an uncompacted record older than this is compacted, whatever its dirty ratio (max.compaction.lag.ms).",
        low=1, high=LONG_MAX, unit="ms",
    ),
    Setting(
        "log.cleaner.delete.retention.ms", "long", 86_400_000,
        "How long a tombstone is kept after the compaction that applied it, for consumers that lag (delete.retention.ms).",
        high=LONG_MAX, unit="ms",
    ),
    Setting(
        "log.cleaner.dedupe.buffer.size", "long", 134_217_728,
        "Memory for the keys of one compaction; the next compaction handles keys that do not fit.", low=1_048_576, high=LONG_MAX, unit="bytes",
    ),
    Setting(
        "log.message.timestamp.type", "string", "CreateTime",
        "Whether records keep the timestamp of their producer or get the time of the append (message.timestamp.type).",
        choices=("CreateTime", "LogAppendTime"),
    ),
    Setting(
        "log.message.timestamp.before.max.ms", "long", LONG_MAX,
        "How far a record's own timestamp may be before the broker's time; a larger difference is refused (message.timestamp.before.max.ms).",
        high=LONG_MAX, unit="ms",
    ),
    Setting(
        "log.message.timestamp.after.max.ms", "long", 3_600_000,
        "How far a record's own timestamp may be after the broker's time; a larger difference is refused (message.timestamp.after.max.ms).",
        high=LONG_MAX, unit="ms",
    ),
    Setting(
        "compression.type", "string", "producer",
        "How batches are stored: as their producer compressed them, or recompressed (compression.type of the topic).",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    Setting("compression.gzip.level", "int", -1, "The level of gzip, 1 to 9; -1 is the library's own choice.", low=-1, high=9),
    Setting("compression.lz4.level", "int", 9, "The level of lz4.", low=1, high=17),
    Setting("compression.zstd.level", "int", 3, "The level of zstd.", low=-131_072, high=22),
    Setting(
        "producer.id.expiration.ms", "int", 86_400_000,
        "The state of a producer that has not written to a partition for so long is removed: its next batch counts as its first.", low=1, unit="ms",
    ),
    Setting(
        "producer.id.expiration.check.interval.ms", "int", 600_000, "How often expired producer state is removed.", low=1, unit="ms",
    ),
    Setting(
        "log.flush.offset.checkpoint.interval.ms", "int", 60_000,
        "How often to checkpoint the recovery point of each log: records before it need no check after a crash.", unit="ms",
    ),
    Setting(
        "log.flush.start.offset.checkpoint.interval.ms", "int", 60_000, "How often to checkpoint the start offset of each log.", unit="ms",
    ),
    # --- groups and offsets ---
    Setting(
        "group.min.session.timeout.ms", "int", 6000, "The shortest session timeout that a member may request.", low=1, unit="ms",
    ),
    Setting(
        "group.max.session.timeout.ms", "int", 1_800_000, "The longest session timeout that a member may request.", low=1, unit="ms",
    ),
    Setting("group.initial.rebalance.delay.ms", "int", 3000, "How long a new group waits for more members before it starts.", unit="ms"),
    Setting("group.max.size", "int", INT_MAX, "Members of one group.", low=1, unit="members"),
    Setting(
        "group.member.metadata.max.bytes", "int", 4_194_304,
        "What one member of a group may keep in memory: the names and metadata of its protocols, its ids, and a constant for each of them; "
        "separately its assignment. A JoinGroup with more is answered with GROUP_MAX_SIZE_REACHED, a leader's SyncGroup with INVALID_REQUEST.",
        low=1024, unit="bytes",
    ),
    Setting(
        "groups.metadata.max.bytes", "int", 1 << 28,
        "The same of all groups of this node together, with assignments and the stored records of groups. At the maximum no member is added, and "
        "no member may keep more than before. Members that are loaded from the log always count, and are never refused.",
        low=1 << 20, unit="bytes",
    ),
    # Policies of all groups that do not set the policy themselves (docs/policies.md).
    Setting(
        "group.policy.registration.timeout.ms", "string", "none",
        "Default of the group policy `registration.timeout.ms`: how long a static member may be away after its session without a rebalance. "
        "1000 to 604800000, or none.",
    ),
    Setting(
        "group.policy.expansion.timeout.ms", "string", "none",
        "Default of the group policy `expansion.timeout.ms`: how long new members wait for further ones, to join together in one rebalance. "
        "1000 to 604800000, or none.",
    ),
    Setting(
        "group.policy.roster.timeout.ms", "string", "none",
        "Default of the group policy `roster.timeout.ms`: how long a group waits for instances of its `instance.ids`. 1000 to 604800000, or none.",
    ),
    Setting(
        "group.policy.roster.strict", "string", "none",
        "Default of the group policy `roster.strict`: whether members that are not in the group's `instance.ids` are refused. true, false or none.",
    ),
    Setting(
        "group.policy.target.group.size", "string", "none",
        "Default of the group policy `target.group.size`: members beyond this number are standbys. A number, or none.",
    ),
    Setting(
        "group.policy.subscription.change", "string", "none",
        "Default of the group policy `subscription.change`: whether a static member that returns with other topics causes a rebalance. "
        "keep, rebalance or none.",
    ),
    Setting(
        "group.policy.pending.release", "string", "none",
        "Default of the group policy `pending.release`: whether an unused member id is forgotten when its connection closes. true, false or none.",
    ),
    Setting(
        "group.policy.topics.watch", "string", "none",
        "Default of the group policy `topics.watch`: whether a change of a subscribed topic's partitions causes a rebalance at once. "
        "true, false or none.",
    ),
    Setting(
        "offsets.topic.num.partitions", "int", 50,
        "Partitions of __consumer_offsets, over which the groups are spread. Must not change once there is data.", low=1, high=10_000,
        unit="partitions",
    ),
    Setting(
        "offsets.topic.segment.bytes", "int", 104_857_600, "Size at which a segment of the offsets log is closed.", low=1, unit="bytes",
    ),
    Setting("offset.metadata.max.bytes", "int", 4096, "The longest text that a commit may add to an offset.", unit="bytes"),
    Setting(
        "offsets.retention.minutes", "int", 10_080,
        "How long offsets are kept after their group became empty, or after the commit if the group never had members.",
        low=1, unit="minutes",
    ),
    Setting(
        "offsets.retention.check.interval.ms", "long", 600_000, "How often expired offsets are removed.", low=1, high=LONG_MAX, unit="ms",
    ),
    Setting(
        "offsets.flush", "string", "always",
        "When the reply to a commit or a join is sent: with `always` after its record is on the disk (safe against power loss), with `interval` and "
        "`never` once it is written to the operating system (safe against the death of the process).",
        choices=("always", "interval", "never"),
    ),
    Setting("offsets.flush.interval.ms", "int", 100, "How often to flush with offsets.flush=interval.", low=1, unit="ms"),
    Setting(
        "offsets.commit.timeout.ms", "int", 5000,
        "When a write to the log takes longer, waiting requests get a retriable error.", low=1, unit="ms",
    ),
    Setting(
        "notes.retention.ms", "long", 604_800_000,
        "How long the notes about groups are kept (__coordinator_notes). Below 0: for ever.", low=-1, high=LONG_MAX, unit="ms",
    ),
    Setting(
        "notes.retention.bytes", "long", 67_108_864,
        "The maximum size of the notes of all groups together; above it the oldest segment (1 MiB) of the largest log is dropped. "
        "Below 0: no limit.", low=-1, high=LONG_MAX, unit="bytes",
    ),
    Setting(
        "notes.end.offsets.interval.ms", "int", 10_000,
        "How often the notes record the changed end offsets of topic partitions, from which the past lag of a group is computed. They may "
        "use a quarter of `notes.retention.bytes` a day, and are written less often if they would exceed it. 0: never.", unit="ms",
    ),
    # --- the process ---
    Setting(
        "clock.settle.ms", "long", 600_000,
        "After the wall clock was set by more than a minute, or a start more than a minute from the data directory's last use, no data is "
        "deleted by time until the clock has run steadily for so long. 0: no wait.", high=LONG_MAX, unit="ms",
    ),
    Setting(
        "log.level", "string", "info", "The least level that is logged. `debug` shows every frame.",
        choices=("debug", "info", "warning", "error"),
    ),
    Setting(
        "log.format", "string", "auto", "`console` for people, `json` for machines; `auto` is console on a terminal and json elsewhere.",
        choices=("auto", "console", "json"),
    ),
    Setting(
        "exit.with.parent", "boolean", False,
        "Stop in order when the process that started this one has ended, also by kill -9, or when standard input is a pipe and its other end "
        "is closed, so that no broker survives its test run. A broker that a shell starts in the background ends with the shell. The flags "
        "are --exit-with-parent and --no-exit-with-parent.",
    ),
    Setting(
        "event.loop", "string", "auto", "`auto` uses uvloop if it is installed, otherwise the standard library's asyncio.",
        choices=("auto", "uvloop", "asyncio"),
    ),
)  # fmt: skip

SUPPORTED = {setting.name: setting for setting in SETTINGS}

# Kafka's second names of a setting.
ALIASES = {"log.dir": "log.dirs", "broker.id": "node.id"}

PROFILES: dict[str, dict[str, str]] = {
    # For several brokers on one machine: each has a free port and, without --data, a temporary directory.
    "test": {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "100",
        "auto.create.topics.enable": "true",
        "offsets.flush": "never",
        "clock.settle.ms": "1000",
        "exit.with.parent": "true",
    },
}
# The profiles of brokers whose data is removed when the process ends, unless log.dirs is given.
TEMPORARY_PROFILES = ("test",)


class Guard(NamedTuple):
    """Refuses a Kafka setting that asks for a protection or guarantee that this broker lacks, unless its value is `harmless`."""

    harmless: Callable[[str], bool]
    reason: str


def at_most_one(value: str) -> bool:
    return value.removeprefix("-").isdigit() and int(value) <= 1


def is_empty(value: str) -> bool:
    return not value


NO_ACCESS_CONTROL = "there is no access control here: every client that reaches the port may do everything"
NO_REPLICAS = "there is one copy of the data here, so more than 1 cannot be promised"
NO_PLUGINS = "Java plug-ins are not run here, so requests that this plug-in forbids would be allowed"
NO_LOG_FLUSH = "topic data is flushed by the operating system here, so this cannot be promised"

GUARDS: dict[str, Guard] = {
    "authorizer.class.name": Guard(is_empty, NO_ACCESS_CONTROL),
    "super.users": Guard(is_empty, NO_ACCESS_CONTROL),
    "allow.everyone.if.no.acl.found": Guard(lambda value: value in ("", "true"), NO_ACCESS_CONTROL),
    "principal.builder.class": Guard(lambda value: not value or value.endswith(".DefaultKafkaPrincipalBuilder"), NO_ACCESS_CONTROL),
    "security.inter.broker.protocol": Guard(lambda value: value == "PLAINTEXT", "only PLAINTEXT is supported, without any protection"),
    "security.providers": Guard(is_empty, "connections are not encrypted here"),
    "delegation.token.secret.key": Guard(is_empty, "clients do not authenticate here"),
    "connections.max.reauth.ms": Guard(lambda value: value == "0", "clients do not authenticate here"),
    "create.topic.policy.class.name": Guard(is_empty, NO_PLUGINS),
    "alter.config.policy.class.name": Guard(is_empty, NO_PLUGINS),
    "client.quota.callback.class": Guard(is_empty, NO_PLUGINS),
    "min.insync.replicas": Guard(at_most_one, NO_REPLICAS),
    "default.replication.factor": Guard(at_most_one, NO_REPLICAS),
    "offsets.topic.replication.factor": Guard(at_most_one, NO_REPLICAS),
    "log.flush.interval.messages": Guard(lambda value: value == str(LONG_MAX), NO_LOG_FLUSH),
    "log.flush.interval.ms": Guard(lambda value: value in ("", str(LONG_MAX)), NO_LOG_FLUSH),
    "remote.log.storage.system.enable": Guard(lambda value: value == "false", "there is no tiered storage here"),
}

# Prefixes of settings that are refused, also after Kafka's prefix of one listener (listener.name.NAME).
GUARDED_PREFIXES = {
    "ssl.": "connections are not encrypted here",
    "sasl.": "clients do not authenticate here",
}

POLICY_PREFIX = "group.policy."  # group.policy.NAME: the default of the group policy NAME
# Prefixes of settings that Kafka's plug-ins define: no list of their names exists.
OPEN_ENDED_PREFIXES = ("config.providers.", "metrics.jmx.", "rsm.config.", "rlmm.config.")
LISTENER_PREFIX = "listener.name."
