"""Certificates and keys from files: PEM as it is, PKCS12 made to PEM, JKS refused. The content decides, not the name of the file."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from secured.errors import wrong_settings
from secured.hidden import Secret

JKS: Final = b"\xfe\xed\xfe\xed"
DER_SEQUENCE: Final = 0x30
BYTES_MAX: Final = 4 << 20
BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
EXTRA: Final = "pip install 'tenure[tls]'"


def read_store(path: str, where: str) -> bytes:
    """The bytes of a file, unless it is a JKS. `where`: the setting that names it."""
    try:
        with open(path, "rb") as file:
            data = file.read(BYTES_MAX)
    except OSError as error:
        raise wrong_settings(f"{where}: {path}: {(error.strerror or str(error)).lower()}") from None
    if data.startswith(JKS):
        command = f"keytool -importkeystore -srckeystore {shlex.quote(path)} -destkeystore {shlex.quote(with_ending(path, '.p12'))} -deststoretype PKCS12"
        raise wrong_settings(f"{where}: {path} is a JKS file, which only Java can read", f"convert it: {command}")
    return data


def is_pkcs12(data: bytes) -> bool:
    """A PKCS12 file begins as a DER sequence with the version 3; a certificate in DER does not."""
    return data[:1] == bytes((DER_SEQUENCE,)) and b"\x02\x01\x03" in data[:12]


def with_ending(path: str, ending: str) -> str:
    return os.path.splitext(path)[0] + ending


def pem_of_pkcs12(data: bytes, password: Secret | None, path: str, where: str, new_password: Secret | None = None) -> tuple[bytes, bytes]:
    """The certificates and, with `new_password`, the private key encrypted with it (else b"")."""
    key = new_password is not None
    try:
        from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat, pkcs12
    except ImportError:
        line = f"openssl pkcs12 -in {shlex.quote(path)} {'' if key else '-nokeys '}-out {shlex.quote(with_ending(path, '.pem'))}"
        raise wrong_settings(f"{where}: {path} is a PKCS12 file, which needs the package cryptography", f"{EXTRA}, or make a PEM file: {line}") from None
    try:
        store = pkcs12.load_pkcs12(data, password.reveal().encode() if password else None)
    except ValueError:
        raise wrong_settings(f"{where}: {path} cannot be opened with the password of its store, or it is damaged") from None
    found = [entry.certificate for entry in (store.cert, *store.additional_certs) if entry is not None]
    certificates = b"".join(certificate.public_bytes(Encoding.PEM) for certificate in found)
    if key and store.key is None:
        raise wrong_settings(f"{where}: {path} has no private key")
    if not found:
        raise wrong_settings(f"{where}: {path} has no certificate")
    if new_password is None or store.key is None:
        return certificates, b""
    return certificates, store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(new_password.reveal().encode()))


def with_lines(text: str, where: str) -> str:
    """Inline PEM with its lines: in a properties file they are often joined. A block with headers is taken as it is."""
    blocks = []
    for label, body in BLOCK.findall(text):
        if ":" in body:
            blocks.append(f"-----BEGIN {label}-----{body}-----END {label}-----\n")
            continue
        data = "".join(body.split())
        lines = "\n".join(data[at : at + 64] for at in range(0, len(data), 64))
        blocks.append(f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n")
    if not blocks:
        raise wrong_settings(f"{where} is not in PEM", "it begins with -----BEGIN")
    return "".join(blocks)


@contextmanager
def private_file(*parts: bytes) -> Iterator[str]:
    """A file that only this user can read, as long as it is needed: `ssl` loads keys only from files."""
    with tempfile.TemporaryDirectory(prefix="tenure-") as folder:
        path = os.path.join(folder, "key.pem")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            for part in parts:
                file.write(part if part.endswith(b"\n") else part + b"\n")
        yield path


