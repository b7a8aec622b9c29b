"""Settings of Kafka that exist here only for DescribeConfigs."""

from __future__ import annotations

NO_EFFECT = "Kafka's setting: it is accepted and has no effect here."

# Settings that DescribeConfigs shows for share and streams groups and client metrics subscriptions, with Kafka's types and
# defaults. They have no effect here.
GROUP_SETTINGS: dict[str, tuple[str, str]] = {
    "share.assignment.interval.ms": ("int", "1000"),
    "share.auto.offset.reset": ("string", "latest"),
    "share.delivery.count.limit": ("int", "5"),
    "share.heartbeat.interval.ms": ("int", "5000"),
    "share.isolation.level": ("string", "read_uncommitted"),
    "share.partition.max.record.locks": ("int", "2000"),
    "share.record.lock.duration.ms": ("int", "30000"),
    "share.renew.acknowledge.enable": ("boolean", "true"),
    "share.session.timeout.ms": ("int", "45000"),
    "streams.assignment.interval.ms": ("int", "1000"),
    "streams.heartbeat.interval.ms": ("int", "5000"),
    "streams.initial.rebalance.delay.ms": ("int", "3000"),
    "streams.num.standby.replicas": ("int", "0"),
    "streams.session.timeout.ms": ("int", "45000"),
}
METRICS_SETTINGS: dict[str, tuple[str, str]] = {
    "interval.ms": ("int", "300000"),
    "match": ("list", ""),
    "metrics": ("list", ""),
}
