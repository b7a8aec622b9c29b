"""The login of the servers of JetStream is in no output, wherever the user wrote it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from broker.logging import secrets
from broker.settings.load import ConfigError, load_config
from broker.settings.servers import Servers, parse_servers, servers_of
from cli import main

SECRET = "hunter2pw"
URL = f"nats://user:{SECRET}@127.0.0.1:1"
NODE = ("--node-id", "1")


@pytest.fixture(autouse=True)
def noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins and ends without noted logins."""
    monkeypatch.setattr(secrets, "_noted", [])
    for name in [name for name in os.environ if name.startswith("TENURE_")]:
        monkeypatch.delenv(name)


# Addresses that `store` refuses, or that need a node.id.
WRONG_ADDRESSES = [
    f"nats://user:{SECRET}@",
    f"nats://user:{SECRET}@,",
    f"nats://user:{SECRET}@host:x",
    f"nats://user:{SECRET}@host:99999",
    f"nats://user:{SECRET}@host:1:2",
    f"nats://user:{SECRET}@host/path",
    f"nats://user:{SECRET}@host?query",
    f"nats://user:{SECRET}@@host:x",
    f"nats://user:p@{SECRET}@host:x",
    f"nats://user:{SECRET}/x@host",
    f"nats://user:{SECRET}#x@host",
    f"nats://user:{SECRET},x@host:y",
    f"nats://user:x,{SECRET}@host:y",
    f"nats://user:{SECRET}%zz@host:x",
    f"nats://user:%68unter2pw{SECRET}@host:x",
    f"nats://{SECRET}@host:x",
    f"nats://user:{SECRET}@a,user:{SECRET}@b:x",
    f"nats://user:{SECRET}@a,b,c:x",
    f"nats://user:{SECRET}",
    f"nats://user:{SECRET}%40host",
    f"nats:/user:{SECRET}@host",
    f"nats//user:{SECRET}@host",
    f"http://user:{SECRET}@host",
    f"user:{SECRET}@host",
    f"{SECRET}@host",
    f"nats://user:{SECRET} @host",
    f"nats://user:{SECRET}@[::1",
    f"nats://user:{SECRET}@host nonsense",
    URL,
]
COMMANDS = [
    ["serve", URL],
    ["serve", "--store"],
    ["serve", "--store", URL, "nonsense"],
    ["serve", "--store", URL, "--nonsense", "x"],
    ["serve", "--store", URL, f"--nonsense={URL}"],
    ["serve", "--store", URL, "--store", f"nats://user:{SECRET}@b:x", *NODE],
    ["serve", "--store", URL, "--set", f"store=nats://user:{SECRET}@b", *NODE],
    ["serve", "--stroe", URL],
    ["serve", "--set", URL],
    ["serve", "--set", f"stroe={URL}"],
    ["serve", "--set", f"stroe=user:{SECRET}@host"],
    ["serve", "--set", f"={URL}"],
    ["serve", "--set", f"store.replicas={URL}", "--store", URL, *NODE],
    ["serve", "--config", URL],
    ["serve", "--profile", URL],
    ["serve", "--node-id", URL],
    ["serve", "--listen", URL],
    ["serve", "--cluster", URL, "--store", URL, *NODE],
    ["serve", "--store", URL, *NODE, "--cluster", "a b"],
    ["serve", "--store", URL, "--nodes", "3", *NODE],
    ["store", "export", "--from", URL],
    ["store", "export", "--from", URL, "--to", URL],
    ["store", "export", "--from", f"user:{SECRET}@host", "--to", "x"],
    ["store", "export", "--from", f"nats://user:{SECRET}@host:x", "--to", "x"],
    ["store", "export", "--from", URL, "--to", "x", "--set", "store.replicas=0"],
    ["store", "export", "--from", URL, "--to", "x", "--cluster", "a b"],
    ["store", "export", "--from", URL, "--to", "x", "--json"],
    ["store", "import", "--from", URL, "--to", "x"],
    ["store", "import", "--from", "x", "--to", f"user:{SECRET}@host"],
    ["store", "import", "--from", "x", "--to", URL],
    ["store", "import", "--from", "x", "--to", URL, "--json"],
    ["store", "exprt", "--from", URL],
    ["store", URL],
    ["health", URL],
    ["health", f"user:{SECRET}@127.0.0.1:1"],
    ["health", "--config", URL],
    ["topic", "list", "--bootstrap", URL],
    ["--bootstrap", URL, "topic", "list"],
    [URL],
]


def check_hidden(capfd: pytest.CaptureFixture[str], arguments: list[str]) -> str:
    code = main(arguments)
    out, err = capfd.readouterr()
    assert code != 0
    assert out or err
    assert SECRET not in out + err
    return out + err


@pytest.mark.parametrize("arguments", COMMANDS, ids=range(len(COMMANDS)))
def test_no_command_shows_it(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    check_hidden(capfd, arguments)


@pytest.mark.parametrize("address", WRONG_ADDRESSES)
@pytest.mark.parametrize("where", ["flag", "flag with =", "setting", "environment", "toml", "toml list", "properties", "another name", "import"])
def test_no_source_of_settings_shows_it(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str, address: str) -> None:
    files = {
        "toml": ("store.toml", f"store = '{address}'"),
        "toml list": ("store.toml", f"store = ['{address}', 'b']"),
        "properties": ("store.properties", f"store={address}"),
    }
    arguments = {
        "flag": ["serve", "--store", address],
        "flag with =": ["serve", f"--store={address}"],
        "setting": ["serve", "--set", f"store={address}"],
        "another name": ["serve", "--set", f"stroe={address}"],
        "import": ["store", "import", "--from", "nowhere", "--to", address],
    }.get(where, ["serve"])
    if where == "environment":
        monkeypatch.setenv("TENURE_STORE", address)
    elif where in files:
        name, text = files[where]
        (tmp_path / name).write_text(text)
        arguments += ["--config", str(tmp_path / name)]
    check_hidden(capfd, arguments)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.toml", f'store = "{URL}'),
        ("a.toml", f"store = {URL}"),
        ("a.toml", f'[store]\n"{URL}" = 1'),
        ("a.toml", f'["{URL}"]\nstore = 1'),
        ("a.toml", f'[store.x]\ny = "{URL}"'),
        ("a.properties", f"store={URL}\\uZZZZ"),
        ("a.properties", f"store:{URL}"),
        ("a.properties", f"{URL}"),
        ("a.properties", f"stroe {URL}"),
    ],
)
def test_no_wrong_configuration_file_shows_it(capfd: pytest.CaptureFixture[str], tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    check_hidden(capfd, ["serve", "--config", str(tmp_path / name)])


def test_a_traceback_does_not_show_it(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setenv("TENURE_DEBUG", "1")
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    try:
        main(["serve", URL])
    except Exception:
        sys.excepthook(*sys.exc_info())
    err = capfd.readouterr().err
    assert "one word too many" in err
    assert SECRET not in err


def test_neither_the_settings_nor_the_servers_show_it() -> None:
    config = load_config(settings=[f"store={URL}", "node.id=1"])
    servers = servers_of(config)
    shown = f"{config} {config!r} {config.given} {config.differences} {servers} {servers!r} {config.store} {config.store!r}"
    assert SECRET not in shown
    assert "nats://***@127.0.0.1:1" in shown
    assert servers.login() == {"user": "user", "pass": SECRET}


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (f"nats://user:{SECRET}@a:1,b:2", "nats://***@a:1,b:2"),
        ("nats://a:1,b:2", "nats://a:1,b:2"),
        ("tls://[::1]:4222,[::1]", "tls://[::1]:4222,[::1]"),
        ("nats://a:1,nats://b:2", "nats://a:1,nats://b:2"),
        (f"nats://u:{SECRET}@a,u:{SECRET}@b", "nats://***@b"),
        (f"nats://u:{SECRET}", "nats://u:***"),
        ("nats://u:p@a", "nats://***@a"),
    ],
)
def test_what_is_shown_of_an_address(address: str, shown: str) -> None:
    assert secrets.redacted(address) == shown
    secrets.note(address)
    assert secrets.hide(f"it is {address}!").count(SECRET) == 0


def test_names_that_are_no_login_stay_as_they_are(tmp_path: Path) -> None:
    secrets.note_words(["group", "describe", "team:orders@eu"])
    secrets.note_words(["consume", "orders", "--from", "a@b"])
    secrets.note_words(["serve", "--listen", "A://127.0.0.1:9092-9095", "--advertise", "10.0.0.1:9092-9095"])
    (tmp_path / "backup@monday").mkdir()
    secrets.note_words(["store", "export", "--from", f"{tmp_path}/backup@monday", "--to", "x"])
    secrets.note("nats://10.0.0.1:4222,10.0.0.2")
    secrets.note("nats://@10.0.0.1:4222")
    assert secrets._noted == []


# The file with the login.


def credentials(path: Path, text: str, mode: int = 0o600) -> str:
    path.write_text(text)
    path.chmod(mode)
    return f"store.credentials.location={path}"


@pytest.mark.parametrize(("text", "login"), [(f"me:{SECRET}:x@\n", {"user": "me", "pass": f"{SECRET}:x@"}), (SECRET, {"auth_token": SECRET})])
def test_the_login_comes_from_a_file(tmp_path: Path, text: str, login: dict[str, str]) -> None:
    config = load_config(settings=["store=nats://a", "node.id=1", credentials(tmp_path / "login", text)])
    assert servers_of(config).login() == login
    assert config.notices == ()
    assert SECRET not in str(config)
    secret = login.get("pass") or login["auth_token"]
    assert secrets.hide(f"refused: {secret}").removesuffix("@") == "refused: ***"


def test_a_file_that_every_user_can_read_is_noticed(tmp_path: Path) -> None:
    config = load_config(settings=["store=nats://a", "node.id=1", credentials(tmp_path / "login", "a:b", 0o644)])
    (notice,) = config.notices
    assert "can be read by every user of this machine" in notice.event


@pytest.mark.parametrize(
    ("text", "store", "reason"),
    [
        ("", "nats://a", "must have one line"),
        (f"a:{SECRET}\nb:{SECRET}", "nats://a", "must have one line"),
        (f"a:{SECRET}", URL, "store has a login, too"),
        (f"a:{SECRET}" + "x" * 5_000, "nats://a", "must have one line"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, text: str, store: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        load_config(settings=[f"store={store}", "node.id=1", credentials(tmp_path / "login", text)])
    assert SECRET not in str(refused.value)


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_config(settings=["store=nats://a", "node.id=1", f"store.credentials.location={tmp_path}/none"])


def test_servers_are_parsed_as_before() -> None:
    assert parse_servers("tls://u:p%40@a,b:1", "ca") == Servers((("a", 4222), ("b", 1)), "u", "p@", True, "ca")
