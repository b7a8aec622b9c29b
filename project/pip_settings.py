"""pip's settings of this machine, told to uv, which does not read them: where packages come from, and which certificates are trusted.

They are read here by pip's rules, as `pip config list` shows them, which takes pip longer than uv needs for everything. A setting that is
in neither table below may decide what is installed, so then pip itself has to do it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from configparser import Error, RawConfigParser
from pathlib import Path

SECTIONS = ("global", "install")  # that `pip install` reads; a later one wins

# Settings without a meaning for what is installed, or of which setup passes its own value.
WITHOUT_EFFECT = {
    *("break-system-packages", "cache-dir", "debug", "disable-pip-version-check", "exists-action", "log", "no-clean", "no-color", "no-compile"),
    *("no-input", "no-python-version-warning", "no-warn-conflicts", "no-warn-script-location", "only-binary", "prefer-binary", "prefix"),
    *("progress-bar", "quiet", "require-hashes", "require-virtualenv", "root", "root-user-action", "target", "upgrade-strategy", "use-feature"),
    *("use-pep517", "user", "verbose"),
}


NOT_SETTINGS = {"config-file", "help", "version"}  # names of variables


class OnlyPip(Exception):
    """A setting that only pip knows."""


def settings_of_pip(environment: Mapping[str, str], home: Path, system: str = sys.platform) -> dict[str, str]:
    """The settings of pip's files and variables, by name. Raise OnlyPip if a file cannot be read."""
    found: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for path in files(environment, home, system):
        parser = RawConfigParser()
        try:
            parser.read(path)
        except (Error, UnicodeDecodeError):
            raise OnlyPip(f"file {path}") from None
        for section in SECTIONS:
            if parser.has_section(section):
                found[section] |= {normal(name): value for name, value in parser.items(section)}
    variables = {normal(name.removeprefix("PIP_")): value for name, value in environment.items() if name.startswith("PIP_")}
    merged = {name: value for section in (*found.values(), variables) for name, value in section.items() if value}
    return {name: value for name, value in merged.items() if name not in NOT_SETTINGS}


def files(environment: Mapping[str, str], home: Path, system: str) -> Iterator[Path]:
    """Where pip looks for its files; a later one wins."""
    named = environment.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return
    if system == "darwin":
        yield Path("/Library/Application Support/pip/pip.conf")
    else:
        yield from (Path(folder) / "pip" / "pip.conf" for folder in reversed((environment.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")))
        yield Path("/etc/pip.conf")
    if not (named and Path(named).exists()):
        yield home / ".pip" / "pip.conf"
        own = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "pip"
        of_mac = home / "Library" / "Application Support" / "pip"
        yield (of_mac if system == "darwin" and of_mac.is_dir() else own) / "pip.conf"
    if named:
        yield Path(named)


def normal(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")


def for_uv(settings: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which uv acts by pip's settings. Raise OnlyPip if it cannot. uv's own variables of the user stay."""
    translated: dict[str, str] = {}
    for name, value in settings.items():
        if name in UV:
            translated |= UV[name](value)
        elif name not in WITHOUT_EFFECT:
            raise OnlyPip(name)
    own = {name: value for name, value in environment.items() if name not in REDIRECTING}
    if own.keys() & {"UV_DEFAULT_INDEX", "UV_INDEX_URL"}:
        translated.pop("UV_DEFAULT_INDEX", None)
    if "cert" not in settings:
        translated |= dict.fromkeys(SYSTEM_CERTIFICATES, "true")  # pip trusts those of the system too
    return own | {name: value for name, value in translated.items() if not (name.startswith("UV_") and name in own)}


# Variables of uv's that would install something else or elsewhere.
REDIRECTING = {
    *("UV_BREAK_SYSTEM_PACKAGES", "UV_BUILD_CONSTRAINT", "UV_COMPILE_BYTECODE", "UV_CONSTRAINT", "UV_EXCLUDE", "UV_EXCLUDE_NEWER", "UV_NO_BINARY"),
    *("UV_NO_BINARY_PACKAGE", "UV_NO_BUILD", "UV_NO_BUILD_PACKAGE", "UV_NO_VERIFY_HASHES", "UV_OFFLINE", "UV_OVERRIDE", "UV_PRERELEASE", "UV_PYTHON"),
    *("UV_REQUIRE_HASHES", "UV_RESOLUTION", "UV_SYSTEM_PYTHON", "UV_WORKING_DIR", "UV_PROJECT", "UV_TORCH_BACKEND"),
}
SYSTEM_CERTIFICATES = ("UV_SYSTEM_CERTS", "UV_NATIVE_TLS")  # its name now and before


def _same(variable: str) -> Callable[[str], dict[str, str]]:
    return lambda value: {variable: value}


def _switch(variable: str) -> Callable[[str], dict[str, str]]:
    return lambda value: {variable: "1"} if value.lower() in ("1", "true", "yes", "on", "t", "y") else {}


def _proxy(value: str) -> dict[str, str]:
    return {"ALL_PROXY": value, "HTTP_PROXY": value, "HTTPS_PROXY": value, "http_proxy": value, "https_proxy": value}


def _extra_indexes(value: str) -> dict[str, str]:
    """pip takes what any index has, uv by default what the first index with that name has; the hashes of the locks decide in both."""
    return {"UV_INDEX": " ".join(value.split()), "UV_INDEX_STRATEGY": "unsafe-best-match"}


def _find_links(value: str) -> dict[str, str]:
    """pip passes over a folder that does not exist, and uv stops."""
    return {"UV_FIND_LINKS": ",".join(present)} if (present := [place for place in value.split() if "://" in place or Path(place).exists()]) else {}


def _words(variable: str) -> Callable[[str], dict[str, str]]:
    return lambda value: {variable: " ".join(value.split())}


UV: dict[str, Callable[[str], dict[str, str]]] = {
    "cert": _same("SSL_CERT_FILE"),
    "client-cert": _same("SSL_CLIENT_CERT"),
    "default-timeout": _same("UV_HTTP_TIMEOUT"),
    "extra-index-url": _extra_indexes,
    "find-links": _find_links,
    "index-url": _same("UV_DEFAULT_INDEX"),
    "no-cache-dir": _switch("UV_NO_CACHE"),
    "no-index": _switch("UV_NO_INDEX"),
    "proxy": _proxy,
    "retries": _same("UV_HTTP_RETRIES"),
    "timeout": _same("UV_HTTP_TIMEOUT"),
    "trusted-host": _words("UV_INSECURE_HOST"),
}
