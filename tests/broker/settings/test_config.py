from __future__ import annotations

import pytest

from broker.settings.config import ALIASES, PROFILES, SETTINGS, Notice
from broker.settings.kafka_names import KNOWN
from broker.settings.load import ConfigError, load_config, parse_value
from broker.settings.refused import GUARDED_PREFIXES, GUARDS
from coordinator.consumer.assignors import ASSIGNORS
from docs import configuration

# Settings whose type or default differs from Kafka's; config.py says why.
OTHER_DEFAULT = {
    "listeners",
    "listener.security.protocol.map",
    "node.id",
    "log.dirs",
    "socket.listen.backlog.size",
    # Kafka has no default for these settings, only for those in coarser units.
    "log.retention.ms",
    "log.retention.minutes",
    "log.roll.ms",
    "log.roll.jitter.ms",
}


def test_every_default_is_within_its_own_limits() -> None:
    for setting in SETTINGS:
        default = list(setting.default) if isinstance(setting.default, tuple) else setting.default
        assert parse_value(setting, default) == setting.default


def test_defaults_equal_kafkas_unless_documented() -> None:
    different = set()
    for setting in SETTINGS:
        if setting.name in KNOWN:
            default = ",".join(setting.default) if isinstance(setting.default, tuple) else str(setting.default)
            default = default.lower() if setting.kind == "boolean" else default
            if setting.name == "group.consumer.assignors":
                default = ",".join(assignor for assignor in default.split(",") if ASSIGNORS[assignor].class_name)  # one of our own is offered too
            if default != ("" if KNOWN[setting.name][1] == "-" else KNOWN[setting.name][1]):
                different.add(setting.name)
    assert different == OTHER_DEFAULT


def test_setting_types_equal_kafkas() -> None:
    kinds = {"BOOLEAN": "boolean", "INT": "int", "LONG": "long", "DOUBLE": "double", "LIST": "list", "STRING": "string"}
    wrong = {setting.name for setting in SETTINGS if setting.name in KNOWN and kinds[KNOWN[setting.name][0]] != setting.kind}
    assert wrong == {"listener.security.protocol.map", "max.connections.per.ip.overrides"}  # Kafka has them as strings with commas, we as lists


def test_no_setting_is_both_honoured_and_refused() -> None:
    honoured = {setting.name for setting in SETTINGS} | set(ALIASES)
    assert not honoured & set(GUARDS)
    assert not any(name.startswith(tuple(GUARDED_PREFIXES)) for name in honoured)
    assert set(GUARDS) <= set(KNOWN)
    assert set(ALIASES) <= set(KNOWN)


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_every_kafka_setting_is_honoured_refused_or_documented_without_effect(name: str) -> None:
    default = "" if KNOWN[name][1] == "-" else KNOWN[name][1]
    number = name in ("node.id", "broker.id", "process.roles") or (name in OTHER_DEFAULT and name.endswith((".ms", ".minutes")))
    value = "1" if number else default
    problems, notices = outcome(name, value)
    guarded = name.startswith(tuple(GUARDED_PREFIXES))
    if guarded or name in ("offsets.topic.replication.factor", "log.dirs"):  # Kafka's default is refused: 3 replicas, an empty list of directories
        assert len(problems) == 1
        assert name in problems[0]
        assert "no such setting" not in problems[0]
    else:
        assert not problems
        honoured = ALIASES.get(name, name) in {setting.name for setting in SETTINGS}
        assert honoured != any(notice.event == "setting without effect" and notice.fields["setting"] == name for notice in notices)


def outcome(name: str, value: str) -> tuple[list[str], tuple[Notice, ...]]:
    try:
        return [], load_config(settings=[f"{name}={value}"], advertise=["h:1"] if name == "listeners" else []).notices
    except ConfigError as refused:
        return refused.problems, ()


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_profiles_are_sound(profile: str) -> None:
    assert load_config(profile=profile).profile == profile


@pytest.mark.parametrize("name", sorted(name for name, guard in GUARDS.items() if guard.accepted != "empty"))
def test_settings_documented_as_harmless_are_accepted(name: str) -> None:
    documented = GUARDS[name].accepted
    kafka_default = "" if KNOWN[name][1] == "-" else KNOWN[name][1]
    assert load_config(settings=[f"{name}={kafka_default if documented.startswith('Kafka') else documented.strip('`')}"])


def test_the_page_about_settings_is_current() -> None:
    assert configuration.PAGE.read_text() == configuration.render(), "run python -m docs.configuration"
