"""Load one frozen Config from the command line, the environment, a TOML file and a profile.

All problems are reported at once, each with its value, the limit and its source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from broker.backends.table import Backend, load
from broker.logging.secrets import StoreAddress, hide
from broker.runtime.start import ExitCode
from broker.settings import listeners as listener_settings
from broker.settings.config import POLICY_DEFAULTS, POLICY_PREFIX, SETTINGS, TEMPORARY_PROFILES, UNITS, Config, Difference, Notice
from broker.settings.endpoints import normal_address
from broker.settings.listeners import Listener
from broker.settings.setting import Setting, Value, format_setting
from broker.settings.sources import CollectedSettings, as_text, collect
from coordinator.policies.door import value_problem

MS_PER_UNIT = {"ms": 1, "minutes": 60_000, "hours": 3_600_000}


class ConfigError(Exception):
    """The configuration is refused; `problems` has one line for each problem."""

    code = ExitCode.CONFIG

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = [hide(problem) for problem in problems]
        super().__init__("; ".join(self.problems))


def load_config(
    *,
    config_file: str | None = None,
    listen: Sequence[str] = (),
    advertise: Sequence[str] = (),
    data: Sequence[str] = (),
    profile: str | None = None,
    settings: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    other_flags: Mapping[str, str] | None = None,
) -> Config:
    """Read all sources; without `environ` environment variables are ignored. Raises ConfigError with every problem.

    `other_flags`: the values of flags that cannot be repeated, by the names in `FLAGS`.
    """
    collected = collect(config_file, listen, advertise, data, profile, settings, environ or {}, other_flags or {})
    return build(collected)


def build(collected: CollectedSettings) -> Config:
    """Parse the settings of all sources and check them against each other."""
    values = {setting.name: parse_or_default(collected, setting) for setting in SETTINGS}
    listeners = combine_listeners(collected, values)
    overrides = parse_overrides(collected, values["max.connections.per.ip.overrides"])
    temporary = collected.profile in TEMPORARY_PROFILES and "log.dirs" not in collected.given
    directory = only_directory(collected, values["log.dirs"])
    apply_coarser_units(collected, values)
    values["store"] = values["store"] or StoreAddress("")
    backend = values["store"].backend
    values |= {name: default for name, default in backend.defaults.items() if name not in collected.given}
    cross_check(collected, values, backend)
    if collected.problems:
        raise ConfigError(collected.problems)
    fields: dict[str, Any] = {setting.field: values[setting.name] for setting in SETTINGS if not setting.name.startswith(POLICY_PREFIX)}
    fields |= {"listeners": listeners, "max_connections_per_ip_overrides": overrides}
    return Config(
        **fields,
        group_policies={name: values[POLICY_PREFIX + name] for name in POLICY_DEFAULTS},
        data_directory="" if temporary else directory,
        temporary_data=temporary,
        profile=collected.profile,
        given={name: hide(as_text(given.value)) for name, given in (collected.given | collected.without_effect).items()},
        differences=differences(collected, values),
        notices=(*collected.notices, *exposure_notices(listeners)),
    )


def parse_or_default(collected: CollectedSettings, setting: Setting) -> Any:
    """The value of a setting; its default if the user's value is wrong, so that checking can continue."""
    given = collected.given.get(setting.name)
    if given is None:
        return setting.default
    if isinstance(given.value, StoreAddress):
        return given.value
    try:
        return parse_value(setting, given.value)
    except ValueError as error:
        collected.add_problem(given, str(error))
        return setting.default


def parse_value(setting: Setting, value: object) -> Value:
    """Parse a value given as text (command line, environment) or as a TOML type; raises ValueError with the limit."""
    match setting.kind:
        case "boolean":
            return parse_boolean(value)
        case "int" | "long":
            return parse_number(setting, value)
        case "double":
            return parse_fraction(setting, value)
        case "string":
            if not isinstance(value, str):
                raise ValueError("must be text in quotes")
            if setting.choices and value not in setting.choices:
                raise ValueError(f"must be one of {', '.join(setting.choices)}")
            return value
    entries = parse_list(value)
    if setting.choices and not set(entries) <= set(setting.choices):
        raise ValueError(f"must contain only {', '.join(setting.choices)}")
    return entries


def parse_boolean(value: object) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def parse_number(setting: Setting, value: object) -> int:
    limit = f"must be a whole number from {setting.low} to {setting.high}"
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and value.isascii() and len(value) <= 20:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not setting.low <= value <= setting.high:
        raise ValueError(limit)
    return value


def parse_fraction(setting: Setting, value: object) -> float:
    limit = f"must be a number from {setting.low} to {setting.high}"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(limit)
    try:
        number = float(value)
    except ValueError:
        raise ValueError(limit) from None
    if not setting.low <= number <= setting.high:
        raise ValueError(limit)
    return number


def parse_list(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = value.split(",") if value.strip() else []
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise ValueError("must be a list of texts, or one text with commas")
    entries = tuple(entry.strip() for entry in value)
    if not all(entries):
        raise ValueError("has an empty entry")
    return entries


def combine_listeners(collected: CollectedSettings, values: Mapping[str, Any]) -> tuple[Listener, ...]:
    """Combine listeners, advertised.listeners, the protocol map and Kafka's controller listeners."""
    protocols, problems = listener_settings.parse_protocols(values["listener.security.protocol.map"])
    bare_names = ["PLAINTEXT"] if collected.given_or_default("listeners").flag else []
    listen, wrong = listener_settings.parse_endpoints("listeners", values["listeners"], bare_names)
    listen, controllers = without_controllers(collected, listen, values["controller.listener.names"])
    problems += wrong
    names = [endpoint.name for endpoint in listen] or ["PLAINTEXT"]
    bare_names = names if collected.given_or_default("advertised.listeners").flag else []
    advertised, wrong_advertised = listener_settings.parse_endpoints("advertised.listeners", values["advertised.listeners"], bare_names)
    advertised = [endpoint for endpoint in advertised if endpoint.name not in controllers]
    problems += wrong_advertised
    listeners: tuple[Listener, ...] = ()
    if not wrong:
        problems += listener_settings.check_protocols(listen, protocols)
        problems += listener_settings.check_ports(listen)
        if not listen and "listeners" not in collected.faulty:
            problems.append(listener_settings.Problem("listeners", "there is nothing to listen on"))
    if not wrong and not wrong_advertised and "advertised.listeners" not in collected.faulty:
        listeners, unresolved = listener_settings.resolve_listeners(listen, advertised, advertise_hint(collected))
        problems += unresolved
    for setting, reason in problems:
        collected.add_problem(collected.given_or_default(setting), reason)
    return listeners


def without_controllers(
    collected: CollectedSettings, listen: list[listener_settings.Endpoint], names: Sequence[str]
) -> tuple[list[listener_settings.Endpoint], set[str]]:
    """Drop the listeners that are reserved for Kafka's controllers; returns the others, and the dropped names."""
    controllers = {name.upper() for name in names}
    for endpoint in listen:
        if endpoint.name in controllers:
            collected.notices.append(
                Notice("listener of a controller is not opened", {"listener": str(endpoint)}, "debug")
            )
    return [endpoint for endpoint in listen if endpoint.name not in controllers], controllers


def advertise_hint(collected: CollectedSettings) -> str:
    """How to set advertised.listeners in the source that set `listeners`; {} is replaced by the value."""
    match collected.given_or_default("listeners").source.partition(" ")[0]:
        case "environment":
            return "TENURE_ADVERTISED_LISTENERS={}"
        case "file":
            return 'advertised_listeners = "{}"'
    return "--advertise {}"


def parse_overrides(collected: CollectedSettings, entries: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Parse ADDRESS:COUNT entries; addresses are normalized to what sockets report."""
    overrides: dict[str, int] = {}
    for entry in entries:
        address, _, count = entry.rpartition(":")
        normal = normal_address(address.removeprefix("[").removesuffix("]"))
        if normal is None or not (count.isascii() and count.isdecimal() and int(count) <= 2**31 - 1):
            reason = f"{entry!r} is not ADDRESS:COUNT with an IP address and a count of 0 to {2**31 - 1}"
            collected.add_problem(collected.given_or_default("max.connections.per.ip.overrides"), reason)
        elif normal in overrides:
            collected.add_problem(collected.given_or_default("max.connections.per.ip.overrides"), f"{normal} is named twice")
        else:
            overrides[normal] = int(count)
    return tuple(overrides.items())


def only_directory(collected: CollectedSettings, directories: Sequence[str]) -> str:
    if len(directories) == 1:
        return directories[0]
    origin = collected.given_or_default("log.dirs")
    if len(directories) > 1:
        collected.add_problem(origin, "one directory only: the broker does not spread data over several directories")
    elif "log.dirs" not in collected.faulty:
        collected.add_problem(origin, "must name a directory")
    return ""


def apply_coarser_units(collected: CollectedSettings, values: dict[str, Any]) -> None:
    """Use the finest unit that the user set, as Kafka does; a negative retention means no limit."""
    for names in UNITS:
        name = next((name for name in names if name in collected.given), names[0])
        if name.startswith("log.retention") and values[name] == 0:
            collected.add_problem(collected.given_or_default(name), "0 would keep no record: it must be -1 (no limit) or more than 0")
        values[names[0]] = max(values[name] * MS_PER_UNIT[name.rpartition(".")[2]], -1)


def cross_check(collected: CollectedSettings, values: Mapping[str, Any], backend: Backend) -> None:
    """Report settings that contradict each other, and wrong values of policies, store settings and cluster.id."""
    low, high = values["group.min.session.timeout.ms"], values["group.max.session.timeout.ms"]
    if low > high:
        least, most = collected.given_or_default("group.min.session.timeout.ms"), collected.given_or_default("group.max.session.timeout.ms")
        collected.add_problem(least, f"must not be above group.max.session.timeout.ms, which is {high} ({most.source})")
    least, most = values["log.cleaner.min.compaction.lag.ms"], values["log.cleaner.max.compaction.lag.ms"]
    if least > most:
        origin = collected.given_or_default("log.cleaner.min.compaction.lag.ms")
        collected.add_problem(origin, f"must not be above log.cleaner.max.compaction.lag.ms, which is {most}")
    check_consumer_groups(collected, values)
    if values["max.connections.per.ip"] == 0 and not values["max.connections.per.ip.overrides"]:
        reason = "0 closes every connection: it needs max.connections.per.ip.overrides for the addresses that may connect"
        collected.add_problem(collected.given_or_default("max.connections.per.ip"), reason)
    for name in POLICY_DEFAULTS:
        problem = value_problem(name, values[POLICY_PREFIX + name])
        if problem is not None:
            collected.add_problem(collected.given_or_default(POLICY_PREFIX + name), problem.partition(": ")[2])
    if backend.check_settings:
        load(backend.check_settings)(collected, values)
    elif "cluster.name" in collected.given and "store" not in collected.faulty:
        origin = collected.given_or_default("cluster.name")
        if origin.flag:
            collected.add_problem(origin, "only nodes over JetStream have a cluster name: give --store too, or leave it out")
        else:
            collected.notices.append(Notice("setting has no effect without store", origin.fields))
    cluster_id = values["cluster.id"]
    if len(cluster_id) > 64 or not (cluster_id.isascii() and cluster_id.isprintable()) or " " in cluster_id:
        collected.add_problem(collected.given_or_default("cluster.id"), "must be at most 64 printable ASCII characters without spaces")


def check_consumer_groups(collected: CollectedSettings, values: Mapping[str, Any]) -> None:
    """Report settings of groups of the consumer protocol that contradict each other."""
    for name in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"):
        low, high = values[f"group.consumer.min.{name}"], values[f"group.consumer.max.{name}"]
        value = values[f"group.consumer.{name}"]
        if low > high:
            collected.add_problem(collected.given_or_default(f"group.consumer.min.{name}"), f"must not be above group.consumer.max.{name}, which is {high}")
        elif not low <= value <= high:
            reason = f"must be from group.consumer.min.{name} to group.consumer.max.{name}, which are {low} and {high}"
            collected.add_problem(collected.given_or_default(f"group.consumer.{name}"), reason)
    session_ms = values["group.consumer.session.timeout.ms"]
    if values["group.consumer.heartbeat.interval.ms"] >= session_ms:
        origin = collected.given_or_default("group.consumer.heartbeat.interval.ms")
        collected.add_problem(origin, f"must be less than group.consumer.session.timeout.ms, which is {session_ms}")
    if not values["group.consumer.assignors"]:
        collected.add_problem(collected.given_or_default("group.consumer.assignors"), "must name an assignor")
    if "classic" not in values["group.coordinator.rebalance.protocols"]:
        collected.add_problem(collected.given_or_default("group.coordinator.rebalance.protocols"), "must have classic")


def differences(collected: CollectedSettings, values: Mapping[str, Any]) -> tuple[Difference, ...]:
    """The settings that differ from their default, in the order of the table."""
    return tuple(
        Difference(
            setting.name,
            hide(format_setting(values[setting.name])),
            format_setting(setting.default),
            collected.given[setting.name].source,
        )
        for setting in SETTINGS
        if setting.name in collected.given and values[setting.name] != setting.default
    )


def exposure_notices(listeners: Sequence[Listener]) -> list[Notice]:
    reachable = [f"{listener.name}://{listener.endpoint}" for listener in listeners if not listener.is_loopback]
    if not reachable:
        return []
    return [
        Notice(
            "listeners can be reached from other machines: every client that reaches the port may do everything",
            {"listeners": ", ".join(reachable)},
        )
    ]
