"""The settings for a secured cluster, from the options of a command."""

from __future__ import annotations

import argparse
import os
import stat
import sys

from broker.logging.secrets import note_secrets
from cli.arguments import CLIENT_CONFIG
from cli.failure import Exit, Failure
from secured.errors import AccessError, Cause
from secured.security import OPEN, Security

# The exit codes of a command that does not get into the cluster.
EXIT_CODES = {
    Cause.SETTINGS: Exit.CONFIG,
    Cause.LISTENER: Exit.UNREACHABLE,
    Cause.LOGIN: Exit.FORBIDDEN,
    Cause.TOKEN: Exit.FORBIDDEN,
    Cause.PROVIDER: Exit.UNREACHABLE,
}
PASSWORD_BYTES_MAX = 4096


def config_path(options: argparse.Namespace) -> str:
    """The file of client settings: from the command line, else from the environment; "": none."""
    given: str | None = getattr(options, "client_config", None)
    return os.environ.get(CLIENT_CONFIG, "").strip() if given is None else given


def security_of(options: argparse.Namespace) -> Security:
    """Read the file; its notes go to standard error, unless `options.silent`. Raises Failure."""
    path = config_path(options)
    user: str | None = getattr(options, "user", None)
    password_file: str | None = getattr(options, "password_file", None)
    check_options(options, path, user, password_file)
    if not path and user is None:
        return OPEN
    from secured.settings import load

    def ask() -> str:
        return password_in(password_file) if password_file is not None else asked_password(user or "")

    try:
        security = load(path, user, ask)
        if security.tls is not None:
            security.tls.context()  # finds what is wrong with keys and certificates
    except AccessError as error:
        raise failure_of_settings(error) from error
    note_secrets(set(security.secrets))
    if not getattr(options, "silent", False):
        for note in security.notes:
            warn(note)
    return security


def check_options(options: argparse.Namespace, path: str, user: str | None, password_file: str | None) -> None:
    if getattr(options, "client_config", None) == "":
        raise Failure(Exit.USAGE, "--config names no file")
    name, equals, _ = path.partition("=")
    if equals and "." in name and "/" not in name and not os.path.exists(path):
        raise Failure(Exit.USAGE, f"--config is a file with settings of the client, and {name}=... is a setting: write it into a file, or --set for a setting of a topic")
    if user == "":
        raise Failure(Exit.USAGE, "--user: the name is empty")
    if password_file is not None and user is None:
        raise Failure(Exit.USAGE, "--password-file needs --user NAME")


def exit_code_of(error: AccessError) -> Exit:
    return EXIT_CODES[error.cause]


def failure_of_settings(error: AccessError) -> Failure:
    return Failure(Exit.CONFIG, error.line, hint=error.remedy)


def warn(text: str) -> None:
    from broker.logging.secrets import hide
    from cli.shown import plain

    print(f"tenure: {hide(plain(text))}", file=sys.stderr, flush=True)


def password_in(path: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(PASSWORD_BYTES_MAX + 1)
            readable_by_all = os.fstat(file.fileno()).st_mode & stat.S_IROTH
    except OSError as error:
        # The name is not shown: it may be the password.
        raise Failure(Exit.CONFIG, f"--password-file: {(error.strerror or str(error)).lower()}; it names a file, which has the password in one line") from None
    try:
        password = data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        password = ""
    if not password or "\n" in password or len(data) > PASSWORD_BYTES_MAX:
        raise Failure(Exit.CONFIG, f"--password-file {path}: the file must have one line of text, the password")
    if readable_by_all:
        warn(f"{path} can be read by every user of this machine: chmod 600 {path}")
    return password


def asked_password(user: str) -> str:
    """The password as typed on the terminal of the process, wherever standard input comes from."""
    import getpass

    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        raise Failure(Exit.USAGE, "--user needs a terminal to ask for the password: add --password-file FILE") from None
    os.close(terminal)
    try:
        password = getpass.getpass(f"password of {user}: ")
    except EOFError:
        password = ""
    if not password:
        raise Failure(Exit.USAGE, "no password was given")
    return password
