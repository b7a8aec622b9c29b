"""Every command that talks to a cluster, on Apache Kafka's secured listeners: right, and with each kind of wrong settings."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.logging import secrets
from tests.cli.conftest import Tenure
from tests.running import environment
from tests.secured.certificates import PASSWORD as KEY_PASSWORD
from tests.secured.certificates import Certificates
from tests.secured.kafka import ADMIN, LIMITED, PASSWORD, SecuredKafka, secured_kafka
from tests.secured.token_endpoint import TokenEndpoint, token_endpoint

pytestmark = pytest.mark.kafka

MODULES = {"PLAIN": "plain.PlainLoginModule", "SCRAM-SHA-256": "scram.ScramLoginModule", "SCRAM-SHA-512": "scram.ScramLoginModule"}
WRONG = "hunter2-wrong"
TIMEOUT = ("--timeout", "30")


@pytest.fixture(autouse=True)
def noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_noted", [])
    monkeypatch.setattr("secured.probing.PROBE_SECONDS", 10.0)  # of a busy machine
    for name in ("TENURE_CLIENT_CONFIG", "TENURE_BOOTSTRAP"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def kafka(certificates: Certificates) -> Iterator[SecuredKafka]:
    with secured_kafka(certificates) as started:
        yield started


@pytest.fixture(scope="module")
def endpoint() -> Iterator[TokenEndpoint]:
    with token_endpoint() as opened:
        yield opened


def jaas(mechanism: str, user: str = ADMIN, password: str = PASSWORD) -> str:
    return f'sasl.jaas.config=org.apache.kafka.common.security.{MODULES[mechanism]} required username="{user}" password="{password}";'


def settings(certificates: Certificates, endpoint: TokenEndpoint | None, way: str) -> tuple[str, list[str]]:
    """The listener, and the lines of the file."""
    trust = f"ssl.truststore.location={certificates.ca}"
    if way == "mutual":
        return "SSL", ["security.protocol=SSL", trust, f"ssl.keystore.location={certificates.together('both.pem', certificates.client)}"]
    if way == "OAUTHBEARER":
        assert endpoint is not None
        return "TOKENS", [
            *("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=OAUTHBEARER", f"sasl.oauthbearer.token.endpoint.url={endpoint.url}"),
            *("sasl.oauthbearer.client.credentials.client.id=tenure", f"sasl.oauthbearer.client.credentials.client.secret={WRONG}"),
        ]
    protocol, mechanism = way.split()
    return protocol, [f"security.protocol={protocol}", "" if protocol == "SASL_PLAINTEXT" else trust, f"sasl.mechanism={mechanism}", jaas(mechanism)]


WAYS = ["mutual", "SASL_SSL PLAIN", "SASL_SSL SCRAM-SHA-256", "SASL_SSL SCRAM-SHA-512", "SASL_PLAINTEXT PLAIN", "SASL_PLAINTEXT SCRAM-SHA-512", "OAUTHBEARER"]


def written(folder: Path, lines: list[str]) -> str:
    path = folder / "client.properties"
    path.write_text("\n".join(lines))
    return str(path)


@pytest.mark.parametrize("way", WAYS)
def test_every_command_works(kafka: SecuredKafka, certificates: Certificates, endpoint: TokenEndpoint, tenure: Tenure, tmp_path: Path, way: str) -> None:
    listener, lines = settings(certificates, endpoint, way)
    at = ("--config", written(tmp_path, lines), "--bootstrap", kafka.at(listener), *TIMEOUT)
    topic, group = f"t-{WAYS.index(way)}", f"g-{WAYS.index(way)}"
    offsets = tmp_path / "offsets.csv"

    def done(*words: str, stdin: str = "") -> str:
        result = tenure(*words, *at, stdin=stdin)
        assert (result.code, result.err) == (0, ""), f"{words}: {result}"
        return result.out

    done("topic", "create", topic, "--partitions", "2")
    assert topic in done("topic", "list", "--long")
    assert "20 records written" in done("produce", topic, stdin="".join(f"{number}\n" for number in range(20)))
    assert len(done("consume", topic, "--from", "earliest", "--no-follow").splitlines()) == 20
    assert len(done("consume", topic, "--group", group, "--instance", "i", "--from", "earliest", "--limit", "20").splitlines()) == 20
    assert group in done("group", "list")
    assert "i" in done("group", "describe", group)
    assert topic in done("group", "offsets", "show", group)
    done("group", "remove-member", group, "--instance", "i", "--yes")
    done("group", "offsets", "reset", group, "--to-current", "--topic", topic, "--export", str(offsets), "--yes")
    done("group", "offsets", "reset", group, "--from-file", str(offsets), "--yes")
    done("group", "offsets", "reset", group, "--to-earliest", "--topic", topic, "--yes")
    done("group", "offsets", "delete", group, "--topic", topic, "--yes")
    done("group", "history", group)
    done("topic", "describe", topic)
    done("cluster", "--versions")
    if group in done("group", "list"):
        done("group", "delete", group, "--yes")
    done("topic", "delete", topic, "--yes")
    assert tenure("health", kafka.at(listener), "--command-config", at[1], "--timeout", "10", "--ready").code == 0


def test_a_session_is_renewed_before_it_ends(kafka: SecuredKafka, certificates: Certificates, tenure: Tenure, tmp_path: Path) -> None:
    """The listener ends sessions after two seconds."""
    file = written(tmp_path, ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=SCRAM-SHA-256", jaas("SCRAM-SHA-256")])
    at = ("--config", file, "--bootstrap", kafka.at("SHORT"), *TIMEOUT)
    assert tenure("topic", "create", "short", *at).code == 0
    read = tenure("consume", "short", "--idle", "6", *at)
    assert (read.code, read.err) == (0, "")
    member = tenure("consume", "short", "--group", "short", "--instance", "i", "--idle", "6", *at)
    assert (member.code, member.err) == (0, "")
    described = json.loads(tenure("group", "describe", "short", "--json", *at).out)
    assert "i" in str(described)


def test_a_user_without_rights_is_told_so(kafka: SecuredKafka, certificates: Certificates, tenure: Tenure, tmp_path: Path) -> None:
    file = written(tmp_path, ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", jaas("PLAIN", LIMITED)])
    at = ("--config", file, "--bootstrap", kafka.at("SASL_PLAINTEXT"), *TIMEOUT)
    assert tenure("topic", "create", "forbidden", *at).code == 77
    assert tenure("consume", "--group", "forbidden", "short", *at).code == 77


def test_a_truststore_of_javas_own_tool_is_read(kafka: SecuredKafka, certificates: Certificates, tenure: Tenure, tmp_path: Path) -> None:
    store = tmp_path / "trust.jks"  # whatever its name: keytool writes PKCS12
    tool = [shutil.which("keytool") or "keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", certificates.ca, "-storepass", "changeit"]
    subprocess.run([*tool, "-keystore", str(store), "-storetype", "PKCS12"], check=True, capture_output=True, timeout=60)
    file = written(tmp_path, ["security.protocol=SSL", f"ssl.truststore.location={store}", "ssl.truststore.password=changeit"])
    result = tenure("topic", "list", "--config", file, "--bootstrap", kafka.at("OPEN_SSL"), *TIMEOUT)
    assert (result.code, result.err) == (0, "")


def wrong_settings(kafka: SecuredKafka, certificates: Certificates) -> dict[str, tuple[str, list[str], int, str]]:
    trust, other_trust = (f"ssl.truststore.location={path}" for path in (certificates.ca, certificates.other_ca))
    chain, key = certificates.other_client
    sasl = ["security.protocol=SASL_SSL", trust, "sasl.mechanism=SCRAM-SHA-512"]
    return {
        "a plain client at TLS": ("SASL_SSL", [], 69, "wants TLS: "),
        "a plain client at mutual TLS": ("SSL", [], 69, "wants TLS: "),
        "a TLS client at plain": ("PLAINTEXT", ["security.protocol=SSL", trust], 69, "does not speak TLS: "),
        "a TLS client at SASL_PLAINTEXT": ("SASL_PLAINTEXT", [*sasl, jaas("SCRAM-SHA-512")], 69, "does not speak TLS: "),
        "no login": ("SASL_PLAINTEXT", [], 69, "wants a login (PLAIN, SCRAM-SHA-512, SCRAM-SHA-256): "),
        "no login over TLS": ("SASL_SSL", ["security.protocol=SSL", trust], 69, "wants a login (PLAIN, SCRAM-SHA-512, SCRAM-SHA-256): "),
        "a login nobody asks for": ("OPEN_SSL", [*sasl, jaas("SCRAM-SHA-512")], 69, "asks for no login: set security.protocol=SSL for this listener"),
        "not trusted": ("OPEN_SSL", ["security.protocol=SSL", other_trust], 69, f"has a certificate that is not trusted by {certificates.other_ca} "),
        "no client certificate": ("SSL", ["security.protocol=SSL", trust], 77, "wants a client certificate: set ssl.keystore.location"),
        "another client certificate": (
            "SSL",
            ["security.protocol=SSL", trust, f"ssl.certificate.location={chain}", f"ssl.key.location={key}"],
            77,
            "does not accept the client certificate",
        ),
        "wrong password": ("SASL_SSL", [*sasl, jaas("SCRAM-SHA-512", password=WRONG)], 77, f"refuses the login: wrong user or password for {ADMIN}: check sasl.jaas.config in "),
        "wrong user": ("SASL_SSL", [*sasl, jaas("SCRAM-SHA-512", "nobody", WRONG)], 77, "refuses the login: wrong user or password for nobody: check sasl.jaas.config in "),
        "wrong PLAIN": (
            "SASL_PLAINTEXT",
            ["security.protocol=SASL_PLAINTEXT", jaas("PLAIN", password=WRONG)],
            77,
            f"refuses the login: wrong user or password for {ADMIN}: check sasl.jaas.config in ",
        ),
        "another mechanism": (
            "TOKENS",
            ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", jaas("PLAIN", password=WRONG)],
            69,
            "offers OAUTHBEARER, not PLAIN: set sasl.mechanism=OAUTHBEARER",
        ),
    }


KINDS = [
    *("a plain client at TLS", "a plain client at mutual TLS", "a TLS client at plain", "a TLS client at SASL_PLAINTEXT", "no login", "no login over TLS"),
    *("a login nobody asks for", "not trusted", "no client certificate", "another client certificate", "wrong password", "wrong user", "wrong PLAIN"),
    "another mechanism",
]


def test_every_kind_of_wrong_settings_is_tried(kafka: SecuredKafka, certificates: Certificates) -> None:
    assert list(wrong_settings(kafka, certificates)) == KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_settings_are_one_line_with_the_remedy(kafka: SecuredKafka, certificates: Certificates, tenure: Tenure, tmp_path: Path, kind: str) -> None:
    listener, lines, code, line = wrong_settings(kafka, certificates)[kind]
    options = ["--config", written(tmp_path, lines)] if lines else []
    for words in (["group", "list"], ["consume", "t", "--group", "g"], ["topic", "list"]):
        result = tenure(*words, *options, "--bootstrap", kafka.at(listener), *TIMEOUT)
        assert (result.code, result.out) == (code, "")
        assert result.err.startswith(f"tenure: {kafka.at(listener)} {line}"), result.err
        assert result.err.count("\n") == 1
        assert WRONG not in result.err
    analyzed = tenure("analyze", "run", "--offsets", f"kafka://{kafka.at(listener)}", "--out", str(tmp_path / "out"), "--master", "none", "--quiet", *options)
    assert analyzed.code == code
    assert analyzed.err.splitlines()[-1].startswith(f"tenure: {kafka.at(listener)} {line}"), analyzed.err
    assert WRONG not in analyzed.err


def test_a_token_that_is_refused_is_told(kafka: SecuredKafka, certificates: Certificates, tenure: Tenure, tmp_path: Path) -> None:
    with token_endpoint() as false_endpoint:
        _, lines = settings(certificates, false_endpoint, "OAUTHBEARER")
        at = ("--config", written(tmp_path, lines), "--bootstrap", kafka.at("TOKENS"), *TIMEOUT)
        false_endpoint.reply = lambda: (200, '{"access_token": "no-token-of-hunter2"}')
        refused = tenure("group", "list", *at)
        assert (refused.code, refused.out) == (77, "")
        assert refused.err.startswith(f"tenure: {kafka.at('TOKENS')} does not accept the token")
        false_endpoint.reply = lambda: (401, f'{{"error": "invalid_client", "error_description": "{WRONG}"}}')
        no_token = tenure("group", "list", *at)
        expected = f"tenure: no token for the login: {false_endpoint.url} answers with status 401 (invalid_client): check the client id and secret\n"
        assert no_token == (77, "", expected)
    assert "hunter2" not in refused.err + no_token.err


@pytest.mark.parametrize("way", WAYS)
def test_analyze_reads_it(kafka: SecuredKafka, certificates: Certificates, endpoint: TokenEndpoint, tenure: Tenure, tmp_path: Path, way: str) -> None:
    listener, lines = settings(certificates, endpoint, way)
    file, at = written(tmp_path, lines), kafka.at(listener)
    assert tenure("topic", "create", "analyzed", "--config", file, "--bootstrap", at, *TIMEOUT).code in (0, 1)
    read = tenure("consume", "analyzed", "--group", "analyzed", "--idle", "1", "--config", file, "--bootstrap", at, *TIMEOUT)
    assert (read.code, read.err) == (0, "")
    out = tmp_path / "out"
    words = ("--offsets", f"kafka://{at}", "--config", file, "--out", str(out), "--report", str(tmp_path / "report.html"))
    analyzed = tenure("analyze", "run", *words, "--master", "none", "--quiet")
    assert analyzed.code == 0, analyzed.err
    assert "groups: 0" not in analyzed.out
    for path in [*out.rglob("*"), tmp_path / "report.html"]:
        assert not path.is_file() or PASSWORD.encode() not in path.read_bytes()


def test_no_process_shows_a_secret(kafka: SecuredKafka, certificates: Certificates, tmp_path: Path) -> None:
    """As a process of its own, with a traceback, and what other users see of it."""
    locked = certificates.encrypted("locked.key", certificates.client)
    lines = [
        *("security.protocol=SASL_SSL", f"ssl.truststore.location={certificates.ca}", "sasl.mechanism=SCRAM-SHA-512", jaas("SCRAM-SHA-512", password=WRONG)),
        *(f"ssl.certificate.location={certificates.client[0]}", f"ssl.key.location={locked}", f"ssl.key.password={KEY_PASSWORD}"),
    ]
    command = [sys.executable, "-P", "-m", "tenure", "group", "list", "--config", written(tmp_path, lines), "--bootstrap", kafka.at("SASL_SSL"), *TIMEOUT]
    run = subprocess.Popen(command, env=environment(TENURE_DEBUG="1"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    seen = Path(f"/proc/{run.pid}/cmdline").read_text() if os.path.isdir("/proc") else ""
    out, err = run.communicate(timeout=60)
    assert "Traceback" in err
    assert "wrong user or password" in err
    assert WRONG not in out + err + seen
    assert KEY_PASSWORD not in out + err + seen
