"""Which host keys count at ports other than 22, with servers of AsyncSSH that let nobody in."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import asyncssh
import pytest

from rudel.cluster import ssh
from rudel.cluster.hosts import Host
from rudel.errors import HostError

LET_IN_NEXT = "does not let the user"
"""What the sentence says where the host key was accepted, so that the login came next and was refused."""


def sentence(tmp_path: Path, known: Callable[[int, str, str], str]) -> str:
    """What is said about a server whose own key and port, and another key, make the text of the known hosts."""

    async def attempt() -> None:
        own, other = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
        texts = [key.export_public_key().decode().strip() for key in (own, other)]
        server = await asyncssh.listen("127.0.0.1", 0, server_host_keys=[own])
        async with server:
            (tmp_path / "known_hosts").write_text(known(server.get_port(), *texts))
            (tmp_path / "config").write_text(f"Host *\n  UserKnownHostsFile {tmp_path / 'known_hosts'}\n")
            await ssh.connect(Host("127.0.0.1", port=server.get_port()), tmp_path / "config", 5.0)

    with pytest.raises(HostError) as refused:
        asyncio.run(attempt())
    return str(refused.value)


def test_a_key_that_is_known_with_its_port_counts(tmp_path: Path) -> None:
    assert LET_IN_NEXT in sentence(tmp_path, lambda port, own, other: f"[127.0.0.1]:{port} {own}\n")


def test_the_same_key_without_the_port_counts_too(tmp_path: Path) -> None:
    assert LET_IN_NEXT in sentence(tmp_path, lambda port, own, other: f"127.0.0.1 {own}\n")


def test_another_key_without_the_port_makes_an_unknown_one(tmp_path: Path) -> None:
    assert "is not known" in sentence(tmp_path, lambda port, own, other: f"127.0.0.1 {other}\n")


def test_another_key_with_the_port_makes_a_changed_one(tmp_path: Path) -> None:
    text = sentence(tmp_path, lambda port, own, other: f"[127.0.0.1]:{port} {other}\n127.0.0.1 {own}\n")
    assert "has CHANGED" in text
    assert "-R '[127.0.0.1]:" in text
