"""Failures of SSH connections, described in one sentence that says what to do."""

import errno
import re
import shlex
import socket
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from rudel.cluster.hosts import Host
from rudel.cluster.ssh_config import Settings
from rudel.errors import HostError

_UNREACHABLE = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN}
_USUAL_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk")


@dataclass(frozen=True)
class Attempt:
    """A connection that was tried.

    Args:
        host: as the user wrote it.
        settings: what the SSH configuration says about it.
        ssh_config: the file that was given in the place of the usual one.
        timeout: seconds it was given.
        connected: whether there was an answer at the port.
        refused: the key that the host showed and that was not accepted.
        known: whether another key is known for the host.
        stop: the last host on the way there (`ProxyJump`), or None.
    """

    host: Host
    settings: Settings
    ssh_config: Path | None
    timeout: float
    connected: bool
    refused: asyncssh.SSHKey | None
    known: bool
    stop: str | None

    @property
    def ssh(self) -> str:
        """The options and the host for an OpenSSH command."""
        parts = ["-F", str(self.ssh_config)] if self.ssh_config else []
        parts += ["-p", str(self.host.port)] if self.host.port else []
        return shlex.join([*parts, f"{self.host.user}@{self.host.name}" if self.host.user else self.host.name])

    @property
    def named(self) -> str:
        """The host, with the address that stands for it where that is another."""
        address = self.settings.address
        return f"`{self.host}`" if address == self.host.name else f"`{self.host}` (`{address}`)"


def translated(error: Exception, attempt: Attempt) -> HostError:
    """The sentence for an error of AsyncSSH or of the system."""
    named, port = attempt.named, attempt.settings.port
    numbers = _numbers(error)
    if attempt.refused:
        return _key_refused(attempt)
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return HostError(f"The key of {named} cannot be trusted ({reason(error)}): ask the host's administrator.")
    if isinstance(error, socket.gaierror):
        return HostError(
            f"The name of {named} does not resolve: check its spelling and that the host is switched on, "
            "or give its address."
        )
    if errno.ECONNREFUSED in numbers:
        return HostError(
            f"{named} refuses connections at port {port}: start its SSH server (`sudo systemctl enable --now ssh`), "
            "or give the port as in `name:2222`."
        )
    if numbers & _UNREACHABLE:
        return HostError(f"There is no route to {named}: is it switched on, and on this network?")
    if isinstance(error, TimeoutError) or errno.ETIMEDOUT in numbers:
        if attempt.connected:
            return HostError(
                f"{named} did not finish the login within {attempt.timeout:g} s: is it overloaded, or is there no SSH "
                f"server at port {port}?"
            )
        return HostError(
            f"{named} did not answer within {attempt.timeout:g} s: is it switched on, and on this network?"
        )
    if isinstance(error, asyncssh.ChannelOpenError):
        return HostError(f"`{attempt.stop}` cannot connect to {named} at port {port} ({reason(error)}).")
    if isinstance(error, asyncssh.PermissionDenied):
        return _not_let_in(attempt)
    if isinstance(error, asyncssh.KeyImportError):
        return HostError(f"A private key for {named} cannot be read ({reason(error)}): check `IdentityFile`.")
    if isinstance(error, asyncssh.Error | OSError):
        return HostError(f"The SSH connection to {named} at port {port} could not be made ({reason(error)}).")
    return HostError(f"The SSH settings for {named} cannot be used ({reason(error)}).")


def reason(error: BaseException) -> str:
    """The text of an error, or its kind where it has none, without a full stop."""
    text = error.reason if isinstance(error, asyncssh.Error) else str(error)
    return (text or type(error).__name__).rstrip(".")


def lost(connection: asyncssh.SSHClientConnection, during: str, error: BaseException | None = None) -> HostError:
    """The sentence for a connection that was lost."""
    why = f" ({reason(error)})" if error else ""
    return HostError(f"The connection to `{connection.get_extra_info('rudel_host')}` was lost {during}{why}.")


def _key_refused(attempt: Attempt) -> HostError:
    settings, key = attempt.settings, attempt.refused
    assert key
    shown = f"{key.get_algorithm()} {key.get_fingerprint()}"
    if attempt.known:
        files = [*settings.known_hosts, *settings.shared_known_hosts]
        where = next((file for file in files if file.exists()), "known_hosts")
        name = settings.alias if settings.port == 22 else f"[{settings.alias}]:{settings.port}"
        return HostError(
            f"The key of {attempt.named} has CHANGED (it shows {shown}): if the host was set up again, remove the old "
            f"key with `ssh-keygen -f {shlex.quote(str(where))} -R {shlex.quote(name)}` and check again; if not, "
            "somebody else may be answering, so do not continue."
        )
    given = f" --ssh-config {shlex.quote(str(attempt.ssh_config))}" if attempt.ssh_config else ""
    return HostError(
        f"The key of {attempt.named} is not known (it shows {shown}): compare it with what `ssh-keygen -lf "
        f"/etc/ssh/ssh_host_{_kind(key)}_key.pub` prints on the host, and accept it with `ssh {attempt.ssh}` and "
        f"`yes`, or with `rudel hosts check {attempt.host} --accept-new{given}`."
    )


def _kind(key: asyncssh.SSHKey) -> str:
    return next((kind for kind in ("ecdsa", "rsa") if kind in key.get_algorithm()), "ed25519")


def _not_let_in(attempt: Attempt) -> HostError:
    settings = attempt.settings
    encrypted = [path for path in settings.identities or _usual_keys() if _is_encrypted(path)]
    if encrypted:
        return HostError(
            f"{attempt.named} does not let the user `{settings.user}` in without the key `{encrypted[0]}`, which has a "
            f"passphrase: put it into the agent with `ssh-add {shlex.quote(str(encrypted[0]))}` "
            '(start one with `eval "$(ssh-agent)"`).'
        )
    return HostError(
        f"{attempt.named} does not let the user `{settings.user}` in: copy a key to it with `ssh-copy-id "
        f"{attempt.ssh}` (make one with `ssh-keygen` first), or give another user as in `pi@{attempt.host.name}`."
    )


def _usual_keys() -> list[Path]:
    folder = Path.home() / ".ssh"
    return [folder / name for name in _USUAL_KEYS if (folder / name).is_file()]


def _is_encrypted(path: Path) -> bool:
    try:
        asyncssh.read_private_key(path)
    except asyncssh.KeyImportError as error:
        return "assphrase" in str(error)
    except (OSError, ValueError):
        return False
    return False


def _numbers(error: Exception) -> set[int]:
    """The numbers of a system error; asyncio makes one text of those of several addresses."""
    if not isinstance(error, OSError) or isinstance(error, socket.gaierror):
        return set()
    return {error.errno} if error.errno else {int(found) for found in re.findall(r"\[Errno (\d+)\]", str(error))}
