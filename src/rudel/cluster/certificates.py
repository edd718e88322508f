"""Certificates of one cluster, made when it starts and forgotten when it ends.

An authority that exists only in memory signs one certificate for the driver and one for every host. Who has none of
that authority cannot talk to the scheduler or to a worker, and neither side talks to anyone without one (mutual TLS). A
certificate says which of the two it is for, and that of a host opens less (`transport.py`). Keys are ECDSA on P-256; a
private key is sent to its host over SSH, on the standard input of the process that uses it, and is kept by neither in a
file. (OpenSSL reads keys from files only: on Linux that is one in memory, elsewhere one that only its owner can read
and that is gone at once.)
"""

import contextlib
import datetime
import functools
import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPublicKeyTypes

_LIFETIME = datetime.timedelta(days=90)
_CLOCKS_DIFFER = datetime.timedelta(days=2)
"""A Raspberry Pi without a network at boot believes it is still the day on which it was shut down."""


ENGINE = "engine"
"""The role, beside Dask's own, in which Rudel itself connects: whatever comes back is plain data."""

_DRIVER, _HOST = "driver", "host"


class Plain(Enum):
    """Whose messages the opener of a connection reads as plain data."""

    NOBODYS = "nobody's"
    HOSTS = "those of hosts"
    ALL = "everybody's"


@dataclass(frozen=True)
class Identity:
    """Certificate, key and authority of a process in a cluster, as PEM texts.

    Args:
        authority: certificate of the authority that signed all others.
        certificate: its own.
        key: its private key, PKCS #8, not encrypted.
        is_driver: whether it is the driver's, and not a host's; the certificate says so, too.
    """

    authority: str
    certificate: str
    key: str = field(repr=False)
    is_driver: bool = False

    def security(self) -> Any:
        """The same for Dask: a `distributed.Security` that refuses everything that is not encrypted."""
        from distributed.security import Security

        identity = self

        class OfIdentity(Security):
            """Makes a TLS context once, and not for every connection."""

            def get_connection_args(self, role: str) -> dict[str, Any]:
                context = identity._context(ssl.Purpose.SERVER_AUTH)
                plain = Plain.ALL if role == ENGINE else Plain.HOSTS if identity.is_driver else Plain.NOBODYS
                return {"ssl_context": context, "require_encryption": True, "extra_conn_args": {}, "plain": plain}

            def get_listen_args(self, role: str) -> dict[str, Any]:
                return {"ssl_context": identity._context(ssl.Purpose.CLIENT_AUTH), "require_encryption": True}

        return OfIdentity(require_encryption=True)

    @functools.cache  # noqa: B019  # an identity lives as long as its process
    def _context(self, purpose: ssl.Purpose) -> ssl.SSLContext:
        context = ssl.create_default_context(purpose, cadata=self.authority)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        with _readable(self.certificate + self.key) as path:
            context.load_cert_chain(path)
        context.check_hostname = False  # hosts are known by the authority that signed for them, not by their names
        context.verify_mode = ssl.CERT_REQUIRED
        return context


class Authority:
    """Signs the certificates of one cluster.

    Attributes:
        valid: from when until when its certificates are, which every host's clock has to agree to.

    Examples:
        >>> authority = Authority()
        >>> authority.issue("raspi1").authority == authority.issue("raspi2").authority
        True
    """

    def __init__(self) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        now = datetime.datetime.now(datetime.UTC)
        self.valid = (now - _CLOCKS_DIFFER, now + _LIFETIME)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("rudel cluster", "authority")
        usage = dict.fromkeys(_USAGES, False) | {"key_cert_sign": True, "crl_sign": True}
        builder = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.KeyUsage(**usage), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
        )
        self._certificate = self._signed(builder)

    def issue(self, name: str, is_driver: bool = False) -> Identity:
        """A new certificate and key.

        Args:
            name: whom it is for; it stands in the certificate, for logs.
            is_driver: whether it is for the driver, and not for a host.
        """
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from cryptography.x509.oid import ExtendedKeyUsageOID

        key = ec.generate_private_key(ec.SECP256R1())
        usage = dict.fromkeys(_USAGES, False) | {"digital_signature": True}
        both_ends = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = self._signed(
            self._builder(_named(name, _DRIVER if is_driver else _HOST), key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.KeyUsage(**usage), critical=True)
            .add_extension(x509.ExtendedKeyUsage(both_ends), critical=False)
            .add_extension(authority_key, critical=False)
        )
        return Identity(
            self._certificate.public_bytes(Encoding.PEM).decode(),
            certificate.public_bytes(Encoding.PEM).decode(),
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
            is_driver,
        )

    def _builder(
        self, subject: "x509.Name", public_key: "CertificateIssuerPublicKeyTypes"
    ) -> "x509.CertificateBuilder":
        from cryptography import x509

        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self.valid[0])
            .not_valid_after(self.valid[1])
        )

    def _signed(self, builder: "x509.CertificateBuilder") -> "x509.Certificate":
        from cryptography.hazmat.primitives import hashes

        return builder.sign(self._key, hashes.SHA256())


@contextlib.contextmanager
def _readable(text: str) -> Iterator[str]:
    """The path of a file with this text: in memory where that can be had, else one that nobody else can read."""
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        descriptor = os.memfd_create("rudel")
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
        return
    with tempfile.NamedTemporaryFile("w") as file:  # mode 0600
        file.write(text)
        file.flush()
        yield file.name


_USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


def is_of_a_host(certificate: Mapping[str, Any]) -> bool:
    """Whether a certificate, as `ssl.SSLSocket.getpeercert` gives it, is not the driver's."""
    return ("organizationalUnitName", _DRIVER) not in [pair for part in certificate["subject"] for pair in part]


def _named(name: str, unit: str) -> "x509.Name":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    name = name.encode()[:64].decode(errors="ignore")
    return x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, name),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit),
        ]
    )
