"""A certificate authority of the test's own."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Authority:
    """Signs certificates; ``certificate`` is the file that a client has to trust."""

    folder: Path
    certificate: Path
    key: ec.EllipticCurvePrivateKey
    name: x509.Name

    def server_context(self, host: str) -> ssl.SSLContext:
        """What a server for ``host`` needs."""
        key = ec.generate_private_key(ec.SECP256R1())
        signed = _certificate(_name(host), self.name, key, self.key, host=host)
        file = self.folder / f"{host}.pem"
        file.write_bytes(_pem(key) + signed.public_bytes(serialization.Encoding.PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context


def make_authority(folder: Path) -> Authority:
    key, name = ec.generate_private_key(ec.SECP256R1()), _name("an authority for tests")
    certificate = _certificate(name, name, key, key, host=None)
    file = folder / "authority.pem"
    file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return Authority(folder, file, key, name)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signing_key: ec.EllipticCurvePrivateKey,
    *,
    host: str | None,
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=host is None, path_length=None), critical=True)
    )
    if host is not None:
        alternatives = x509.SubjectAlternativeName([x509.DNSName(host)])
        builder = builder.add_extension(alternatives, critical=False)
    return builder.sign(signing_key, hashes.SHA256())


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
