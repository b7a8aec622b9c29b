"""The file of client settings: what is made of it, and what is never shown of it."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

from secured.errors import AccessError
from secured.hidden import Secret
from secured.kafka_names import KAFKA
from secured.librdkafka_names import LIBRDKAFKA
from secured.names import ALIASES, IMPLIED, REFUSED, USED
from secured.pem import with_lines
from secured.settings import load
from secured.tls import openssl_name

SECRET = "hunter2-secret"
FULL = f"""
security.protocol=SASL_SSL
ssl.truststore.location=/ca
ssl.truststore.password={SECRET}1
ssl.keystore.location=/key
ssl.keystore.password={SECRET}2
ssl.key.password={SECRET}3
ssl.keystore.key={SECRET}4
sasl.mechanism=PLAIN
sasl.jaas.config=a.b.PlainLoginModule required username="u" password="{SECRET}5";
sasl.password={SECRET}6
sasl.oauthbearer.client.credentials.client.secret={SECRET}7
"""


def written(folder: Path, text: str) -> str:
    path = folder / "client.properties"
    path.write_text(text)
    return str(path)


def test_no_object_shows_a_secret_and_every_secret_is_known(tmp_path: Path) -> None:
    security = load(written(tmp_path, FULL))
    assert security.sasl is not None
    assert security.tls is not None
    shown = f"{security!r} {security} {security.sasl!r} {security.sasl} {security.tls!r} {vars(security.tls)} {vars(security.sasl)}"
    assert SECRET not in shown
    assert {f"{SECRET}{number}" for number in range(1, 8)} <= security.secrets
    assert security.sasl.password.reveal() == f"{SECRET}5"


def test_a_secret_never_leaves_its_process() -> None:
    with pytest.raises(TypeError):
        pickle.dumps(Secret(SECRET))
    assert f"{Secret(SECRET)} {Secret(SECRET)!r}" == "*** ***"


def test_every_name_has_one_meaning() -> None:
    assert not USED & REFUSED.keys()
    assert not (USED | REFUSED.keys()) & (IMPLIED | ALIASES.keys())
    assert set(ALIASES.values()) <= USED
    assert {name for name in KAFKA if name.startswith(("ssl.", "security."))} - USED - REFUSED.keys() - IMPLIED == {
        "ssl.keymanager.algorithm",  # Java's own, with one sensible value
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    } - REFUSED.keys()
    assert not LIBRDKAFKA & REFUSED.keys()


@pytest.mark.parametrize(
    ("java", "name"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_CBC_SHA256", "DHE-RSA-AES128-SHA256"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    ],
)
def test_javas_names_of_cipher_suites_are_openssls(java: str, name: str) -> None:
    assert openssl_name(java) == name


def test_inline_pem_may_be_in_one_line() -> None:
    body = "QUJD" * 40
    assert with_lines(f"-----BEGIN X-----{body[:70]} {body[70:]}-----END X-----", "it") == f"-----BEGIN X-----\n{body[:64]}\n{body[64:128]}\n{body[128:]}\n-----END X-----\n"
    with pytest.raises(AccessError, match=r"^it is not in PEM"):
        with_lines(SECRET, "it")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("ssl.truststor.location=x", "line 1: there is no setting ssl.truststor.location: did you mean ssl.truststore.location?"),
        ("\n\nsasl.mechanims=PLAIN", "line 3: there is no setting sasl.mechanims: did you mean sasl.mechanisms?"),
        (f"a.b.c.d.e.f={SECRET}", "line 1: there is no setting a.b.c.d.e.f"),
        (f"{SECRET}", "line 1 is not NAME=VALUE with the name of a setting"),
        (f"{SECRET}={SECRET}", "line 1 is not NAME=VALUE"),
        (f'username="u" password="{SECRET}";', "line 1 is not NAME=VALUE"),
        ("MIIEvQIBADANBgkqhkiG9w0BAQEFAASC", "line 1 is not NAME=VALUE"),
        ("ssl.engine.factory.class=x", "line 1: ssl.engine.factory.class: Java plug-ins are not run here"),
        ("enable.ssl.certificate.verification=no\nsecurity.protocol=SSL", "enable.ssl.certificate.verification in"),
        ("ssl.endpoint.identification.algorithm=ldap\nsecurity.protocol=SSL", "ssl.endpoint.identification.algorithm in"),
        ("ssl.enabled.protocols=TLSv9\nsecurity.protocol=SSL", ""),
        (f"security.protocol=SASL_SSL\nsasl.jaas.config=a.Krb5LoginModule required password={SECRET};", "names a login module that this command does not have"),
        (f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=a.ScramLoginModule required password={SECRET};", "make them agree"),
        (f"security.protocol=SASL_SSL\nsasl.jaas.config=a.ScramLoginModule required pasword={SECRET};", "has an option that its login module does not know"),
        (f"security.protocol=SASL_SSL\nsasl.jaas.config=a.ScramLoginModule required tokenauth=true password={SECRET};", "delegation token"),
        ("sasl.password=${file:/nowhere/it}", "uses the file /nowhere/it: no such file or directory"),
        ("sasl.password=${file:/dev/null:key}", "uses key in /dev/null, which has no such line"),
        ("security.protocol=SASL_SSL\nsasl.username=u", "has no password for the login"),
    ],
)
def test_what_is_wrong_is_named_without_a_secret(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(AccessError) as raised:
        used(written(tmp_path, text))
    assert line in raised.value.line
    assert "\n" not in raised.value.line
    assert SECRET not in raised.value.line


def test_a_pkcs12_without_cryptography_names_both_ways_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    (tmp_path / "a b.p12").write_bytes(b"\x30\x82\x01\x01\x02\x01\x03")
    for name, options in (("truststore", "-nokeys "), ("keystore", "")):
        path = written(tmp_path, f"security.protocol=SSL\nssl.{name}.location={tmp_path}/a b.p12")
        with pytest.raises(AccessError) as raised:
            used(path)
        problem = f"ssl.{name}.location in {path}: {tmp_path}/a b.p12 is a PKCS12 file, which needs the package cryptography: "
        remedy = f"pip install 'tenure[tls]', or make a PEM file: openssl pkcs12 -in '{tmp_path}/a b.p12' {options}-out '{tmp_path}/a b.pem'"
        assert raised.value.line == problem + remedy


def used(path: str) -> None:
    security = load(path)
    assert security.tls is not None
    security.tls.context()


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes(b"a.b=c\n\xff\xfe=\n")
    with pytest.raises(AccessError, match=r"line 2 is not UTF-8 text"):
        load(str(path))
    path.write_bytes(b"#" * (2 << 20))
    with pytest.raises(AccessError, match=r"is larger than"):
        load(str(path))
    with pytest.raises(AccessError, match=r"is a directory"):
        load(str(tmp_path))


def test_only_known_references_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_TEST_PART", "b")
    security = load(written(tmp_path, "security.protocol=SASL_SSL\nsasl.username=u\nsasl.password=a${env:TENURE_TEST_PART}c${vault:x}${}$"))
    assert security.sasl is not None
    assert security.sasl.password.reveal() == "abc${vault:x}${}$"
