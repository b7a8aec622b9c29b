"""Every setting of the broker, and the profiles: a field of `Config` is one setting, with its default, limits and text.

A Kafka name has Kafka's meaning and unit. `python -m docs.configuration` writes docs/configuration.md from this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker.logging.secrets import StoreAddress
from broker.settings.listeners import Listener
from broker.settings.setting import (
    INT_MAX,
    LONG_MAX,
    Setting,
    boolean,
    double,
    integer,
    long,
    parsed,
    settings_of,
    several,
    string,
    strings,
)
from coordinator.consumer.assignors import ASSIGNORS
from coordinator.consumer.config import MigrationPolicy
from coordinator.policies.declaration import NONE_TEXT
from coordinator.policies.door import POLICIES

# Settings that exist in several units, the finest first: its field has the effective value.
UNITS: Final = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
)
# Kafka's class names of assignors, which its setting accepts.
ASSIGNOR_CLASSES: Final = {assignor.class_name: assignor.name for assignor in ASSIGNORS.values() if assignor.class_name}
POLICY_PREFIX: Final = "group.policy."  # group.policy.NAME: the default of the group policy NAME

# The policies with a default for all groups that do not set the policy themselves (docs/policies.md).
POLICY_DEFAULTS: Final = tuple(name for name, policy in POLICIES.items() if policy.has_default)


class Difference(NamedTuple):
    """A setting that differs from its default, logged at start."""

    name: str
    value: str
    default: str
    source: str


class Notice(NamedTuple):
    """An event that is logged at start, with its fields; `level`: warning, unless there is nothing to do about it."""

    event: str
    fields: Mapping[str, str]
    level: str = "warning"


def policy_rows() -> list[Setting]:
    return [
        Setting(POLICY_PREFIX + name, "string", NONE_TEXT, f"Default of the group policy `{name}`. {POLICIES[name].text}")
        for name in POLICY_DEFAULTS
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Every setting under its name, with underscores for dots, then what follows from them.

    `listeners` includes the advertised addresses, `group_policies` has the texts by policy.
    """

    # --- identity and addresses ---
    listeners: tuple[Listener, ...] = parsed(strings(("PLAINTEXT://127.0.0.1:9092",),
        "Where to listen: NAME://HOST:PORT, several separated by commas, each with its own name and port. An empty host listens on every "
        "address, port 0 on a free port. Kafka's default listens on every address; ours only on this machine, because every client that reaches "
        "the port may do everything.", flag="listen",
    ))
    advertised_listeners: tuple[str, ...] = strings((),
        "The addresses to which clients connect, by listener name. A listener that is missing here advertises the address it listens on, "
        "which cannot be a wildcard. Host names are not resolved; port 0 means the port listened on.", flag="advertise",
    )
    listener_security_protocol_map: tuple[str, ...] = strings((),
        "NAME:PROTOCOL for every listener. Only PLAINTEXT is supported. Without a map every listener is PLAINTEXT, unless its name is that of "
        "another protocol.",
    )
    controller_listener_names: tuple[str, ...] = strings((),
        "Listeners that Kafka reserves for its controllers. They are not opened here, so that a file written for Kafka in combined mode can be "
        "used.",
    )
    node_id: int = integer(1,
        "The id by which clients know this broker; `broker.id` is another name for it.", flag="node-id", alias="broker.id",
    )
    cluster_id: str = string("",
        "The id of the cluster when a data directory is used for the first time; empty: a random id. Afterwards it must equal the id in the "
        "directory.",
    )
    cluster_nodes: int = integer(1,
        "How many nodes share the data directory. With more than 1 each node is a process with its own node.id and listeners, and owns a "
        "part of the logs; this is experimental. The flag is --nodes.", low=1, high=64, unit="nodes", flag="nodes",
    )
    cluster_node_timeout_ms: int = integer(30_000,
        "`tenure serve --nodes N` kills and restarts a node that has not answered for so long, so that the other nodes acquire its logs; 0: never.",
        unit="ms",
    )
    store: StoreAddress = parsed(string("",
        "Keeps the logs in NATS JetStream instead of a data directory: nats://HOST:PORT,HOST:PORT or tls://..., the servers of its cluster. A "
        "user and password, or a token, are written before the first host; better in a file (`store.credentials.location`) or in TENURE_STORE, since "
        "`ps` shows the command line. Experimental; docs/cluster.md. The flag is --store.", flag="store",
    ))
    store_credentials_location: str = string("",
        "With `store`: a file with the login of its servers, `user:password` or a token, in one line. Other users should not be able to read it.",
    )
    cluster_name: str = string("tenure",
        "With `store`: nodes with the same cluster name are one cluster, and the names of its streams begin with it. Up to 64 letters, digits, "
        "- and _. The flag is --cluster.", flag="cluster",
    )
    store_replicas: int = integer(3,
        "With `store`: how many JetStream servers store each log. 1 is for a trial with one server.", low=1, high=5, unit="replicas",
    )
    store_lease_ms: int = integer(10_000,
        "With `store`: a node that has not renewed its lease for so long counts as dead, and the other nodes take over its logs. It stops "
        "serving by itself after 0.9 of that time. Below 10 seconds a leader election inside JetStream can end leases.",
        low=300, high=600_000, unit="ms",
    )
    store_tls_ca_location: str = string("", "With tls:// in `store`: a file of certificate authorities; empty: the system's.")
    log_dirs: tuple[str, ...] = strings(("./data",),
        "The data directory, exactly one; `log.dir` is another name for it. The flag is --data.", flag="data", alias="log.dir",
    )
    # --- connections ---
    max_connections: int = integer(INT_MAX,
        "Connections at one time, within the open-file limit; by default as many as that limit and the memory allow. At the maximum, idle "
        "connections are closed for new ones; while none is idle, new connections wait in the backlog until one closes.",
        unit="connections",
    )
    max_connections_per_ip: int = integer(INT_MAX,
        "Connections at one time from one address. 0 is allowed together with max.connections.per.ip.overrides.", unit="connections",
    )
    max_connections_per_ip_overrides: tuple[tuple[str, int], ...] = parsed(strings((),
        "ADDRESS:COUNT, a different maximum for single IP addresses (not host names).",
    ))
    connections_max_idle_ms: int = long(600_000,
        "A connection that sends nothing for this long is closed; waiting for a parked reply is not idleness. Below 0: never.",
        low=-(2**63), unit="ms",
    )
    socket_request_max_bytes: int = integer(104_857_600, "The largest request. A larger one closes its connection.", low=1, unit="bytes")
    socket_response_max_bytes: int = integer(100_000_000,
        "The largest reply, without the records of a fetch (fetch.max.bytes). A request for more is answered with POLICY_VIOLATION. Clients with "
        "librdkafka read no larger reply (receive.message.max.bytes).", low=65_536, unit="bytes",
    )
    request_elements_max: int = integer(100_000,
        "The most elements of one request: topics, partitions and others in lists, the lists themselves, tagged fields, and one for each 128 bytes "
        "of a long string. A request with more closes its connection, since many small elements need too much memory and time.",
        low=1, unit="elements",
    )
    socket_listen_backlog_size: int = integer(4096,
        "Connections that may wait to be accepted, within the system's own limit. Kafka's default, 50, is too small for many clients that "
        "reconnect at once.", low=1, unit="connections",
    )
    connection_unread_replies_max_bytes: int = integer(1_048_576,
        "Bytes of replies that a client may leave unread; above this, the broker reads no more of its requests until the client reads replies.",
        low=1, unit="bytes",
    )
    connections_unread_replies_max_bytes: int = long(268_435_456,
        "Bytes of large replies that are being built or not read yet, of all connections together; at least socket.response.max.bytes. Above it, "
        "connections with at least the average of them are closed, the longest inactive first.", low=1, unit="bytes",
    )
    connection_waiting_requests_max_bytes: int = integer(1_048_576,
        "Requests of one connection that may wait while an earlier reply is parked; above it the broker reads no more from the connection. A single "
        "larger request may wait alone.", low=1, unit="bytes",
    )
    connections_partial_requests_max_bytes: int = long(536_870_912,
        "The received bytes of incomplete requests, of all connections together; at least socket.request.max.bytes. Above it, connections with "
        "at least the average of them are closed, the longest inactive first.", low=1, unit="bytes",
    )
    # --- topics ---
    auto_create_topics_enable: bool = boolean(True, "Create a missing topic when a client requests its metadata and allows the creation.")
    num_partitions: int = integer(1,
        "Partitions of a topic that is created without a number of partitions.", low=1, high=10_000, unit="partitions",
    )
    partitions_max: int = integer(20_000,
        "Partitions of all topics together. Creating a topic beyond it is refused, so that a client inventing names cannot fill the disk. With "
        "`store` the default is 500.", low=1, unit="partitions",
    )
    message_max_bytes: int = integer(1_048_588,
        "The largest record batch that is accepted from a producer, in its compressed size, and the largest append to the offsets log. "
        "A topic's max.message.bytes overrides it.", unit="bytes",
    )
    fetch_max_bytes: int = integer(57_671_680,
        "The most bytes of records in the reply to one fetch; a larger first batch is sent nevertheless.", low=1024, unit="bytes",
    )
    # --- topic logs: a topic's own setting overrides these ---
    log_retention_ms: int = long(604_800_000,
        "How old a segment's newest record may become before the segment is dropped, where cleanup.policy has delete (retention.ms). -1: for "
        "ever. log.retention.minutes and log.retention.hours set it in coarser units; ms overrides minutes, and minutes override hours.",
        low=-1, unit="ms",
    )
    log_retention_minutes: int = integer(10_080, "See log.retention.ms.", low=-1, unit="minutes")
    log_retention_hours: int = integer(168, "See log.retention.ms.", low=-1, unit="hours")
    log_retention_bytes: int = long(-1,
        "How large the log of one partition may be before its oldest segments are dropped, where cleanup.policy has delete (retention.bytes). "
        "-1: no limit.", low=-(2**63), unit="bytes",
    )
    log_retention_check_interval_ms: int = long(300_000, "How often old segments are closed and dropped.", low=1, unit="ms")
    log_segment_bytes: int = integer(1_073_741_824,
        "Size at which a segment is closed and the next one begun (segment.bytes).", low=1_048_576, unit="bytes",
    )
    log_roll_ms: int = long(604_800_000,
        "Age at which a segment is closed even if it is not full (segment.ms): only closed segments can be dropped or compacted. "
        "log.roll.hours sets it in hours.", low=1, unit="ms",
    )
    log_roll_hours: int = integer(168, "See log.roll.ms.", low=1, unit="hours")
    log_roll_jitter_ms: int = long(0,
        "The maximum of a random time that is subtracted from log.roll.ms for each segment, so that not all close at once (segment.jitter.ms).",
        unit="ms",
    )
    log_roll_jitter_hours: int = integer(0, "See log.roll.jitter.ms.", unit="hours")
    log_segment_delete_delay_ms: int = long(60_000,
        "How long the files of a dropped segment or a deleted topic stay on the disk, under another name (file.delete.delay.ms).",
        unit="ms",
    )
    log_cleanup_policy: tuple[str, ...] = strings(("delete",),
        "`delete` drops old segments, `compact` keeps the newest record of each key; both may be set (cleanup.policy).",
        choices=("compact", "delete"),
    )
    log_cleaner_enable: bool = boolean(True, "Whether topics whose cleanup.policy has compact are compacted.")
    log_cleaner_backoff_ms: int = long(15_000, "How long to wait after a search that found no topic log to compact.", unit="ms")
    log_cleaner_min_cleanable_ratio: float = double(0.5,
        "A topic's log is compacted when this ratio of its bytes was appended since the last compaction (min.cleanable.dirty.ratio).",
        high=1,
    )
    log_cleaner_min_compaction_lag_ms: int = long(0, "Records younger than this are not compacted away (min.compaction.lag.ms).", unit="ms")
    log_cleaner_max_compaction_lag_ms: int = long(LONG_MAX,
        "A log with an uncompacted record older than this is compacted, whatever its dirty ratio (max.compaction.lag.ms).",
        low=1, unit="ms",
    )
    log_cleaner_delete_retention_ms: int = long(86_400_000,
        "How long a tombstone is kept after the compaction that applied it, for consumers that lag (delete.retention.ms).", unit="ms",
    )
    log_cleaner_dedupe_buffer_size: int = long(134_217_728,
        "Memory for the keys of one compaction; the next compaction handles keys that do not fit.", low=1_048_576, unit="bytes",
    )
    log_message_timestamp_type: str = string("CreateTime",
        "Whether records keep the timestamp of their producer or get the time of the append (message.timestamp.type).",
        choices=("CreateTime", "LogAppendTime"),
    )
    log_message_timestamp_before_max_ms: int = long(LONG_MAX,
        "How far a record's own timestamp may be before the broker's time; a larger difference is refused (message.timestamp.before.max.ms).",
        unit="ms",
    )
    log_message_timestamp_after_max_ms: int = long(3_600_000,
        "How far a record's own timestamp may be after the broker's time; a larger difference is refused (message.timestamp.after.max.ms).",
        unit="ms",
    )
    compression_type: str = string("producer",
        "How batches are stored: as their producer compressed them, or recompressed (compression.type of the topic).",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    )
    compression_gzip_level: int = integer(-1, "The level of gzip, 1 to 9; -1 is the library's own choice.", low=-1, high=9)
    compression_lz4_level: int = integer(9, "The level of lz4.", low=1, high=17)
    compression_zstd_level: int = integer(3, "The level of zstd.", low=-131_072, high=22)
    producer_id_expiration_ms: int = integer(86_400_000,
        "The state of a producer that has not written to a partition for so long is removed: its next batch counts as its first.",
        low=1, unit="ms",
    )
    producer_id_expiration_check_interval_ms: int = integer(600_000, "How often expired producer state is removed.", low=1, unit="ms")
    log_flush_offset_checkpoint_interval_ms: int = integer(60_000,
        "How often to checkpoint the recovery point of each log: records before it need no check after a crash.", unit="ms",
    )
    log_flush_start_offset_checkpoint_interval_ms: int = integer(60_000, "How often to checkpoint the start offset of each log.", unit="ms")
    # --- groups and offsets ---
    group_min_session_timeout_ms: int = integer(6000, "The shortest session timeout that a member may request.", low=1, unit="ms")
    group_max_session_timeout_ms: int = integer(1_800_000, "The longest session timeout that a member may request.", low=1, unit="ms")
    group_initial_rebalance_delay_ms: int = integer(3000, "How long a new group waits for more members before it starts.", unit="ms")
    group_max_size: int = integer(INT_MAX, "Members of one group.", low=1, unit="members")
    group_member_metadata_max_bytes: int = integer(4_194_304,
        "What one member of a group may keep in memory: the names and metadata of its protocols, its ids, and a constant for each of them; "
        "separately its assignment. A JoinGroup with more is answered with GROUP_MAX_SIZE_REACHED, a leader's SyncGroup with INVALID_REQUEST.",
        low=1024, unit="bytes",
    )
    groups_metadata_max_bytes: int = integer(1 << 28,
        "The same of all groups of this node together, with assignments and the stored records of groups. At the maximum no member is added, and "
        "no member may keep more than before. Members that are loaded from the log always count, and are never refused.",
        low=1 << 20, unit="bytes",
    )
    # Groups of the consumer protocol (KIP-848).
    group_coordinator_rebalance_protocols: tuple[str, ...] = strings(("classic", "consumer", "streams"),
        "The group protocols that are served. Without `consumer` members of that protocol are refused, and their clients fall back or fail. `classic` "
        "cannot be left out; `share` and `streams` have no effect here.", choices=("classic", "consumer", "share", "streams"),
    )
    group_consumer_session_timeout_ms: int = integer(45_000,
        "A member of the consumer protocol that is not heard for so long is removed; a group may have its own `consumer.session.timeout.ms`.", low=1, unit="ms",
    )
    group_consumer_min_session_timeout_ms: int = integer(45_000, "The shortest session timeout of a group of the consumer protocol.", low=1, unit="ms")
    group_consumer_max_session_timeout_ms: int = integer(60_000, "The longest session timeout of a group of the consumer protocol.", low=1, unit="ms")
    group_consumer_heartbeat_interval_ms: int = integer(5000,
        "How often members of the consumer protocol send a heartbeat: they learn their partitions from it. A group may have its own "
        "`consumer.heartbeat.interval.ms`.", low=1, unit="ms",
    )
    group_consumer_min_heartbeat_interval_ms: int = integer(5000, "The shortest heartbeat interval of a group of the consumer protocol.", low=1, unit="ms")
    group_consumer_max_heartbeat_interval_ms: int = integer(15_000, "The longest heartbeat interval of a group of the consumer protocol.", low=1, unit="ms")
    group_consumer_assignment_interval_ms: int = integer(1000,
        "The least time between two computed assignments of a group of the consumer protocol, so that members that join together move partitions once. A "
        "group may have its own `consumer.assignment.interval.ms`.", unit="ms",
    )
    group_consumer_min_assignment_interval_ms: int = integer(0, "The shortest assignment interval of a group of the consumer protocol.", unit="ms")
    group_consumer_max_assignment_interval_ms: int = integer(15_000, "The longest assignment interval of a group of the consumer protocol.", unit="ms")
    group_consumer_assignors: tuple[str, ...] = strings(tuple(ASSIGNORS),
        "The assignors that members of the consumer protocol may ask for; the first is used if none asks. Kafka's class names of its own are accepted too; "
        "what each does: docs/groups.md.",
        choices=(*ASSIGNORS, *ASSIGNOR_CLASSES),
    )
    group_consumer_max_size: int = integer(INT_MAX, "Members of one group of the consumer protocol.", low=1, unit="members")
    group_consumer_migration_policy: str = string("bidirectional",
        "Whether a group with members may pass from the classic protocol to the consumer protocol (`upgrade`), back (`downgrade`), both or neither. An empty "
        "group always may. With `disabled` members of the two protocols cannot share a group either.",
        choices=tuple(policy.value for policy in MigrationPolicy),
    )
    group_consumer_regex_refresh_interval_ms: int = integer(600_000,
        "How often the regular expressions of subscriptions are matched again with all topics, besides after a topic was created.", low=10_000, unit="ms",
    )
    # Policies of all groups that do not set the policy themselves (docs/policies.md).
    group_policies: Mapping[str, str] = several(policy_rows())
    offsets_topic_num_partitions: int = integer(50,
        "Partitions of __consumer_offsets, over which the groups are spread. Must not change once there is data.",
        low=1, high=10_000, unit="partitions",
    )
    offsets_topic_segment_bytes: int = integer(104_857_600, "Size at which a segment of the offsets log is closed.", low=1, unit="bytes")
    offset_metadata_max_bytes: int = integer(4096, "The longest text that a commit may add to an offset.", unit="bytes")
    offsets_retention_minutes: int = integer(10_080,
        "How long offsets are kept after their group became empty, or after the commit if the group never had members.",
        low=1, unit="minutes",
    )
    offsets_retention_check_interval_ms: int = long(600_000, "How often expired offsets are removed.", low=1, unit="ms")
    offsets_flush: str = string("always",
        "When the reply to a commit or a join is sent: with `always` after its record is on the disk (safe against power loss), with `interval` and "
        "`never` once it is written to the operating system (safe against the death of the process).",
        choices=("always", "interval", "never"),
    )
    offsets_flush_interval_ms: int = integer(100, "How often to flush with offsets.flush=interval.", low=1, unit="ms")
    offsets_commit_timeout_ms: int = integer(5000,
        "When a write to the log takes longer, waiting requests get a retriable error.", low=1, unit="ms",
    )
    notes_retention_ms: int = long(604_800_000,
        "How long the notes about groups are kept (__coordinator_notes). Below 0: for ever.", low=-1, unit="ms",
    )
    notes_retention_bytes: int = long(67_108_864,
        "The maximum size of the notes of all groups together; above it the oldest segment (1 MiB) of the largest log is dropped. "
        "Below 0: no limit.", low=-1, unit="bytes",
    )
    notes_end_offsets_interval_ms: int = integer(10_000,
        "How often the notes record the changed end offsets of topic partitions, from which the past lag of a group is computed. They may "
        "use a quarter of `notes.retention.bytes` a day, and are written less often if they would exceed it. 0: never.", unit="ms",
    )
    # --- the process ---
    clock_settle_ms: int = long(600_000,
        "After the wall clock was set by more than a minute, or a start more than a minute from the data directory's last use, no data is "
        "deleted by time until the clock has run steadily for so long. 0: no wait.", unit="ms",
    )
    log_level: str = string("info",
        "The least level that is logged. `debug` shows every frame.", choices=("debug", "info", "warning", "error"),
    )
    log_format: str = string("auto",
        "`console` for people, `json` for machines; `auto` is console on a terminal and json elsewhere.",
        choices=("auto", "console", "json"),
    )
    exit_with_parent: bool = boolean(False,
        "Stop in order when the process that started this one has ended, also by kill -9, or when standard input is a pipe and its other end "
        "is closed, so that no broker survives its test run. A broker that a shell starts in the background ends with the shell. The flags "
        "are --exit-with-parent and --no-exit-with-parent.",
    )
    event_loop: str = string("auto",
        "`auto` uses uvloop if it is installed, otherwise the standard library's asyncio.", choices=("auto", "uvloop", "asyncio"),
    )
    # --- what follows from the settings ---
    data_directory: str  # log.dirs
    temporary_data: bool  # `data_directory` is empty, and stands for one that is removed when the process ends
    profile: str
    given: Mapping[str, str]  # the values as the user wrote them, of settings with and without effect
    differences: tuple[Difference, ...]
    notices: tuple[Notice, ...]


SETTINGS: Final = tuple(settings_of(Config))
SUPPORTED: Final = {setting.name: setting for setting in SETTINGS}
FLAGS: Final = {setting.flag: setting.name for setting in SETTINGS if setting.flag}
# Kafka's second names of a setting.
ALIASES: Final = {setting.alias: setting.name for setting in SETTINGS if setting.alias}

PROFILES: dict[str, dict[str, str]] = {
    # For several brokers on one machine: each has a free port and, without --data, a temporary directory.
    "test": {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "100",
        "group.consumer.min.session.timeout.ms": "100",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "500",
        "group.consumer.assignment.interval.ms": "0",
        "auto.create.topics.enable": "true",
        "offsets.flush": "never",
        "clock.settle.ms": "1000",
        "exit.with.parent": "true",
    },
}
# The profiles of brokers whose data is removed when the process ends, unless log.dirs is given.
TEMPORARY_PROFILES = ("test",)
