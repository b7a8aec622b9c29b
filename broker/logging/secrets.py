"""Keep the login of the servers of JetStream out of everything that is shown.

`StoreAddress` is the only form in which the broker passes on the setting `store`: its text has no login. Every login that this process is
given is noted (`note`), and `hide` removes it from log lines and from the messages of commands: a user may write it in the wrong place.
"""

from __future__ import annotations

import os
from typing import Final

from broker.backends.table import PREFIXES, Backend, backend_of

HIDDEN: Final = "***"
SHORTEST: Final = 4  # a shorter login is only removed where it stands before an @: as a part of other words it says nothing
SCHEME: Final = "://"
SCHEME_LETTERS_MAX: Final = 12
STORE_COMMANDS: Final = frozenset(("serve", "store", "health"))
STORE_OPTIONS: Final = ("--store", "--set", "--from", "--to")

_noted: list[str] = []  # texts that are never shown, the longest first


class StoreAddress:
    """The setting `store`: its text shows no login."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text
        note(text)

    def reveal(self) -> str:
        """The text with the login, for connections only."""
        return self._text

    @property
    def backend(self) -> Backend:
        return backend_of(self._text)

    def __bool__(self) -> bool:
        return bool(self._text)

    def __str__(self) -> str:
        return redacted(self._text)

    def __repr__(self) -> str:
        return repr(str(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoreAddress) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


def _split_scheme(text: str) -> tuple[str, str]:
    """`nats://` and what follows; "" and the text if it does not begin with a scheme."""
    name, separator, rest = text.partition(SCHEME)
    return (name + separator, rest) if separator and name.isalpha() and len(name) <= SCHEME_LETTERS_MAX else ("", text)


def redacted(text: str) -> str:
    """An address without what stands between its scheme, or its beginning, and its last @, and without a long port that is no number."""
    scheme, rest = _split_scheme(text)
    _, at, servers = rest.rpartition("@")
    shown = ",".join(_with_port(server) for server in servers.split(","))
    return f"{scheme}{HIDDEN}@{shown}" if at else scheme + shown


def _with_port(server: str) -> str:
    host, colon, port = server.rpartition(":")
    if not colon or server.endswith("]") or port.isdigit() or len(port) < SHORTEST or port.startswith("//"):
        return server
    return f"{host.partition(':')[0]}:{HIDDEN}"  # perhaps a user and a password, whose host is missing


def note(text: str) -> None:
    """Note what an address must not show: never show it from now on, wherever it stands."""
    rest = _split_scheme(text.strip())[1]
    before = rest.rpartition("@")[0]
    found = {before, f"{before}@"} if before else set()
    for server in rest.split(","):
        login, at, _ = server.rpartition("@")
        if login:
            login = _split_scheme(login.strip())[1]
            user, colon, password = login.partition(":")
            found |= {login, f"{login}@" if login else "", password if colon else user}
        elif not at and _with_port(server) != server:
            found |= {server.partition(":")[2]}
    note_secrets(found)


def note_secrets(found: set[str]) -> None:
    """Never show these texts from now on, however they are quoted."""
    if not found:
        return
    import json  # most processes note nothing, and these imports take time
    from urllib.parse import unquote

    spelled = {spelling for secret in found for plain in (secret, unquote(secret)) for spelling in (plain, repr(plain)[1:-1], json.dumps(plain)[1:-1])}
    _noted[:] = sorted({secret for secret in (*_noted, *spelled) if len(secret) >= SHORTEST or secret.endswith("@")}, key=len, reverse=True)


def note_words(words: list[str]) -> None:
    """Note every login in the words of a command line, wherever it stands."""
    about_store = not STORE_COMMANDS.isdisjoint(words)
    for before, word in zip(["", *words], words, strict=False):
        value = word.partition("=")[2]
        options = {before, word.partition("=")[0]}
        for text in (word, value, value.partition("=")[2]):
            if not ("=" in text.partition(SCHEME)[0] and SCHEME in text) and _may_be_login(text, options, about_store):
                note(text)


def _may_be_login(text: str, options: set[str], about_store: bool) -> bool:
    login, at, _ = text.rpartition("@")
    if SCHEME in text:
        return bool(at) or text.startswith(PREFIXES)
    if not about_store:
        return False
    if not at:
        return "--store" in options
    return ":" in login or (not options.isdisjoint(STORE_OPTIONS) and not os.path.exists(text))  # not a folder's name


def note_lines(text: str) -> None:
    """Note every login in the lines of a configuration file: an error in the file may show a part of a line."""
    for line in text.splitlines():
        name, separator, address = line.partition(SCHEME)
        if "@" in (address if separator else line):
            quotes = name.rpartition("=")[2] + separator + address if separator else line.partition("=")[2]
            note(quotes.strip(" \t\"'[],"))


def hide(text: str) -> str:
    """The text without the logins that were noted."""
    for secret in _noted:
        if secret in text:
            text = text.replace(secret, f"{HIDDEN}@" if secret.endswith("@") else HIDDEN)
    return text
