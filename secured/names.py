"""The names in a file of client settings: those used here, those without effect, those that ask for what this client cannot do, and unknown ones."""

from __future__ import annotations

import re
from typing import Final

from secured.errors import wrong_settings
from secured.kafka_names import KAFKA
from secured.librdkafka_names import LIBRDKAFKA
from secured.properties import Line

# librdkafka's name: Kafka's name for the same, or the one that is used here.
ALIASES: Final = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}
USED: Final = frozenset(
    (
        "bootstrap.servers",
        "enable.ssl.certificate.verification",
        "sasl.jaas.config",
        "sasl.mechanism",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.password",
        "sasl.username",
        "security.protocol",
        "ssl.certificate.location",
        "ssl.cipher.suites",
        "ssl.crl.location",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.protocol",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
    )
)
PASSWORDS: Final = frozenset(
    (
        "sasl.jaas.config",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.password",
        "ssl.key.password",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.password",
    )
)
# Without effect, and without a note: what these ask for is what this client does anyway.
IMPLIED: Final = frozenset(("ssl.keystore.type", "ssl.truststore.type", "config.providers", "sasl.oauthbearer.jwt.retriever.class"))
PLUG_IN: Final = "Java plug-ins are not run here"
OPENSSL: Final = "Python's ssl cannot choose them"
# What would protect less, or otherwise, without a word.
REFUSED: Final = {
    "sasl.client.callback.handler.class": PLUG_IN,
    "sasl.login.callback.handler.class": PLUG_IN,
    "sasl.login.class": PLUG_IN,
    "security.providers": PLUG_IN,
    "ssl.engine.factory.class": PLUG_IN,
    "ssl.provider": PLUG_IN,
    "ssl.curves.list": OPENSSL,
    "ssl.sigalgs.list": OPENSSL,
    "ssl.engine.location": "keys in an OpenSSL engine cannot be used; name files",
    "ssl.providers": "OpenSSL's own providers are used",
    "enable.sasl.oauthbearer.unsecure.jwt": "an unsigned token cannot be made here; set sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.assertion.private.key.file": "only client credentials are supported",
}
# Values of refused names that mean what this client does.
CLASSES: Final = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
)
HARMLESS: Final = ("", "false", *CLASSES)
PREFIXES: Final = ("config.providers.", "interceptor.", "metric.reporters.")
NAME_FORM: Final = re.compile(r"[a-z][a-z0-9]*(\.[a-z0-9_-]+)+", re.ASCII)


def check_name(path: str, line: Line) -> str | None:
    """The name by which a line's setting is used here; None for one without effect. Raises AccessError for an unknown or unusable one."""
    name = ALIASES.get(line.name, line.name)
    if name in USED:
        return name
    if name in REFUSED and line.value.strip() not in HARMLESS:
        raise wrong_settings(f"{path}: line {line.number}: {name}: {REFUSED[name]}")
    if name in REFUSED or name in IMPLIED or name.startswith(PREFIXES):
        return IGNORED_SILENTLY
    if name in KAFKA or name in LIBRDKAFKA:
        return None
    raise unknown_name(path, line)


IGNORED_SILENTLY: Final = ""


def unknown_name(path: str, line: Line) -> Exception:
    """A name is shown only if it looks like one: the line may be the rest of a key or password whose line was broken."""
    from difflib import get_close_matches

    if NAME_FORM.fullmatch(line.name) is None or len(line.name) > 80 or not line.value:
        return wrong_settings(f"{path}: line {line.number} is not NAME=VALUE with the name of a setting", "a value that goes on in the next line ends with \\")
    nearest = get_close_matches(line.name, sorted({*USED, *ALIASES, *KAFKA, *LIBRDKAFKA}), 1, 0.6)
    return wrong_settings(f"{path}: line {line.number}: there is no setting {line.name}", f"did you mean {nearest[0]}?" if nearest else "")
