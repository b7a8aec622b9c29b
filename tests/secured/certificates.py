"""Certificates for tests, in files: an authority, a broker's, a client's, and wrong ones of each kind."""

from __future__ import annotations

import datetime
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat, load_pem_private_key, pkcs12
from cryptography.x509 import load_pem_x509_certificates

PASSWORD = "pass-word-of-key"
YESTERDAY = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)


class Certificates:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.other_authority = trustme.CA()
        self.ca = self._write("ca.pem", self.authority.cert_pem.bytes())
        self.other_ca = self._write("other-ca.pem", self.other_authority.cert_pem.bytes())
        self.broker = self.pair("broker", self.authority.issue_cert("127.0.0.1", "localhost"))
        self.elsewhere = self.pair("elsewhere", self.authority.issue_cert("kafka.example", "10.9.8.7"))
        self.expired = self.pair("expired", self.authority.issue_cert("127.0.0.1", not_after=YESTERDAY))
        self.client = self.pair("client", self.authority.issue_cert("alice@example.org"))
        self.other_client = self.pair("other-client", self.other_authority.issue_cert("alice@example.org"))

    def _write(self, name: str, data: bytes) -> str:
        path = self.folder / name
        path.write_bytes(data)
        return str(path)

    def pair(self, name: str, made: trustme.LeafCert) -> tuple[str, str]:
        """The files of the certificate and of the key."""
        return (
            self._write(f"{name}.pem", b"".join(blob.bytes() for blob in made.cert_chain_pems)),
            self._write(f"{name}.key", made.private_key_pem.bytes()),
        )

    def together(self, name: str, pair: tuple[str, str]) -> str:
        """One file with both, as Kafka's PEM keystores are."""
        return self._write(name, b"".join(Path(path).read_bytes() for path in reversed(pair)))

    def encrypted(self, name: str, pair: tuple[str, str]) -> str:
        key = load_pem_private_key(Path(pair[1]).read_bytes(), None)
        return self._write(name, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSWORD.encode())))

    def pkcs12(self, name: str, pair: tuple[str, str] | None) -> str:
        """A keystore of the pair; without one, a truststore of the authority."""
        protection = BestAvailableEncryption(PASSWORD.encode())
        if pair is None:
            authorities = load_pem_x509_certificates(Path(self.ca).read_bytes())
            return self._write(name, pkcs12.serialize_key_and_certificates(None, None, None, authorities, protection))
        certificate, *chain = load_pem_x509_certificates(Path(pair[0]).read_bytes())
        key = load_pem_private_key(Path(pair[1]).read_bytes(), None)
        return self._write(name, pkcs12.serialize_key_and_certificates(b"client", key, certificate, chain, protection))  # type: ignore[arg-type]
