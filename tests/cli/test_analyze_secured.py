"""`tenure analyze` reads secured clusters: the file is named, and nothing of it is in the tables, the report or a message."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cli
from broker.logging import secrets
from pipeline.inputs import OFFSETS_TOPIC, Inputs
from pipeline.wire import LATEST, Client
from tests.pipeline.fake_cluster import commit_offsets
from tests.running import broker
from tests.secured.certificates import Certificates
from tests.secured.listeners import SecuredListener, server_context

USER, PASSWORD, WRONG = "alice", "hunter2-of-alice", "hunter2-wrong"


@pytest.fixture(autouse=True)
def noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_noted", [])
    monkeypatch.setattr("secured.probing.PROBE_SECONDS", 10.0)  # of a busy machine
    monkeypatch.delenv("TENURE_CLIENT_CONFIG", raising=False)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    with broker("--profile", "test", "--listen", "127.0.0.1:0", "--set", "offsets.topic.num.partitions=2") as started:
        commit_offsets(started.port, 0)
        yield f"127.0.0.1:{started.port}"


@pytest.fixture
def listener(served: str, certificates: Certificates) -> Iterator[SecuredListener]:
    """Its sessions end after a second: a run logs in several times."""
    with SecuredListener(served, server_context(certificates.broker), ("SCRAM-SHA-256",), {USER: PASSWORD}, lifetime_ms=1000) as opened:
        yield opened


def written(folder: Path, *lines: str) -> str:
    path = folder / "client.properties"
    path.write_text("\n".join(lines))
    return str(path)


def login(certificates: Certificates, password: str = PASSWORD) -> list[str]:
    return ["security.protocol=SASL_SSL", f"ssl.ca.location={certificates.ca}", f"sasl.username={USER}", f"sasl.password={password}"]


def run(folder: Path, *more: str) -> list[str]:
    return ["analyze", "run", "--out", str(folder / "out"), "--master", "none", "--report", str(folder / "report.html"), *more]


def test_a_secured_cluster_is_read(
    listener: SecuredListener, certificates: Certificates, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_CLIENT_CONFIG", written(tmp_path, *login(certificates)))
    code = cli.main(run(tmp_path, "--offsets", f"kafka://{listener.address}"))
    out, err = capsys.readouterr()
    assert code == 0, err
    assert "groups: 3" in out
    assert set(listener.logins) == {USER}
    shown = [out, err, *(str(path.read_bytes()) for path in (tmp_path / "out").rglob("*") if path.is_file()), (tmp_path / "report.html").read_text()]
    assert not [text for text in shown if PASSWORD in text or "client.properties" in text]


def test_only_the_path_of_the_file_travels(certificates: Certificates, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="needs PySpark, which make setup-analyze installs")
    from pipeline.block_stream import inputs_from, options_of

    inputs = Inputs.of(["kafka://a"], config=written(tmp_path, *login(certificates)))
    options = options_of(inputs, 1, {}, ends=True)
    assert PASSWORD not in str(options)
    assert json.loads(options["inputs"])["config"] == str(tmp_path / "client.properties")
    assert inputs_from(options["inputs"]) == inputs


def test_a_login_that_ends_is_renewed(listener: SecuredListener, certificates: Certificates, tmp_path: Path) -> None:
    with Client(f"kafka://{listener.address}", config=written(tmp_path, *login(certificates))) as client:
        client.logs((OFFSETS_TOPIC,))
        until = time.monotonic() + 6
        while time.monotonic() < until:
            client.offset(OFFSETS_TOPIC, 0, LATEST)
            time.sleep(0.1)
    assert listener.overdue == 0
    assert len(listener.logins) >= 3


WRONG_SETTINGS: dict[str, tuple[str, int, str]] = {
    "password": ("login", 77, "{at} refuses the login: wrong user or password for alice: check sasl.username in {file}"),
    "authority": ("security.protocol=SASL_SSL\nssl.ca.location={other_ca}\nsasl.username=a\nsasl.password={wrong}", 69, "{at} has a certificate that is not trusted by {other_ca}"),
    "no TLS": ("security.protocol=SASL_PLAINTEXT\nsasl.username=a\nsasl.password={wrong}", 69, "{at} wants TLS: name a file with"),
    "no file": ("", 69, "{at} wants TLS: name a file with"),
    "no login": ("security.protocol=SSL\nssl.ca.location={ca}", 69, "{at} wants a login (SCRAM-SHA-256): name a file with"),
    "mechanism": ("security.protocol=SASL_SSL\nssl.ca.location={ca}\nsasl.mechanism=PLAIN\nsasl.username=a\nsasl.password={wrong}", 69, "{at} offers SCRAM-SHA-256, not PLAIN"),
    "name": ("security.protocol=SASL_SSL\nsasl.pasword={wrong}", 78, "{file}: line 2: there is no setting sasl.pasword: did you mean sasl.password?"),
}


@pytest.mark.parametrize("kind", WRONG_SETTINGS)
def test_wrong_settings_are_one_line_at_once(
    listener: SecuredListener, certificates: Certificates, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    text, code, line = WRONG_SETTINGS[kind]
    known: dict[str, Any] = {
        "{at}": listener.address,
        "{file}": tmp_path / "client.properties",
        "{ca}": certificates.ca,
        "{other_ca}": certificates.other_ca,
        "{wrong}": WRONG,
    }
    text = "\n".join(login(certificates, WRONG)) if text == "login" else text
    for name, value in known.items():
        text, line = text.replace(name, str(value)), line.replace(name, str(value))
    options = ["--config", written(tmp_path, text)] if text else []
    assert cli.main(run(tmp_path, "--offsets", f"kafka://{listener.address}", *options)) == code
    out, err = capsys.readouterr()
    last = err.splitlines()[-1]
    assert last.startswith(f"tenure: {line}"), err
    assert WRONG not in out + err
    assert not (tmp_path / "out").exists()


def test_a_tls_client_at_a_plain_listener_is_told_so(served: str, certificates: Certificates, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = written(tmp_path, "security.protocol=SSL", f"ssl.ca.location={certificates.ca}")
    assert cli.main(run(tmp_path, "--offsets", f"kafka://{served}", "--config", config)) == 69
    assert f"tenure: {served} does not speak TLS: set security.protocol=PLAINTEXT" in capsys.readouterr().err
