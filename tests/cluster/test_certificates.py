"""Who has a certificate of the cluster may talk to it, and nobody else."""

import asyncio
import socket
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from processes import LONG

from rudel.cluster.certificates import Authority, Identity


def served(server: Identity, talk: Callable[[int], bytes]) -> tuple[bytes | Exception, list[bytes]]:
    """What a client gets from a Dask listener with this identity, and what the listener has read."""
    from distributed.comm.core import listen

    heard: list[bytes] = []

    async def serve() -> bytes | Exception:
        async def handle(comm: Any) -> None:
            heard.append(await comm.read())
            await comm.write("welcome")

        options = server.security().get_listen_args("scheduler")
        made: Any = listen("tls://127.0.0.1:0", handle, **options)
        async with made as listener:
            port = int(listener.contact_address.rpartition(":")[2])
            try:
                return await asyncio.wait_for(asyncio.to_thread(talk, port), 20)
            except Exception as error:
                return error

    return asyncio.run(serve()), heard


def through_dask(identity: Identity) -> Callable[[int], bytes]:
    def talk(port: int) -> bytes:
        from distributed.comm.core import connect

        async def call() -> bytes:
            options = identity.security().get_connection_args("client")
            comm = await connect(f"tls://127.0.0.1:{port}", timeout=3, **options)
            await comm.write("hello")
            answer = await comm.read()
            await comm.close()
            return answer

        return asyncio.run(call())

    return talk


def test_members_of_a_cluster_understand_each_other() -> None:
    authority = Authority()
    answer, heard = served(authority.issue("scheduler"), through_dask(authority.issue("raspi1")))
    assert (answer, heard) == ("welcome", ["hello"])


def test_a_member_of_another_cluster_is_refused() -> None:
    answer, heard = served(Authority().issue("scheduler"), through_dask(Authority().issue("raspi1")))
    assert isinstance(answer, OSError)
    assert not heard


def test_neither_side_talks_to_who_has_another_authority() -> None:
    ours, theirs = Authority(), Authority()
    trusting = Identity(theirs.issue("x").authority, *_pair(ours.issue("raspi1")))  # would trust them, is not trusted
    answer, heard = served(theirs.issue("scheduler"), through_dask(trusting))
    assert isinstance(answer, OSError)
    assert not heard
    trusted = Identity(ours.issue("x").authority, *_pair(theirs.issue("raspi1")))  # is trusted, does not trust them
    answer, heard = served(theirs.issue("scheduler"), through_dask(trusted))
    assert isinstance(answer, OSError)
    assert not heard


def _pair(identity: Identity) -> tuple[str, str]:
    return identity.certificate, identity.key


def with_tls(**options: Any) -> Callable[[int], bytes]:
    def talk(port: int) -> bytes:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        for name, value in options.items():
            setattr(context, name, value)
        with socket.create_connection(("127.0.0.1", port), timeout=LONG) as raw, context.wrap_socket(raw) as tls:
            tls.sendall(b"hello")
            return tls.recv(100)

    return talk


def plainly(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=LONG) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(range(256)))
        return raw.recv(100)


@pytest.mark.parametrize(
    "talk", [with_tls(), with_tls(maximum_version=ssl.TLSVersion.TLSv1_2), plainly], ids=["none", "TLS 1.2", "plain"]
)
def test_who_has_no_certificate_gets_nothing(talk: Callable[[int], bytes]) -> None:
    answer, heard = served(Authority().issue("scheduler"), talk)
    assert b"welcome" not in (b"" if isinstance(answer, Exception) else answer)
    assert not heard


def test_a_certificate_signs_no_others() -> None:
    authority = Authority()
    own = authority.issue("raspi1")
    key = load_pem_private_key(own.key.encode(), None)
    certificate = x509.load_pem_x509_certificate(own.certificate.encode())
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    builder = x509.CertificateBuilder(
        certificate.subject, certificate.subject, key.public_key(), 5, certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
    )  # fmt: skip
    from cryptography.hazmat.primitives import hashes, serialization

    forged = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()
    imposter = Identity(own.authority, forged + own.certificate, own.key)
    answer, heard = served(authority.issue("scheduler"), through_dask(imposter))
    assert isinstance(answer, OSError)
    assert not heard


def test_clocks_may_differ_by_a_day() -> None:
    import datetime

    certificate = x509.load_pem_x509_certificate(Authority().issue("raspi1").certificate.encode())
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    assert certificate.not_valid_before_utc < now - day
    assert certificate.not_valid_after_utc > now + 30 * day


def test_a_name_of_any_length_will_do() -> None:
    authority = Authority()
    answer, _ = served(authority.issue("scheduler"), through_dask(authority.issue("ü" * 300)))
    assert answer == "welcome"


def test_keys_are_never_written_to_a_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "not there"))
    identity = Authority().issue("raspi1")
    for role in ("client", "worker", "scheduler"):
        assert identity.security().get_listen_args(role)["require_encryption"] is True
        assert identity.security().get_connection_args(role)["require_encryption"] is True


def test_keys_are_not_shown() -> None:
    identity = Authority().issue("raspi1")
    assert identity.key.splitlines()[1] not in f"{identity} {identity!r} {identity.security()!r}"
