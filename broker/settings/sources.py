"""Collect settings from all sources; the command line overrides the environment, then the file, then the profile.

`CollectedSettings` has the value and source of each supported setting, and a line for every other name: unknown names, Kafka settings that are
refused because the broker cannot do what they require, and Kafka settings without effect here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from broker.logging.secrets import SCHEME, StoreAddress, hide, note, note_lines
from broker.settings.asking import asks_for_something
from broker.settings.config import ALIASES, FLAGS, POLICY_PREFIX, PROFILES, SUPPORTED, Notice
from broker.settings.kafka_names import KNOWN
from broker.settings.refused import GUARDED_PREFIXES, GUARDS, LISTENER_PREFIX, OPEN_ENDED_PREFIXES
from coordinator.policies.door import POLICIES

PREFIX = "TENURE_"
STORE = "store"
# Environment variables that are not settings: of this command, of client commands, and of tests.
NOT_SETTINGS = ("TENURE_CONFIG", "TENURE_PROFILE", "TENURE_BOOTSTRAP", "TENURE_CLIENT_CONFIG", "TENURE_DEBUG", "TENURE_TEST_TOKEN", "TENURE_CONTROL")
# Variables that Kubernetes sets for a service called tenure (or tenure-anything), and Docker for a linked container of that name.
# The patterns are text, compiled at first use: most starts do not need them.
INJECTED_VARIABLES = (
    r"TENURE_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR|START|END)|_PORT_(START|END))?)?|ENV_\w+|NAME)"
)
SECRET = r"password|secret|jaas|passphrase|credential|\.key$|keystore\.key|private"
PROPERTIES = ".properties"  # the ending of a file in Kafka's own syntax; any other file is TOML
SHOWN_CHARACTERS_MAX = 200

# Setting names by their spelling with underscores: TOML keys and environment variables cannot always contain dots.
NAMES = {name.replace(".", "_"): name for name in (*KNOWN, *SUPPORTED, *ALIASES)}


@dataclass(frozen=True, slots=True)
class Given:
    """One setting as the user wrote it."""

    name: str
    value: Any
    source: str
    flag: bool = False

    def __post_init__(self) -> None:
        """Here the address of the store enters the settings: from here on, only a connection reads its login."""
        if canonical_name(self.name) == STORE and not isinstance(self.value, StoreAddress):
            object.__setattr__(self, "value", StoreAddress(as_text(self.value)))
        elif isinstance(self.value, str) and "@" in self.value and SCHEME in self.value:
            note(self.value)  # an address under another name

    def __str__(self) -> str:
        value = shown_value(self.name, self.value)
        return f"{self.source} {value}" if self.flag else f"{shorten(self.name)}={value} ({self.source})"

    @property
    def fields(self) -> dict[str, str]:
        """As in a log line."""
        return {"setting": shorten(self.name), "value": shown_value(self.name, self.value), "source": self.source}


@dataclass(slots=True)
class CollectedSettings:
    """The settings that take effect, by canonical name, and problems and notices about all others."""

    profile: str = ""
    given: dict[str, Given] = field(default_factory=dict)
    without_effect: dict[str, Given] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    faulty: set[str] = field(default_factory=set)

    def add_problem(self, given: Given, reason: str) -> None:
        self.problems.append(f"{given}: {reason}")
        self.faulty.add(ALIASES.get(given.name, given.name))

    def given_or_default(self, name: str) -> Given:
        """The value with its source; the default for a setting that was not given."""
        return self.given.get(name) or Given(name, SUPPORTED[name].default, "default")


def collect(
    config_file: str | None,
    listen: Sequence[str],
    advertise: Sequence[str],
    data: Sequence[str],
    profile: str | None,
    settings: Sequence[str],
    environ: Mapping[str, str],
    other_flags: Mapping[str, str],
) -> CollectedSettings:
    """Read all sources; the first source that names a setting wins."""
    collected = CollectedSettings()
    flags = {"listen": listen, "advertise": advertise, "data": data} | {flag: [value] for flag, value in other_flags.items()}
    layers = (
        [*from_settings(collected, settings), *from_flags(collected, flags)],
        from_environment(collected, environ),
        from_file(collected, *(("--config", config_file) if config_file is not None else ("TENURE_CONFIG", environ.get("TENURE_CONFIG", "")))),
        from_profile(collected, *(("--profile", profile) if profile else ("TENURE_PROFILE", environ.get("TENURE_PROFILE", "")))),
    )
    effective: dict[str, Given] = {}
    for layer in layers:
        for name, given in check_layer(collected, layer).items():
            effective.setdefault(name, given)
    for name, given in effective.items():
        classify(collected, name, given)
    return collected


def from_settings(collected: CollectedSettings, settings: Sequence[str]) -> list[Given]:
    """Parse --set NAME=VALUE; the last value of a name wins, as is usual on a command line."""
    last: dict[str, Given] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        name = name.strip()
        if equals and name:
            last[with_dots(name)] = Given(with_dots(name), value.strip(), "--set")
        else:
            collected.problems.append(f"--set {shorten(text)}: write --set NAME=VALUE")
    return list(last.values())


def from_flags(collected: CollectedSettings, flags: Mapping[str, Sequence[str]]) -> list[Given]:
    given = []
    for flag, values in flags.items():
        if len(values) > 1:
            hint = f"; for several listeners write --set {FLAGS[flag]}=NAME://HOST:PORT,..." if flag != "data" else ""
            collected.problems.append(f"--{flag} is given {len(values)} times, once is the limit{hint}")
        given += [Given(FLAGS[flag], value, f"--{flag}", flag=True) for value in values[:1]]
    return given


def from_environment(collected: CollectedSettings, environ: Mapping[str, str]) -> list[Given]:
    given = []
    for variable, value in sorted(environ.items()):
        if not variable.startswith(PREFIX) or variable in NOT_SETTINGS:
            continue
        if "@" in value:
            note(value)
        written = variable.removeprefix(PREFIX).lower()
        name = canonical_name(written)
        if name is not None:
            given.append(Given(name, value.strip(), f"environment {variable}"))
        elif refusal(written.replace("_", ".")):
            given.append(Given(written.replace("_", "."), value, f"environment {variable}"))
        elif not (variable == variable.upper() and re.fullmatch(INJECTED_VARIABLES, variable)):
            shown = f"{shorten(variable)}={shown_value(written, value)} (environment)"
            report_unknown(collected, shown, written, lambda name: PREFIX + name.replace(".", "_").upper())
    return given


def from_file(collected: CollectedSettings, origin: str, path: str) -> list[Given]:
    if not path:
        if origin.startswith("--"):  # usually from an empty variable of a script; an empty TENURE_CONFIG counts as unset
            collected.problems.append(f"{origin} : must name a file")
        return []
    source = f"file {shorten(path)}"
    if path.endswith(PROPERTIES):
        return [Given(with_dots(name), value.strip(), source) for name, value in read_properties(collected, origin, path)]
    document = read_toml(collected, origin, path)
    given = []
    for key, value in document.items():
        if isinstance(value, dict):
            for name in map(shorten, leaves(key, value)):
                quoted = f'"{name}" = ...' if NAMES.get(name.replace(".", "_")) is None else f'"{name}" = ... or {name.replace(".", "_")} = ...'
                collected.problems.append(f"{name} ({source}): a name with dots needs quotes in TOML, which reads it as tables: write {quoted}")
        else:
            given.append(Given(with_dots(key), value.strip() if isinstance(value, str) else value, source))
    return given


def leaves(prefix: str, table: Mapping[str, Any]) -> Iterable[str]:
    """The dotted setting names that TOML read as tables."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from leaves(f"{prefix}.{key}", value)
        else:
            yield f"{prefix}.{key}"


def read_toml(collected: CollectedSettings, origin: str, path: str) -> dict[str, Any]:
    import tomllib  # its import takes 10 ms, which `tenure health` saves without a file

    try:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
        note_lines(text)
        return tomllib.loads(text)
    except OSError as error:
        collected.problems.append(f"{origin} {shorten(path)}: {error.strerror or error}")
    except UnicodeDecodeError:
        collected.problems.append(f"{origin} {shorten(path)}: not UTF-8 text")
    except tomllib.TOMLDecodeError as error:
        hint = '; text needs quotes: "name" = "text"' if "Invalid value" in str(error) else ""
        hint = '; names with dots need quotes: "max.connections" = 100' if "Cannot" in str(error) else hint
        hint += f"; a file in Kafka's own syntax needs a name that ends in {PROPERTIES}" if hint else ""
        collected.problems.append(f"{origin} {shorten(path)}: not TOML: {error}{hint}")
    return {}


def read_properties(collected: CollectedSettings, origin: str, path: str) -> list[tuple[str, str]]:
    from secured.properties import PropertiesError, parse_properties  # most starts have no such file

    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        note_lines(text)
        return parse_properties(text)
    except OSError as error:
        collected.problems.append(f"{origin} {shorten(path)}: {error.strerror or error}")
    except UnicodeDecodeError:
        collected.problems.append(f"{origin} {shorten(path)}: not UTF-8 text")
    except PropertiesError as wrong:
        collected.problems.append(f"{origin} {shorten(path)}: not in Java's properties format: {wrong}")
    return []


def from_profile(collected: CollectedSettings, origin: str, profile: str) -> list[Given]:
    if not profile:
        return []
    if profile not in PROFILES:
        collected.problems.append(f"{origin} {shorten(profile)}: there is no such profile; profiles: {', '.join(PROFILES)}")
        return []
    collected.profile = profile
    return [Given(name, value, f"profile {profile}") for name, value in PROFILES[profile].items()]


def check_layer(collected: CollectedSettings, layer: Sequence[Given]) -> dict[str, Given]:
    """One value per setting in a layer; unknown names are reported even if another layer overrides them."""
    chosen: dict[str, Given] = {}
    for given in layer:
        if given.name == "broker.id" and str(given.value) == "-1":
            continue  # Kafka's value for "not set"
        name = canonical_name(given.name) or (given.name if refusal(given.name) or is_open_ended(given.name) else None)
        if name is None:
            report_unknown(collected, str(given), given.name, str)
        elif name not in chosen:
            chosen[name] = given
        elif is_same_value(name, chosen[name], given):
            chosen[name] = given if given.flag else chosen[name]
        else:
            collected.problems.append(f"{given}: contradicts {chosen[name]}; set only one of them")
    return chosen


def is_same_value(name: str, first: Given, second: Given) -> bool:
    """Whether two sources set the same value: a flag may omit the name of the only listener."""
    if first.value == second.value:
        return True
    if name not in ("listeners", "advertised.listeners") or not (first.flag or second.flag):
        return False
    first_name, first_address = split_listener(first)
    second_name, second_address = split_listener(second)
    bare = "PLAINTEXT" if name == "listeners" else first_name or second_name
    return first_address == second_address and (first_name or bare) == (second_name or bare)


def split_listener(given: Given) -> tuple[str, str]:
    """The listener name ("" without one) and HOST:PORT."""
    before, separator, after = as_text(given.value).strip().rpartition("://")
    return before.upper() if separator else "", after


def classify(collected: CollectedSettings, name: str, given: Given) -> None:
    """Accept a setting, refuse it, or note that it has no effect."""
    if name in SUPPORTED:
        collected.given[name] = given
    elif reason := refusal(name):
        collected.add_problem(given, reason)
    elif name in GUARDS and not GUARDS[name].harmless(as_text(given.value)):
        collected.add_problem(given, GUARDS[name].reason)
    else:
        collected.without_effect[name] = given
        level = "warning" if asks_for_something(name, as_text(given.value)) else "debug"
        collected.notices.append(Notice("setting without effect", given.fields, level))


def refusal(name: str) -> str | None:
    """The reason to refuse this setting whatever its value, also after the prefix listener.name.NAME; None: it is not refused."""
    suffix = name.removeprefix(LISTENER_PREFIX).partition(".")[2] if name.startswith(LISTENER_PREFIX) else name
    for prefix, reason in GUARDED_PREFIXES.items():
        if suffix.startswith(prefix) or (suffix != name and f".{prefix}" in suffix):
            return reason
    if suffix != name and suffix in GUARDS:
        return GUARDS[suffix].reason
    return None


def is_open_ended(name: str) -> bool:
    """Whether the name is valid though no list has it: a plug-in's setting, or a Kafka setting after listener.name.NAME."""
    if name.startswith(LISTENER_PREFIX):
        return name.removeprefix(LISTENER_PREFIX).partition(".")[2] in KNOWN
    return name.startswith(OPEN_ENDED_PREFIXES)


def canonical_name(text: str) -> str | None:
    """The setting named with dots or underscores, aliases resolved; None for an unknown name."""
    name = NAMES.get(text.replace(".", "_"))
    return ALIASES.get(name, name) if name else None


def with_dots(text: str) -> str:
    """The name with dots for underscores; an alias stays an alias."""
    return NAMES.get(text.replace(".", "_"), text)


def report_unknown(collected: CollectedSettings, shown: str, written: str, spelling: Callable[[str], str]) -> None:
    """Add a problem with the nearest known name; `spelling` spells that name as the source does."""
    from difflib import get_close_matches

    dotted = written.replace("_", ".")
    if dotted.startswith(POLICY_PREFIX) and dotted.removeprefix(POLICY_PREFIX) in POLICIES:
        collected.problems.append(f"{shown}: the group policy {dotted.removeprefix(POLICY_PREFIX)} has no default; set it for each group (tenure group policy set)")
        return
    # The common prefix of all policies would make any two of them similar.
    prefix = POLICY_PREFIX if dotted.startswith(POLICY_PREFIX) else ""
    suffixes = [name.removeprefix(prefix) for name in NAMES.values() if name.startswith(prefix)]
    nearest = [FLAGS[dotted]] if dotted in FLAGS else [prefix + suffix for suffix in get_close_matches(dotted.removeprefix(prefix), suffixes, n=1)]
    hint = f"; did you mean {spelling(nearest[0])}?" if nearest else ""
    collected.problems.append(f"{shown}: there is no such setting{hint}")


def as_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def shown_value(name: str, value: object) -> str:
    if KNOWN.get(name, ("",))[0] == "PASSWORD" or (name not in SUPPORTED and re.search(SECRET, name)):
        return "(hidden)"
    return shorten(as_text(value))


def shorten(text: str) -> str:
    """Make the text a single line of limited length, without logins."""
    text = hide(text)
    shown = text if text.isprintable() else repr(text)
    return shown if len(shown) <= SHOWN_CHARACTERS_MAX else shown[:SHOWN_CHARACTERS_MAX] + "..."
