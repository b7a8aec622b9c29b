"""The settings of a client for a secured cluster, from a file in Java's properties format with Kafka's names or librdkafka's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from secured.errors import wrong_settings
from secured.hidden import Secret
from secured.jaas import Jaas, parse_jaas
from secured.names import PASSWORDS, check_name
from secured.oauth import OAuth
from secured.properties import PropertiesError, parse_lines
from secured.sasl import MECHANISMS, OAUTHBEARER, PLAIN, Sasl
from secured.scram import HASHES
from secured.security import Security
from secured.tls import Tls
from secured.values import expanded

PROTOCOLS: Final = {"PLAINTEXT": (False, False), "SSL": (True, False), "SASL_PLAINTEXT": (False, True), "SASL_SSL": (True, True)}  # TLS, SASL
BYTES_MAX: Final = 1 << 20
MODULES: Final = {"PlainLoginModule": PLAIN, "ScramLoginModule": "", "OAuthBearerLoginModule": OAUTHBEARER}  # "": a SCRAM that the broker offers
USER_OPTION: Final = "--user"
JAAS_USER_OPTIONS: Final = ("username", "password", "tokenauth")
JAAS_TOKEN_OPTIONS: Final = ("clientId", "clientSecret", "scope")
EXTENSION: Final = "extension_"


class Values:
    """The values of the file by Kafka's names, as far as this client uses them."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.ignored: list[str] = []  # names of Kafka's clients that mean nothing here
        self._values: dict[str, str] = {}
        self._written: dict[str, str] = {}  # the name in the file, by Kafka's name

    def add(self, name: str, written: str, value: str) -> None:
        if name in self._values and self._written[name] != written and self._values[name] != value:
            raise wrong_settings(f"{self.source}: {written} contradicts {self._written[name]}", "set only one of them")
        self._values[name] = value
        self._written[name] = written

    def get(self, name: str, default: str = "") -> str:
        return self._values.get(name, default)

    def secret(self, name: str) -> Secret | None:
        return Secret(self._values[name]) if self._values.get(name) else None

    def has(self, *prefixes: str) -> bool:
        return any(name.startswith(prefixes) for name in self._values)

    def where(self, name: str) -> str:
        """The setting as the user wrote it, for messages."""
        return f"{self._written.get(name, name)} in {self.source}"

    def secrets(self) -> set[str]:
        """The values that are never shown."""
        return {value for name, value in self._values.items() if name in PASSWORDS and value}


def load(path: str, user: str | None = None, ask: Callable[[], str] | None = None) -> Security:
    """The settings in this file; "": no file. `user`: log in as this user, with the password that `ask` returns. Raises AccessError."""
    values = read(path) if path else Values(USER_OPTION)
    uses_tls, uses_sasl = protocol_of(values, user)
    sasl = sasl_of(values, user, ask, encrypted=uses_tls) if uses_sasl else None
    return Security(
        source=values.source,
        tls=tls_of(values) if uses_tls else None,
        sasl=sasl,
        bootstrap=values.get("bootstrap.servers"),
        notes=tuple(notes_of(values, user)),
        secrets=frozenset(values.secrets() | (sasl.secrets() if sasl else set())),
    )


def read(path: str) -> Values:
    try:
        with open(path, "rb") as file:
            data = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise wrong_settings(f"{path}: {(error.strerror or str(error)).lower()}", "name a file of client settings with --config") from None
    if len(data) > BYTES_MAX:
        raise wrong_settings(f"{path} is larger than {BYTES_MAX} bytes", "name a file of client settings")
    try:
        lines = parse_lines(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        number = data[: error.start].count(b"\n") + 1
        raise wrong_settings(f"{path}: line {number} is not UTF-8 text", "write a text file with a line NAME=VALUE for each setting") from None
    except PropertiesError as error:
        raise wrong_settings(f"{path} is not in Java's properties format: {error}") from None
    values = Values(path)
    for line in lines:
        name = check_name(path, line)
        if name is None:
            values.ignored.append(line.name)
        elif name:
            values.add(name, line.name, expanded(line.value.strip(), f"{line.name} in {path}"))
    return values


def notes_of(values: Values, user: str | None) -> list[str]:
    notes = []
    if values.ignored:
        notes.append(f"{values.source}: without effect here: {', '.join(dict.fromkeys(values.ignored))}")
    if user is None and not values.get("security.protocol") and values.has("ssl.", "sasl."):
        notes.append(f"{values.source}: without security.protocol=SASL_SSL (or SSL, SASL_PLAINTEXT) its ssl.* and sasl.* settings have no effect")
    return notes


def protocol_of(values: Values, user: str | None) -> tuple[bool, bool]:
    """Whether TLS and SASL are used. A user without a protocol logs in over TLS: never with a password in clear text unless the file says so."""
    protocol = values.get("security.protocol").upper() or ("PLAINTEXT" if user is None else "SASL_SSL")
    if protocol not in PROTOCOLS:
        raise wrong_settings(f"{values.where('security.protocol')} cannot be {shown(protocol)}", f"write {', '.join(PROTOCOLS)}")
    uses_tls, uses_sasl = PROTOCOLS[protocol]
    if user is not None and not uses_sasl:
        raise wrong_settings(f"{USER_OPTION} is given, and {values.where('security.protocol')} is {protocol}", "write SASL_SSL (or SASL_PLAINTEXT)")
    return uses_tls, uses_sasl


def shown(value: str) -> str:
    """A value of a setting that is no secret, in one short line."""
    return repr(value[:40])


# TLS


def tls_of(values: Values) -> Tls:
    algorithm = values.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("https", "none", ""):
        raise wrong_settings(f"{values.where('ssl.endpoint.identification.algorithm')} cannot be {shown(algorithm)}", "write https, or nothing to accept any host name")
    return Tls(
        where=values.where,
        trusted_file=values.get("ssl.truststore.location"),
        trusted_text=values.get("ssl.truststore.certificates"),
        trusted_password=values.secret("ssl.truststore.password"),
        store_file=values.get("ssl.keystore.location"),
        store_password=values.secret("ssl.keystore.password"),
        chain_file=values.get("ssl.certificate.location"),
        chain_text=values.get("ssl.keystore.certificate.chain"),
        key_file=values.get("ssl.key.location"),
        key_text=values.secret("ssl.keystore.key"),
        key_password=values.secret("ssl.key.password"),
        verifies=truth(values, "enable.ssl.certificate.verification", True),
        checks_host=algorithm == "https",
        versions=tuple(words(values.get("ssl.enabled.protocols") or values.get("ssl.protocol"))),
        ciphers=tuple(words(values.get("ssl.cipher.suites").replace(":", ","))),
        revoked_file=values.get("ssl.crl.location"),
    )


def words(text: str) -> list[str]:
    return [word for part in text.split(",") if (word := part.strip())]


def truth(values: Values, name: str, default: bool) -> bool:
    text = values.get(name).lower()
    if text not in ("", "true", "false"):
        raise wrong_settings(f"{values.where(name)} cannot be {shown(text)}", "write true or false")
    return default if not text else text == "true"


# SASL


def sasl_of(values: Values, user: str | None, ask: Callable[[], str] | None, *, encrypted: bool) -> Sasl:
    mechanism = values.get("sasl.mechanism").upper()
    where = values.where("sasl.mechanism")
    if mechanism and mechanism not in MECHANISMS:
        kerberos = " needs Kerberos, which this command does not have" if mechanism == "GSSAPI" else f" cannot be {shown(mechanism)}"
        raise wrong_settings(f"{where}{kerberos}", f"write {', '.join(MECHANISMS)}")
    if user is not None:
        if mechanism == OAUTHBEARER:
            raise wrong_settings(f"{USER_OPTION} is given, and {where} is {OAUTHBEARER}, which logs in with a token", f"leave {USER_OPTION} out")
        return Sasl(mechanism, user, Secret(ask() if ask else ""), None, USER_OPTION, encrypted)
    jaas_where = values.where("sasl.jaas.config")
    jaas = parse_jaas(values.get("sasl.jaas.config"), jaas_where) if values.get("sasl.jaas.config") else None
    if jaas is not None:
        if jaas.module not in MODULES:
            raise wrong_settings(f"{jaas_where} names a login module that this command does not have", f"it has {', '.join(MODULES)}")
        of_module = MODULES[jaas.module]
        if mechanism and mechanism != of_module and not (not of_module and mechanism in HASHES):
            raise wrong_settings(f"{where} is {mechanism}, and {jaas_where} is for {of_module or 'SCRAM'}", "make them agree")
        mechanism = mechanism or of_module
    if mechanism == OAUTHBEARER or (not mechanism and values.has("sasl.oauthbearer.")):
        return Sasl(OAUTHBEARER, "", Secret(""), oauth_of(values, jaas), values.source, encrypted)
    return password_login(values, mechanism, jaas, encrypted=encrypted)


def password_login(values: Values, mechanism: str, jaas: Jaas | None, *, encrypted: bool) -> Sasl:
    if jaas is not None:
        where = values.where("sasl.jaas.config")
        if jaas.options.get("tokenauth", "false").lower() == "true":
            raise wrong_settings(f"{where} asks for a login with a delegation token, which this command does not have", "give the user's own password")
        check_options(where, jaas.options, JAAS_USER_OPTIONS)
        user, password = jaas.options.get("username", ""), jaas.options.get("password", "")
    else:
        where = values.where("sasl.username")
        user, password = values.get("sasl.username"), values.get("sasl.password")
    missing = "user" if not user else "password" if not password else ""
    if missing:
        remedy = f'write sasl.jaas.config=org.apache.kafka.common.security.{module_path(mechanism)} required username="..." password="...";, or use {USER_OPTION} NAME'
        raise wrong_settings(f"{values.source} has no {missing} for the login", remedy)
    return Sasl(mechanism, user, Secret(password), None, where, encrypted)


def module_path(mechanism: str) -> str:
    return "plain.PlainLoginModule" if mechanism == PLAIN else "scram.ScramLoginModule"


def check_options(where: str, options: dict[str, str], known: tuple[str, ...], prefixes: tuple[str, ...] = ()) -> None:
    for name in options:
        if name not in known and not (prefixes and name.startswith(prefixes)):
            raise wrong_settings(f"{where} has an option that its login module does not know", f"it knows {', '.join(known)}")


def oauth_of(values: Values, jaas: Jaas | None) -> OAuth:
    options = jaas.options if jaas else {}
    check_options(values.where("sasl.jaas.config"), options, JAAS_TOKEN_OPTIONS, (EXTENSION,))
    method = values.get("sasl.oauthbearer.method", "oidc").lower()
    if method not in ("oidc", "default"):
        raise wrong_settings(f"{values.where('sasl.oauthbearer.method')} cannot be {shown(method)}", "write oidc")
    extensions = {name.removeprefix(EXTENSION): value for name, value in options.items() if name.startswith(EXTENSION)}
    for word in words(values.get("sasl.oauthbearer.extensions")):
        name, _, value = word.partition("=")
        extensions[name] = value
    secret = options.get("clientSecret") or values.get("sasl.oauthbearer.client.credentials.client.secret")
    return OAuth(
        source=values.source,
        endpoint=values.get("sasl.oauthbearer.token.endpoint.url"),
        client_id=options.get("clientId") or values.get("sasl.oauthbearer.client.credentials.client.id"),
        client_secret=Secret(secret),
        scope=options.get("scope") or values.get("sasl.oauthbearer.scope"),
        extensions=extensions,
        trusted=tls_of(values),
    )
