"""TLS with Python's `ssl`: a context from the settings, the handshake, and its failures in words."""

from __future__ import annotations

import os
import secrets
import socket
import ssl
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Final

from secured.channel import Channel, TlsChannel
from secured.deadline import remaining
from secured.errors import AccessError, other_listener, refused_login, wrong_settings
from secured.hidden import Secret
from secured.pem import is_pkcs12, pem_of_pkcs12, private_file, read_store, with_lines
from secured.probing import no_tls

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
ANY_VERSION: Final = ("TLS", "SSL")
OLD_VERSIONS: Final = ("TLSv1", "TLSv1.1", "SSLv2", "SSLv2Hello", "SSLv3")
# Reasons of `ssl.SSLError`.
NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "UNEXPECTED_MESSAGE")
NO_COMMON: Final = ("HANDSHAKE_FAILURE", "INSUFFICIENT_SECURITY", "NO_PROTOCOLS_AVAILABLE")
MISMATCH: Final = "KEY_VALUES_MISMATCH"
# Codes of OpenSSL's verification.
NOT_YET_VALID, EXPIRED, REVOKED = 9, 10, 23
HOST_MISMATCH: Final = (62, 64)

Dial = Callable[[float], socket.socket]  # a new connection to the same address, before a deadline


@dataclass(frozen=True)
class Tls:
    where: Callable[[str], str] = field(repr=False)  # a setting as the user wrote it, with its file
    trusted_file: str = ""  # PEM or PKCS12, or a folder; with no text either: the system's
    trusted_text: str = ""
    trusted_password: Secret | None = None
    store_file: str = ""  # the client's certificate and key in one file, PEM or PKCS12
    store_password: Secret | None = None
    chain_file: str = ""
    chain_text: str = ""
    key_file: str = ""
    key_text: Secret | None = None
    key_password: Secret | None = None
    verifies: bool = True
    checks_host: bool = True
    versions: tuple[str, ...] = ()
    ciphers: tuple[str, ...] = ()
    revoked_file: str = ""
    _made: list[ssl.SSLContext] = field(default_factory=list, repr=False, compare=False)

    @property
    def has_certificate(self) -> bool:
        return bool(self.store_file or self.chain_file or self.chain_text)

    @property
    def trusted(self) -> str:
        """What decides which certificates are trusted, for messages."""
        if self.trusted_file:
            return f"{self.trusted_file} ({self.where('ssl.truststore.location')})"
        return self.where("ssl.truststore.certificates") if self.trusted_text else "the certificate authorities of this system"

    def context(self) -> ssl.SSLContext:
        """The context of all connections. Raises AccessError for settings that cannot be used."""
        if not self._made:
            self._made.append(made_context(self))
        return self._made[0]


def made_context(tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.checks_host and tls.verifies
    context.verify_mode = ssl.CERT_REQUIRED if tls.verifies else ssl.CERT_NONE
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as in Java, each certificate of a truststore is trusted, whoever signed it
    choose_versions(context, tls)
    choose_ciphers(context, tls)
    load_trusted(context, tls)
    load_certificate(context, tls)
    return context


def choose_versions(context: ssl.SSLContext, tls: Tls) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    where = tls.where("ssl.enabled.protocols")
    unknown = [name for name in tls.versions if name not in (*VERSIONS, *ANY_VERSION, *OLD_VERSIONS)]
    if unknown:
        raise wrong_settings(f"{where} cannot be {unknown[0][:40]!r}", f"write {','.join(VERSIONS)}")
    known = [VERSIONS[name] for name in tls.versions if name in VERSIONS]
    if known:
        context.minimum_version, context.maximum_version = min(known), max(known)
    elif tls.versions and not any(name in ANY_VERSION for name in tls.versions):
        raise wrong_settings(f"{where} is older than TLSv1.2, which is not secure and not supported", f"write {','.join(VERSIONS)}")


def choose_ciphers(context: ssl.SSLContext, tls: Tls) -> None:
    """The suites of TLS 1.2; those of 1.3 (TLS_AES_...) cannot be chosen in Python, and are all on."""
    names = [openssl_name(name) for name in tls.ciphers if not (name.startswith("TLS_") and "_WITH_" not in name)]
    try:
        if names:
            context.set_ciphers(":".join(names))
        elif tls.ciphers:
            context.minimum_version = ssl.TLSVersion.TLSv1_3
    except ssl.SSLError:
        raise wrong_settings(f"{tls.where('ssl.cipher.suites')} names no cipher suite that OpenSSL knows", "leave it out, or name others") from None


def openssl_name(name: str) -> str:
    """OpenSSL's name for Java's: ECDHE-RSA-AES256-GCM-SHA384 for TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384."""
    exchange, separator, cipher = name.removeprefix("TLS_").partition("_WITH_")
    if not separator:
        return name
    cipher = cipher.replace("AES_", "AES").replace("_CBC", "").replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    return "-".join(part.replace("_", "-") for part in (exchange, cipher) if part != "RSA")


# What is trusted


def load_trusted(context: ssl.SSLContext, tls: Tls) -> None:
    where = tls.where("ssl.truststore.location")
    try:
        if tls.trusted_file and os.path.isdir(tls.trusted_file):
            context.load_verify_locations(capath=tls.trusted_file)
        elif tls.trusted_file:
            data = read_store(tls.trusted_file, where)
            if is_pkcs12(data):
                data = pem_of_pkcs12(data, tls.trusted_password, tls.trusted_file, where)[0]
            context.load_verify_locations(cadata=data.decode("ascii", "replace"))
        elif tls.trusted_text:
            where = tls.where("ssl.truststore.certificates")
            context.load_verify_locations(cadata=with_lines(tls.trusted_text, where))
        else:
            context.load_default_certs()
    except (ssl.SSLError, ValueError):
        name = f"{where}: {tls.trusted_file}" if tls.trusted_file else where
        raise wrong_settings(f"{name} has no certificate in PEM", "the file of a certificate authority begins with -----BEGIN CERTIFICATE-----") from None
    if tls.revoked_file:
        try:
            context.load_verify_locations(cafile=tls.revoked_file)
        except OSError as error:
            reason = "has no revocation list in PEM" if isinstance(error, ssl.SSLError) else (error.strerror or str(error)).lower()
            raise wrong_settings(f"{tls.where('ssl.crl.location')}: {tls.revoked_file}: {reason}") from None
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


# The client's certificate


class NoPassword(Exception):
    """The key is encrypted, and there is no password for it."""


def load_certificate(context: ssl.SSLContext, tls: Tls) -> None:
    if not tls.has_certificate:
        if tls.key_file or tls.key_text:
            raise wrong_settings(f"{tls.where('ssl.key.location' if tls.key_file else 'ssl.keystore.key')} has no certificate to it", "set ssl.certificate.location or ssl.keystore.certificate.chain")
        return
    chain_where, chain = of_client(tls, "ssl.keystore.certificate.chain", tls.chain_text, "ssl.certificate.location", tls.chain_file)
    key_where, key = of_client(tls, "ssl.keystore.key", tls.key_text.reveal() if tls.key_text else "", "ssl.key.location", tls.key_file)
    password = tls.key_password or (tls.store_password if tls.store_file else None)
    if tls.store_file:
        chain_where = key_where = f"{tls.where('ssl.keystore.location')}: {tls.store_file}"
        chain = read_store(tls.store_file, tls.where("ssl.keystore.location"))
        if is_pkcs12(chain):
            password = Secret(secrets.token_hex())  # for the moment in which the key is in a file
            chain, key = pem_of_pkcs12(chain, tls.store_password, tls.store_file, tls.where("ssl.keystore.location"), password)
    if b"-----BEGIN CERTIFICATE" not in chain:
        raise wrong_settings(f"{chain_where} has no certificate in PEM", "it begins with -----BEGIN CERTIFICATE-----")
    if b"PRIVATE KEY-----" not in key + chain:
        raise wrong_settings(f"{key_where} has no private key in PEM", "set ssl.key.location (or ssl.keystore.key), or put both into ssl.keystore.location")

    def needed() -> bytes:
        if password is None:
            raise NoPassword
        return password.reveal().encode()

    try:
        with private_file(chain) as chain_path, private_file(key) if key else nullcontext() as key_path:
            context.load_cert_chain(chain_path, key_path, needed)
    except NoPassword:
        raise wrong_settings(f"the key of {key_where} is encrypted", "set ssl.key.password") from None
    except (ssl.SSLError, ValueError) as error:
        raise unusable(error, tls, chain_where, key_where, encrypted=password is not None and b"ENCRYPTED" in key + chain) from None


def of_client(tls: Tls, text_name: str, text: str, file_name: str, file: str) -> tuple[str, bytes]:
    """Where the client's certificate or key is, and its PEM; b"" if it is not set."""
    if text:
        where = tls.where(text_name)
        return where, with_lines(text, where).encode()
    where = tls.where(file_name)
    return (f"{where}: {file}", read_store(file, where)) if file else (where, b"")


def unusable(error: Exception, tls: Tls, chain_where: str, key_where: str, *, encrypted: bool) -> AccessError:
    if getattr(error, "reason", None) == MISMATCH:
        return wrong_settings(f"the key of {key_where} does not belong to the certificate of {chain_where}", "name the key with which the certificate was requested")
    if encrypted:
        return wrong_settings(f"{tls.where('ssl.key.password')} does not open the key of {key_where}")
    return wrong_settings(f"the certificate of {chain_where} and the key of {key_where} cannot be used ({getattr(error, 'reason', None) or 'damaged'})")


# The handshake


def encrypt(connected: socket.socket, host: str, tls: Tls, deadline: float, dial: Dial) -> Channel:
    """The channel after the handshake. Raises AccessError, OSError for a lost connection, TimeoutError."""
    context = tls.context()
    encrypted = context.wrap_socket(connected, server_hostname=host, do_handshake_on_connect=False)
    try:
        encrypted.settimeout(remaining(deadline))
        encrypted.do_handshake()
    except ssl.SSLError as error:
        encrypted.close()
        raise explained(error, host, tls, deadline, dial) from error
    except BaseException:
        encrypted.close()
        raise
    return TlsChannel(encrypted)


def explained(error: ssl.SSLError, host: str, tls: Tls, deadline: float, dial: Dial) -> Exception:
    """Why a handshake failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return not_accepted(error, host, tls, deadline, dial)
    return alert_in_words(error, tls)


def alert_in_words(error: OSError, tls: Tls) -> Exception:
    """Why a handshake, or the first exchange after it, failed. An OSError if the connection was only lost."""
    reason = getattr(error, "reason", None) or ""
    if not isinstance(error, ssl.SSLError):
        return error
    if isinstance(error, ssl.SSLEOFError) or reason == "UNEXPECTED_EOF_WHILE_READING":
        return ConnectionResetError("the connection was closed during the TLS handshake")
    if reason in NOT_TLS:
        return no_tls()
    if "PROTOCOL_VERSION" in reason or "UNSUPPORTED_PROTOCOL" in reason:
        return other_listener("has no TLS version in common with this client", "see ssl.enabled.protocols of both")
    if "ALERT" in reason and "CERTIFICATE" not in reason and any(word in reason for word in NO_COMMON):
        if tls.has_certificate:
            return other_listener("ends the TLS handshake", "it has no TLS version or cipher suite in common with ssl.enabled.protocols and ssl.cipher.suites")
        return other_listener(
            "ends the TLS handshake", "it wants a client certificate (set ssl.keystore.location), or has no TLS version or cipher suite in common with this client"
        )
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason or "ACCESS_DENIED" in reason):
        if not tls.has_certificate:
            return refused_login("wants a client certificate", "set ssl.keystore.location, or ssl.certificate.location and ssl.key.location")
        return refused_login(f"does not accept the client certificate{CERTIFICATE_ALERTS.get(reason, '')}", "its truststore must have the authority that signed it")
    if any(word in reason for word in NO_COMMON):
        return other_listener("has no TLS version or cipher suite in common with this client", "see ssl.enabled.protocols and ssl.cipher.suites")
    return other_listener(f"ends the TLS handshake ({reason.lower().replace('_', ' ') or 'without a reason'})")


CERTIFICATE_ALERTS: Final = {
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": ": it has expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": ": it was revoked",
    "TLSV1_ALERT_UNKNOWN_CA": ": it does not know the authority that signed it",
}


def not_accepted(error: ssl.SSLCertVerificationError, host: str, tls: Tls, deadline: float, dial: Dial) -> AccessError:
    if error.verify_code in HOST_MISMATCH:
        names = names_in_certificate(tls, deadline, dial)
        which = f", only for {', '.join(names)}" if names else ""
        return other_listener(f"has a certificate that is not for {host}{which}", "use one of its names, or set ssl.endpoint.identification.algorithm= (empty) to accept any")
    if error.verify_code == EXPIRED:
        return other_listener("has an expired certificate, or its authority's has expired", "the broker needs a new one")
    if error.verify_code == NOT_YET_VALID:
        return other_listener("has a certificate that is not valid yet", "compare the clocks of both machines")
    if error.verify_code == REVOKED:
        return other_listener(f"has a certificate that was revoked by {tls.revoked_file}", "the broker needs a new one")
    remedy = "name the certificate of the authority that signed it" if tls.trusted_file or tls.trusted_text else "set ssl.truststore.location (or ssl.ca.location) to the certificate of its authority"
    return other_listener(f"has a certificate that is not trusted by {tls.trusted} ({error.verify_message})", remedy)


def names_in_certificate(tls: Tls, deadline: float, dial: Dial) -> list[str]:
    """The host names and addresses of a certificate that is trusted but not for this host: by a second handshake, which does not look at names."""
    context = made_context(tls)
    context.check_hostname = False
    try:
        with context.wrap_socket(dial(deadline), do_handshake_on_connect=False) as encrypted:
            encrypted.settimeout(remaining(deadline))
            encrypted.do_handshake()
            certificate = encrypted.getpeercert() or {}
    except OSError:
        return []
    alternatives: tuple[tuple[str, str], ...] = certificate.get("subjectAltName", ())  # type: ignore[assignment]
    return [name for kind, name in alternatives if kind in ("DNS", "IP Address")][:8]
