"""Kafka's settings that are refused, since this broker lacks what they ask for.

Names of kafka_names.py that are neither here nor fields of `Config` are accepted without effect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from broker.settings.setting import LONG_MAX


class Guard(NamedTuple):
    """Refuses a Kafka setting that asks for a protection or guarantee that this broker lacks, unless its value is `harmless`."""

    harmless: Callable[[str], bool]
    reason: str
    accepted: str = "empty"  # the harmless values in words


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
    "allow.everyone.if.no.acl.found": Guard(lambda value: value in ("", "true"), NO_ACCESS_CONTROL, "`true`"),
    "principal.builder.class": Guard(lambda value: not value or value.endswith(".DefaultKafkaPrincipalBuilder"), NO_ACCESS_CONTROL, "Kafka's default"),
    "security.inter.broker.protocol": Guard(lambda value: value == "PLAINTEXT", "only PLAINTEXT is supported, without any protection", "`PLAINTEXT`"),
    "security.providers": Guard(is_empty, "connections are not encrypted here"),
    "delegation.token.secret.key": Guard(is_empty, "clients do not authenticate here"),
    "connections.max.reauth.ms": Guard(lambda value: value == "0", "clients do not authenticate here", "`0`"),
    "create.topic.policy.class.name": Guard(is_empty, NO_PLUGINS),
    "alter.config.policy.class.name": Guard(is_empty, NO_PLUGINS),
    "client.quota.callback.class": Guard(is_empty, NO_PLUGINS),
    "min.insync.replicas": Guard(at_most_one, NO_REPLICAS, "`1`"),
    "default.replication.factor": Guard(at_most_one, NO_REPLICAS, "`1`"),
    "offsets.topic.replication.factor": Guard(at_most_one, NO_REPLICAS, "`1`"),
    "log.flush.interval.messages": Guard(lambda value: value == str(LONG_MAX), NO_LOG_FLUSH, "Kafka's default"),
    "log.flush.interval.ms": Guard(lambda value: value in ("", str(LONG_MAX)), NO_LOG_FLUSH, "Kafka's default"),
    "remote.log.storage.system.enable": Guard(lambda value: value == "false", "there is no tiered storage here", "`false`"),
}

# Prefixes of settings that are refused, also after Kafka's prefix of one listener (listener.name.NAME).
GUARDED_PREFIXES = {
    "ssl.": "connections are not encrypted here",
    "sasl.": "clients do not authenticate here",
}

# Prefixes of settings that Kafka's plug-ins define: no list of their names exists.
OPEN_ENDED_PREFIXES = ("config.providers.", "metrics.jmx.", "rsm.config.", "rlmm.config.")
LISTENER_PREFIX = "listener.name."
