"""The command and secured listeners: every protocol and mechanism, and each kind of wrong settings with its one line and exit code."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from ssl import SSLContext, TLSVersion
from typing import Any

import pytest

from broker.logging import secrets
from cli.completion_words import complete
from tests.cli.conftest import Tenure
from tests.cli.other_servers import OtherServer, keep_silent
from tests.cli.terminal import Terminal
from tests.running import environment
from tests.secured.certificates import PASSWORD as KEY_PASSWORD
from tests.secured.certificates import Certificates
from tests.secured.listeners import ALL, SecuredListener, server_context

USER, PASSWORD = "alice", "hunter2 pw\"'\\"
WRONG = "not-that-password"
JAAS = "org.apache.kafka.common.security.{}LoginModule required username=\"{}\" password=\"{}\";"


def jaas(module: str, password: str = PASSWORD, user: str = USER) -> str:
    """As in a file: a backslash is doubled for Java's properties, and before that for the quoted text."""
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    return JAAS.format(module, user, quoted).replace("\\", "\\\\")


@pytest.fixture(autouse=True)
def noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_noted", [])
    monkeypatch.setattr("secured.probing.PROBE_SECONDS", 10.0)  # of a busy machine
    for name in ("TENURE_CLIENT_CONFIG", "TENURE_BOOTSTRAP"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


class Listeners:
    """Listeners in front of the started broker, opened on demand."""

    def __init__(self, bootstrap: str, certificates: Certificates, stack: ExitStack) -> None:
        self._bootstrap, self._certificates, self._stack = bootstrap, certificates, stack

    def open(self, tls: SSLContext | None = None, **more: Any) -> SecuredListener:
        listener: SecuredListener = self._stack.enter_context(SecuredListener(self._bootstrap, tls, users={USER: PASSWORD}, **more))
        return listener

    def plain(self) -> SecuredListener:
        return self.open()

    def ssl(self, pair: str = "broker") -> SecuredListener:
        return self.open(server_context(getattr(self._certificates, pair)))

    def ssl_of(self, newest: TLSVersion) -> SecuredListener:
        return self.open(server_context(self._certificates.broker, newest=newest))

    def mutual(self, newest: TLSVersion | None = None) -> SecuredListener:
        return self.open(server_context(self._certificates.broker, self._certificates.ca, newest))

    def sasl_plaintext(self, *mechanisms: str, **more: Any) -> SecuredListener:
        return self.open(mechanisms=mechanisms or ALL, **more)

    def sasl_ssl(self, *mechanisms: str, **more: Any) -> SecuredListener:
        return self.open(server_context(self._certificates.broker), mechanisms=mechanisms or ALL, **more)


@pytest.fixture
def listeners(bootstrap: str, certificates: Certificates) -> Iterator[Listeners]:
    with ExitStack() as stack:
        yield Listeners(bootstrap, certificates, stack)


@pytest.fixture
def config(tmp_path: Path) -> Any:
    """Write a file of client settings; returns its path."""

    def write(*lines: str, name: str = "client.properties") -> str:
        path = tmp_path / name
        path.write_text("\n".join(lines))
        return str(path)

    return write


# Right settings


def ways(certificates: Certificates) -> dict[str, tuple[str, list[str]]]:
    ca, (chain, key) = certificates.ca, certificates.client
    trust = f"ssl.truststore.location={ca}"
    both = certificates.together("both.pem", certificates.client)
    locked = certificates.encrypted("locked.key", certificates.client)

    def inline(path: str) -> str:
        return Path(path).read_text().replace("\n", "\\\n")

    return {
        "SSL": ("ssl", ["security.protocol=SSL", trust, "ssl.truststore.type=PEM"]),
        "SSL of librdkafka": ("ssl", ["security.protocol=ssl", f"ssl.ca.location={ca}"]),
        "SSL, inline": ("ssl", ["security.protocol=SSL", f"ssl.truststore.certificates={inline(ca)}"]),
        "SSL, any host": ("elsewhere", ["security.protocol=SSL", trust, "ssl.endpoint.identification.algorithm="]),
        "SSL, not verified": ("expired", ["security.protocol=SSL", "enable.ssl.certificate.verification=false"]),
        "SSL, the certificate itself": ("ssl", ["security.protocol=SSL", f"ssl.truststore.location={certificates.broker[0]}"]),
        "SSL, versions": ("ssl", ["security.protocol=SSL", trust, "ssl.enabled.protocols=TLSv1.2", "ssl.cipher.suites=TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"]),
        "SSL, PKCS12": (
            "ssl",
            ["security.protocol=SSL", f"ssl.truststore.location={certificates.pkcs12('trust.p12', None)}", f"ssl.truststore.password={KEY_PASSWORD}"],
        ),
        "mutual": ("mutual", ["security.protocol=SSL", trust, f"ssl.keystore.location={both}", "ssl.keystore.type=PEM"]),
        "mutual, TLS 1.2": ("mutual12", ["security.protocol=SSL", trust, f"ssl.keystore.location={both}"]),
        "mutual of librdkafka": ("mutual", ["security.protocol=SSL", trust, f"ssl.certificate.location={chain}", f"ssl.key.location={key}"]),
        "mutual, encrypted": (
            "mutual",
            ["security.protocol=SSL", trust, f"ssl.certificate.location={chain}", f"ssl.key.location={locked}", f"ssl.key.password={KEY_PASSWORD}"],
        ),
        "mutual, inline": (
            "mutual",
            ["security.protocol=SSL", trust, f"ssl.keystore.key={inline(locked)}", f"ssl.keystore.certificate.chain={inline(chain)}", f"ssl.key.password={KEY_PASSWORD}"],
        ),
        "mutual, PKCS12": (
            "mutual",
            [
                *("security.protocol=SSL", trust, f"ssl.keystore.location={certificates.pkcs12('client.p12', certificates.client)}"),
                *(f"ssl.keystore.password={KEY_PASSWORD}", "ssl.keystore.type=PKCS12"),
            ],
        ),
        "SASL_SSL PLAIN": ("sasl_ssl", ["security.protocol=SASL_SSL", trust, "sasl.mechanism=PLAIN", f"sasl.jaas.config={jaas('plain.Plain')}"]),
        "SASL_SSL SCRAM-SHA-256": ("sasl_ssl", ["security.protocol=SASL_SSL", trust, "sasl.mechanism=SCRAM-SHA-256", f"sasl.jaas.config={jaas('scram.Scram')}"]),
        "SASL_SSL SCRAM-SHA-512": ("sasl_ssl", ["security.protocol=SASL_SSL", trust, "sasl.mechanism=SCRAM-SHA-512", f"sasl.jaas.config={jaas('scram.Scram')}"]),
        "SASL_SSL, the module's mechanism": ("sasl_ssl", ["security.protocol=SASL_SSL", trust, f"sasl.jaas.config={jaas('scram.Scram')}"]),
        "SASL_PLAINTEXT PLAIN": ("sasl_plaintext", ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", f"sasl.jaas.config={jaas('plain.Plain')}"]),
        "SASL_PLAINTEXT of librdkafka": (
            "sasl_plaintext",
            ["security.protocol=sasl_plaintext", "sasl.mechanisms=SCRAM-SHA-512", f"sasl.username={USER}", "sasl.password=hunter2 pw\"'\\\\"],
        ),
        "the offered mechanism": ("only_256", ["security.protocol=SASL_PLAINTEXT", f"sasl.username={USER}", "sasl.password=hunter2 pw\"'\\\\"]),
        "only PLAIN over TLS": ("only_plain", ["security.protocol=SASL_SSL", trust, f"sasl.username={USER}", "sasl.password=hunter2 pw\"'\\\\"]),
    }


WAYS = [
    *("SSL", "SSL of librdkafka", "SSL, inline", "SSL, any host", "SSL, not verified", "SSL, the certificate itself", "SSL, versions", "SSL, PKCS12"),
    *("mutual", "mutual, TLS 1.2", "mutual of librdkafka", "mutual, encrypted", "mutual, inline", "mutual, PKCS12", "SASL_SSL PLAIN"),
    *("SASL_SSL SCRAM-SHA-256", "SASL_SSL SCRAM-SHA-512", "SASL_SSL, the module's mechanism", "SASL_PLAINTEXT PLAIN"),
    *("SASL_PLAINTEXT of librdkafka", "the offered mechanism", "only PLAIN over TLS"),
]


def opened(listeners: Listeners, kind: str) -> SecuredListener:
    match kind:
        case "elsewhere" | "expired":
            return listeners.ssl(kind)
        case "mutual12":
            return listeners.mutual(TLSVersion.TLSv1_2)
        case "only_12":
            return listeners.ssl_of(TLSVersion.TLSv1_2)
        case "only_256":
            return listeners.sasl_plaintext("SCRAM-SHA-256", "PLAIN")
        case "only_plain":
            return listeners.sasl_ssl("PLAIN")
    listener: SecuredListener = getattr(listeners, kind)()
    return listener


def test_every_way_is_tried(certificates: Certificates) -> None:
    assert list(ways(certificates)) == WAYS


@pytest.mark.parametrize("way", WAYS)
def test_the_command_gets_in(listeners: Listeners, certificates: Certificates, config: Any, tenure: Tenure, topic: str, way: str) -> None:
    kind, lines = ways(certificates)[way]
    listener = opened(listeners, kind)
    result = tenure("topic", "describe", topic, "--config", config(*lines), "--bootstrap", listener.address, "--timeout", "20", "--json")
    assert (result.code, result.err) == (0, "")
    assert topic in result.out
    assert set(listener.logins) <= {USER}
    assert bool(listener.logins) == ("sasl" in kind or kind.startswith("only"))
    assert PASSWORD.encode() not in listener.seen or "PLAIN" in way


def test_the_file_comes_from_the_environment_too_and_names_the_brokers(
    listeners: Listeners, certificates: Certificates, config: Any, tenure: Tenure, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = listeners.ssl()
    path = config("security.protocol=SSL", f"ssl.ca.location={certificates.ca}", f"bootstrap.servers={listener.address}")
    monkeypatch.setenv("TENURE_CLIENT_CONFIG", path)
    assert tenure("cluster").code == 0
    monkeypatch.setenv("TENURE_BOOTSTRAP", "127.0.0.1:1")
    assert tenure("cluster").code == 69, "a variable for the address is nearer than a file that a variable names"
    assert tenure("cluster", "--command-config", path).code == 0, "the command line names this file"


def test_produce_and_consume_over_tls(listeners: Listeners, certificates: Certificates, config: Any, tenure: Tenure, topic: str, name: str) -> None:
    """Large replies come in many records of TLS."""
    listener = listeners.sasl_ssl()
    at = ("--config", config(*ways(certificates)["SASL_SSL SCRAM-SHA-512"][1]), "--bootstrap", listener.address, "--timeout", "60")
    lines = "".join(f"{number:06}{'x' * 1000}\n" for number in range(3000))
    sent = tenure("produce", topic, *at, stdin=lines)
    assert (sent.code, sent.err) == (0, "")
    read = tenure("consume", topic, "--from", "earliest", "--no-follow", *at)
    assert (read.code, sorted(read.out.splitlines(keepends=True))) == (0, lines.splitlines(keepends=True))
    grouped = tenure("consume", topic, "--group", name, "--from", "earliest", "--limit", "10", *at)
    assert (grouped.code, len(grouped.out.splitlines())) == (0, 10)


def test_a_login_that_ends_is_renewed_without_a_word(listeners: Listeners, certificates: Certificates, config: Any, tenure: Tenure, topic: str, name: str) -> None:
    listener = listeners.sasl_ssl(lifetime_ms=1000)
    at = ("--config", config(*ways(certificates)["SASL_SSL SCRAM-SHA-256"][1]), "--bootstrap", listener.address, "--timeout", "20")
    followed = tenure("consume", topic, "--idle", "7", *at)
    assert (followed.code, followed.err) == (0, "")
    before = len(listener.logins)
    assert before >= 4, "the connection for fetches and the one for metadata, each renewed"
    member = tenure("consume", topic, "--group", name, "--idle", "7", "--session-timeout", "6", *at)
    assert (member.code, member.err) == (0, "")
    assert listener.overdue == 0
    assert len(listener.logins) > before + 4


# Users


def test_a_user_logs_in_with_the_password_of_a_file(listeners: Listeners, certificates: Certificates, config: Any, tenure: Tenure) -> None:
    listener = listeners.sasl_ssl()
    password = Path(config(f"{PASSWORD}\n", name="password"))
    password.chmod(0o600)
    trusted = config("security.protocol=SASL_SSL", f"ssl.ca.location={certificates.ca}")
    result = tenure("cluster", "--config", trusted, "--user", USER, "--password-file", str(password), "--bootstrap", listener.address)
    assert (result.code, result.err, listener.logins[:1]) == (0, "", [USER])
    password.chmod(0o644)
    result = tenure("cluster", "--config", trusted, "--user", USER, "--password-file", str(password), "--bootstrap", listener.address)
    assert (result.code, result.err) == (0, f"tenure: {password} can be read by every user of this machine: chmod 600 {password}\n")


def test_a_user_without_a_file_never_sends_the_password_in_clear_text(listeners: Listeners, config: Any, tenure: Tenure) -> None:
    listener = listeners.sasl_plaintext()
    password = config(PASSWORD, name="password")
    Path(password).chmod(0o600)
    result = tenure("cluster", "--user", USER, "--password-file", password, "--bootstrap", listener.address, "--timeout", "10")
    assert (result.code, result.out) == (69, "")
    assert result.err == f"tenure: {listener.address} does not speak TLS: set security.protocol=PLAINTEXT, or SASL_PLAINTEXT for a login\n"
    assert listener.logins == []
    assert PASSWORD.encode() not in listener.seen


def test_without_a_mechanism_plain_is_not_chosen_in_clear_text(listeners: Listeners, config: Any, tenure: Tenure) -> None:
    listener = listeners.sasl_plaintext("PLAIN")
    file = config("security.protocol=SASL_PLAINTEXT", f"sasl.username={USER}", "sasl.password=hunter2")
    result = tenure("cluster", "--config", file, "--bootstrap", listener.address)
    assert (result.code, result.err) == (69, f"tenure: {listener.address} offers PLAIN, not SCRAM: set sasl.mechanism=PLAIN\n")
    assert b"hunter2" not in listener.seen


@pytest.mark.parametrize(
    ("options", "code", "line"),
    [
        (["--user", "a"], 64, "--user needs a terminal to ask for the password: add --password-file FILE"),
        (["--user", ""], 64, "--user: the name is empty"),
        (["--password-file", "x"], 64, "--password-file needs --user NAME"),
        (["--user", "a", "--password-file", "/nowhere/password"], 78, "--password-file: no such file or directory; it names a file, which has the password in one line"),
        (["--user", "a", "--password-file", "/dev/null"], 78, "--password-file /dev/null: the file must have one line of text, the password"),
        (["--config", ""], 64, "--config names no file"),
        (["--config", "retention.ms=1000"], 64, "--config is a file with settings of the client, and retention.ms=... is a setting: write it into a file, or --set"),
    ],
)
def test_options_that_cannot_be(tenure: Tenure, monkeypatch: pytest.MonkeyPatch, options: list[str], code: int, line: str) -> None:
    real_open = os.open

    def no_terminal(path: Any, *arguments: Any, **more: Any) -> int:
        if path == "/dev/tty":
            raise OSError(6, "No such device or address", path)
        return real_open(path, *arguments, **more)

    monkeypatch.setattr(os, "open", no_terminal)
    result = tenure("cluster", *options, "--bootstrap", "127.0.0.1:1")
    assert result.code == code
    assert result.err.startswith(f"tenure: {line}")


# Wrong settings: the kind of listener, the lines of the file, the exit code and the line of the error. {..} is filled in.


WRONG_SETTINGS: dict[str, tuple[str, str, int, str]] = {
    "not trusted": (
        "ssl", "security.protocol=SSL\nssl.truststore.location={other_ca}", 69,
        "{at} has a certificate that is not trusted by {other_ca} (ssl.truststore.location in {file}) (unable to get local issuer certificate): "
        "name the certificate of the authority that signed it",
    ),
    "not trusted by the system": (
        "ssl", "security.protocol=SSL", 69,
        "{at} has a certificate that is not trusted by the certificate authorities of this system (unable to get local issuer certificate): "
        "set ssl.truststore.location (or ssl.ca.location) to the certificate of its authority",
    ),
    "another host": (
        "elsewhere", "security.protocol=SSL\nssl.ca.location={ca}", 69,
        "{at} has a certificate that is not for 127.0.0.1, only for kafka.example, 10.9.8.7: "
        "use one of its names, or set ssl.endpoint.identification.algorithm= (empty) to accept any",
    ),
    "expired": ("expired", "security.protocol=SSL\nssl.ca.location={ca}", 69, "{at} has an expired certificate, or its authority's has expired: the broker needs a new one"),
    "another TLS version": (
        "only_12", "security.protocol=SSL\nssl.ca.location={ca}\nssl.enabled.protocols=TLSv1.3", 69,
        "{at} has no TLS version in common with this client: see ssl.enabled.protocols of both",
    ),
    "no client certificate": (
        "mutual", "security.protocol=SSL\nssl.ca.location={ca}", 77,
        "{at} wants a client certificate: set ssl.keystore.location, or ssl.certificate.location and ssl.key.location",
    ),
    "another client certificate": (
        "mutual", "security.protocol=SSL\nssl.ca.location={ca}\nssl.certificate.location={other_chain}\nssl.key.location={other_key}", 77,
        "{at} does not accept the client certificate: it does not know the authority that signed it: its truststore must have the authority that signed it",
    ),
    "another mechanism": (
        "only_256", "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.username=a\nsasl.password={secret}", 69,
        "{at} offers SCRAM-SHA-256, PLAIN, not SCRAM-SHA-512: set sasl.mechanism=SCRAM-SHA-256",
    ),
    "wrong password": (
        "sasl_ssl", "security.protocol=SASL_SSL\nssl.ca.location={ca}\nsasl.mechanism=SCRAM-SHA-512\nsasl.username=alice\nsasl.password={secret}", 77,
        "{at} refuses the login: wrong user or password for alice: check sasl.username in {file}",
    ),
    "wrong user": (
        "sasl_plaintext", "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=bob\nsasl.password={secret}", 77,
        "{at} refuses the login: wrong user or password for bob: check sasl.username in {file}",
    ),
    "a plain client at TLS": ("ssl", "", 69, "{at} wants TLS: name a file with security.protocol=SSL, or SASL_SSL for a login, by --config (docs/secured.md)"),
    "a TLS client at plain": (
        "plain", "security.protocol=SSL\nssl.ca.location={ca}", 69, "{at} does not speak TLS: set security.protocol=PLAINTEXT, or SASL_PLAINTEXT for a login",
    ),
    "no login at SASL": (
        "sasl_plaintext", "", 69,
        "{at} wants a login (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER): "
        "name a file with security.protocol and sasl.jaas.config by --config, or use --user (docs/secured.md)",
    ),
    "no login at SASL_SSL": (
        "only_plain", "security.protocol=SSL\nssl.ca.location={ca}", 69,
        "{at} wants a login (PLAIN): name a file with security.protocol and sasl.jaas.config by --config, or use --user (docs/secured.md)",
    ),
    "a login at SSL": (
        "ssl", "security.protocol=SASL_SSL\nssl.ca.location={ca}\nsasl.mechanism=PLAIN\nsasl.username=a\nsasl.password={secret}", 69,
        "{at} asks for no login: set security.protocol=SSL for this listener",
    ),
    "a false broker": (
        "false", "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.username=alice\nsasl.password=hunter2 pw\"'\\\\", 77,
        "{at} did not prove that it knows the password: the broker's signature is wrong: it does not know the password: is this the cluster that you mean?",
    ),
    "no password": (
        "sasl_plaintext", "security.protocol=SASL_PLAINTEXT\nsasl.username=a", 78,
        '{file} has no password for the login: write sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="..." password="...";, '
        "or use --user NAME",
    ),
    "unknown name": ("plain", "security.protocl=SSL", 78, "{file}: line 1: there is no setting security.protocl: did you mean security.protocol?"),
    "unknown protocol": ("plain", "security.protocol=TLS", 78, "security.protocol in {file} cannot be 'TLS': write PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
    "Kerberos": ("plain", "security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI", 78, "sasl.mechanism in {file} needs Kerberos, which this command does not have: write PLAIN, SCRAM-SHA-512, SCRAM-SHA-256, OAUTHBEARER"),
    "the rest of a broken line": (
        "plain", "security.protocol=SASL_SSL\n  {secret}", 78, "{file}: line 2 is not NAME=VALUE with the name of a setting: a value that goes on in the next line ends with \\",
    ),
    "a wrong escape": ("plain", "sasl.password=\\uhunter2", 78, "{file} is not in Java's properties format: \\u needs four hexadecimal digits (at line 1)"),
    "a plug-in": ("plain", "sasl.login.callback.handler.class=com.example.Login", 78, "{file}: line 1: sasl.login.callback.handler.class: Java plug-ins are not run here"),
    "no truststore": ("plain", "security.protocol=SSL\nssl.truststore.location=/nowhere/ca.pem", 78, "ssl.truststore.location in {file}: /nowhere/ca.pem: no such file or directory"),
    "a truststore that is none": (
        "plain", "security.protocol=SSL\nssl.truststore.location={file}", 78,
        "ssl.truststore.location in {file}: {file} has no certificate in PEM: the file of a certificate authority begins with -----BEGIN CERTIFICATE-----",
    ),
    "JKS": (
        "plain", "security.protocol=SSL\nssl.truststore.location={jks}", 78,
        "ssl.truststore.location in {file}: {jks} is a JKS file, which only Java can read: "
        "convert it: keytool -importkeystore -srckeystore {jks} -destkeystore {jks_as_p12} -deststoretype PKCS12",
    ),
    "the key of another certificate": (
        "plain", "security.protocol=SSL\nssl.certificate.location={chain}\nssl.key.location={other_key}", 78,
        "the key of ssl.key.location in {file}: {other_key} does not belong to the certificate of ssl.certificate.location in {file}: {chain}: "
        "name the key with which the certificate was requested",
    ),
    "wrong key password": (
        "plain", "security.protocol=SSL\nssl.certificate.location={chain}\nssl.key.location={locked}\nssl.key.password={secret}", 78,
        "ssl.key.password in {file} does not open the key of ssl.key.location in {file}: {locked}",
    ),
    "no key password": (
        "plain", "security.protocol=SSL\nssl.certificate.location={chain}\nssl.key.location={locked}", 78,
        "the key of ssl.key.location in {file}: {locked} is encrypted: set ssl.key.password",
    ),
    "a certificate without a key": (
        "plain", "security.protocol=SSL\nssl.certificate.location={chain}", 78,
        "ssl.key.location in {file} has no private key in PEM: set ssl.key.location (or ssl.keystore.key), or put both into ssl.keystore.location",
    ),
    "wrong password of a PKCS12": (
        "plain", "security.protocol=SSL\nssl.keystore.location={p12}\nssl.keystore.password={secret}", 78,
        "ssl.keystore.location in {file}: {p12} cannot be opened with the password of its store, or it is damaged",
    ),
    "an unset variable": ("plain", "security.protocol=SASL_SSL\nsasl.password=${env:TENURE_TEST_UNSET}", 78, "sasl.password in {file} uses the environment variable TENURE_TEST_UNSET, which is not set: export TENURE_TEST_UNSET"),
    "old versions": ("plain", "security.protocol=SSL\nssl.enabled.protocols=TLSv1.1", 78, "ssl.enabled.protocols in {file} is older than TLSv1.2, which is not secure and not supported: write TLSv1.2,TLSv1.3"),
    "contradiction": ("plain", "ssl.ca.location=a\nssl.truststore.location=b", 78, "{file}: ssl.truststore.location contradicts ssl.ca.location: set only one of them"),
}  # fmt: skip
WRONG_SECRET = "wrong-hunter2-secret"


@pytest.mark.parametrize("kind", WRONG_SETTINGS)
def test_wrong_settings_are_one_line_with_the_remedy(
    listeners: Listeners, certificates: Certificates, config: Any, tenure: Tenure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.delenv("TENURE_TEST_UNSET", raising=False)
    listens, text, code, line = WRONG_SETTINGS[kind]
    jks = tmp_path / "trust.jks"
    jks.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    listener = listeners.sasl_plaintext(false_signature=True) if listens == "false" else opened(listeners, listens)
    file = str(tmp_path / "client.properties")
    known = {
        "at": listener.address,
        "file": file,
        "ca": certificates.ca,
        "other_ca": certificates.other_ca,
        "chain": certificates.client[0],
        "other_chain": certificates.other_client[0],
        "other_key": certificates.other_client[1],
        "locked": certificates.encrypted("locked.key", certificates.client),
        "p12": certificates.pkcs12("client.p12", certificates.client),
        "jks": str(jks),
        "jks_as_p12": str(tmp_path / "trust.p12"),
        "secret": WRONG_SECRET,
    }

    def filled(template: str) -> str:
        for name, value in known.items():
            template = template.replace(f"{{{name}}}", value)
        return template

    options = ["--config", config(filled(text))] if text else []
    began = time.monotonic()
    result = tenure("group", "list", *options, "--bootstrap", listener.address, "--timeout", "10")
    assert time.monotonic() - began < 11
    assert result == (code, "", f"tenure: {filled(line)}\n")
    as_json = tenure("group", "list", *options, "--bootstrap", listener.address, "--timeout", "10", "--json")
    assert json.loads(as_json.out)["error"]["message"] == filled(line)
    assert WRONG_SECRET not in result.err + as_json.out + as_json.err


def test_a_refused_login_is_not_tried_at_every_broker(listeners: Listeners, config: Any, tenure: Tenure) -> None:
    """Some clusters lock a user after a few failures."""
    first, second = listeners.sasl_plaintext(), listeners.sasl_plaintext()
    file = config("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", f"sasl.username={USER}", f"sasl.password={WRONG}")
    result = tenure("cluster", "--config", file, "--bootstrap", f"{first.address},{second.address}", "--timeout", "20")
    assert result == (77, "", f"tenure: {first.address} refuses the login: wrong user or password for {USER}: check sasl.username in {file}\n")
    assert first.seen.count(WRONG.encode()) == 1
    assert second.seen == b""


def test_settings_without_effect_are_one_note(listeners: Listeners, config: Any, tenure: Tenure) -> None:
    file = config("group.id=x", "key.deserializer=y", "queue.buffering.max.ms=5", "config.providers=env", "config.providers.env.class=z")
    result = tenure("cluster", "--config", file, "--bootstrap", listeners.plain().address)
    assert (result.code, result.err) == (0, f"tenure: {file}: without effect here: group.id, key.deserializer, queue.buffering.max.ms\n")


def test_a_file_without_a_protocol_says_so(listeners: Listeners, certificates: Certificates, config: Any, tenure: Tenure) -> None:
    file = config(f"ssl.ca.location={certificates.ca}")
    result = tenure("cluster", "--config", file, "--bootstrap", listeners.plain().address)
    assert result.code == 0
    assert result.err == f"tenure: {file}: without security.protocol=SASL_SSL (or SSL, SASL_PLAINTEXT) its ssl.* and sasl.* settings have no effect\n"


def test_values_come_from_the_environment_and_from_files(listeners: Listeners, config: Any, tenure: Tenure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_TEST_USER", USER)
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    (tmp_path / "all.properties").write_text("the.password=hunter2 pw\"'\\\\\n")
    listener = listeners.sasl_plaintext()
    for value in (f"${{file:{tmp_path}/password}}", f"${{file:{tmp_path}/all.properties:the.password}}", f"${{directory:{tmp_path}:password}}"):
        file = config("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=SCRAM-SHA-256", "sasl.username=${env:TENURE_TEST_USER}", f"sasl.password={value}")
        assert tenure("cluster", "--config", file, "--bootstrap", listener.address)[::2] == (0, "")
    assert set(listener.logins) == {USER}


def test_a_handshake_keeps_the_deadline(listeners: Listeners, certificates: Certificates, config: Any, tenure: Tenure) -> None:
    file = config("security.protocol=SSL", f"ssl.ca.location={certificates.ca}")
    with OtherServer(keep_silent) as port:
        began = time.monotonic()
        result = tenure("cluster", "--config", file, "--bootstrap", port.address, "--timeout", "1")
    assert time.monotonic() - began < 3
    assert result == (69, "", f"tenure: {port.address} does not answer within 1 s\n")


# Health


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("ssl", "answers, and wants TLS: name a file with security.protocol=SSL, or SASL_SSL for a login, by --command-config (docs/secured.md)"),
        ("mutual", "answers, and wants TLS: name a file with security.protocol=SSL, or SASL_SSL for a login, by --command-config (docs/secured.md)"),
        ("only_256", "answers, and wants a login (SCRAM-SHA-256, PLAIN): name a file with security.protocol and sasl.jaas.config by --command-config (docs/secured.md)"),
        ("only_plain", "answers, and wants TLS: name a file with security.protocol=SSL, or SASL_SSL for a login, by --command-config (docs/secured.md)"),
    ],
)
def test_a_broker_that_wants_a_login_lives_and_is_not_known_to_be_ready(listeners: Listeners, tenure: Tenure, kind: str, text: str) -> None:
    at = opened(listeners, kind).address
    assert tenure("health", at, "--timeout", "10") == (0, f"{at} {text}\n", "")
    assert tenure("health", at, "--timeout", "10", "--ready", "--wait", "60") == (2, f"{at} {text}\n", "")
    document = json.loads(tenure("health", at, "--timeout", "10", "--json").out)
    assert (document["ready"], document["brokers"][0]["ready"], document["brokers"][0]["answers"]) == (False, False, True)


def test_a_web_server_with_tls_is_no_living_broker(certificates: Certificates, tenure: Tenure) -> None:
    def web(connection: socket.socket) -> None:
        with server_context(certificates.broker).wrap_socket(connection, server_side=True) as encrypted:
            encrypted.recv(1)
            encrypted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with OtherServer(web) as port:
        result = tenure("health", port.address, "--timeout", "10")
    assert result.code == 1
    assert result.out.startswith(f"{port.address} wants TLS")


@pytest.mark.parametrize(
    ("way", "change", "code", "text"),
    [
        ("SASL_SSL SCRAM-SHA-512", ("", ""), 0, "is ready"),
        ("mutual", ("", ""), 0, "is ready"),
        ("SASL_SSL SCRAM-SHA-512", (USER, "bob"), 2, "refuses the login: wrong user or password for bob: check sasl.jaas.config in {file}"),
        ("SSL", ("location=", "location=/nowhere"), 78, "ssl.truststore.location in {file}: "),
        ("SSL", ("ca.pem", "other-ca.pem"), 1, "has a certificate that is not trusted by "),
    ],
)
def test_health_with_a_login(
    listeners: Listeners, certificates: Certificates, config: Any, tenure: Tenure, way: str, change: tuple[str, str], code: int, text: str
) -> None:
    kind, lines = ways(certificates)[way]
    file = config(*(line.replace(*change) if change[0] else line for line in lines))
    listener = opened(listeners, kind)
    result = tenure("health", listener.address, "--command-config", file, "--timeout", "20", "--ready")
    assert result.code == code
    begin = f"{listener.address} " if code != 78 else "tenure: "
    assert (result.out + result.err).startswith(begin + text.replace("{file}", file))


def test_health_takes_a_clients_file_by_its_own_option(config: Any, tenure: Tenure) -> None:
    result = tenure("health", "--config", config("security.protocol=SSL"))
    assert result.code == 78
    assert result.err.endswith("; a file with the settings of a client is named by --command-config\n")


def test_completion_asks_a_secured_cluster_without_a_word(
    listeners: Listeners, certificates: Certificates, config: Any, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    listener = listeners.sasl_ssl()
    file = config(*ways(certificates)["SASL_SSL SCRAM-SHA-256"][1], "group.id=x")
    words = complete(["topic", "describe", "--bootstrap", listener.address, "--config", file], topic)
    assert topic in [word for word, _ in words.words]
    assert capsys.readouterr() == ("", "")
    assert complete(["topic", "describe", "--config"], "x").kind == "files"


@pytest.mark.plain
def test_the_password_is_asked_on_the_terminal(listeners: Listeners, certificates: Certificates, config: Any) -> None:
    listener = listeners.sasl_ssl()
    file = config("security.protocol=SASL_SSL", f"ssl.ca.location={certificates.ca}")
    command = [sys.executable, "-P", "-m", "tenure", "cluster", "--config", file, "--user", USER, "--bootstrap", listener.address, "--timeout", "20"]
    with Terminal(command, environment()) as terminal:
        terminal.until(f"password of {USER}: ")
        terminal.press(f"{PASSWORD}\n".encode())
        assert terminal.end() == 0, terminal.text
    assert PASSWORD not in terminal.text, "it is not echoed"
    assert set(listener.logins) == {USER}


@pytest.mark.parametrize(
    "options",
    [
        ["--password", WRONG],
        [f"--password={WRONG}"],
        ["--user", "alice", "--password-file", WRONG],
        ["--config", f"sasl.password={WRONG}"],
        ["-X", f"sasl.password={WRONG}"],
        ["--user", f"alice:{WRONG}", "--password-file", "/dev/null"],
    ],
)
def test_a_password_in_the_wrong_place_is_not_repeated(tenure: Tenure, options: list[str]) -> None:
    result = tenure("cluster", *options, "--bootstrap", "127.0.0.1:1")
    assert result.code in (64, 78)
    assert WRONG not in result.out + result.err
