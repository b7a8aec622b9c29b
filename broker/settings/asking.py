"""Which values of Kafka's settings ask for something: a setting without effect here is worth a warning only then."""

from __future__ import annotations

from collections.abc import Callable

from broker.settings.kafka_names import KNOWN
from broker.settings.refused import GUARDS


def asks_for_something(name: str, value: str) -> bool:
    """Whether a setting of Kafka that has no effect here differs from Kafka's default, and asks for more than this broker does anyway."""
    if name in GUARDS:  # other values of these are refused
        return False
    value = value.strip()
    default = KNOWN.get(name, ("", ""))[1]
    if not value or same(value, default):
        return False
    asks_nothing = ASKING_NOTHING.get(name)
    return asks_nothing is None or not asks_nothing(value)


def same(value: str, default: str) -> bool:
    if value.lower() == default.lower():
        return True
    try:
        return float(value) == float(default)
    except ValueError:
        return False


def at_most_one(value: str) -> bool:
    return value.isascii() and value.isdigit() and int(value) <= 1


def anything(value: str) -> bool:
    return True


def one_entry(value: str) -> bool:
    return "," not in value


def includes_broker(value: str) -> bool:
    return "broker" in [role.strip() for role in value.split(",")]


# Values other than the default with which Kafka runs on one machine, as its own server.properties has them: one copy of the data, one
# controller in the same process, and one thread to check logs.
ASKING_NOTHING: dict[str, Callable[[str], bool]] = {
    "controller.quorum.bootstrap.servers": one_entry,
    "controller.quorum.voters": one_entry,
    "inter.broker.listener.name": anything,
    "num.recovery.threads.per.data.dir": at_most_one,
    "process.roles": includes_broker,
    "share.coordinator.state.topic.min.isr": at_most_one,
    "share.coordinator.state.topic.replication.factor": at_most_one,
    "transaction.state.log.min.isr": at_most_one,
    "transaction.state.log.replication.factor": at_most_one,
}
