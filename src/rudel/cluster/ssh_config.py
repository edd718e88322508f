"""The user's SSH configuration of a host: `~/.ssh/config`, or the file given in its place."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asyncssh import SSHClientConnectionOptions

from rudel.cluster.hosts import Host, local_user
from rudel.errors import HostError, RudelError, option
from rudel.files import expanded
from rudel.internals.asyncssh import ConfigParseError, ExpandedConfig

_KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
_SHARED_KNOWN_HOSTS = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")


@dataclass(frozen=True)
class Settings:
    """Settings of the connection to a host.

    Args:
        options: all that it says, for AsyncSSH.
        address: the name or address that is connected to.
        user: who logs in.
        port: of the SSH server.
        alias: the name under which its key is known.
        identities: private keys that the configuration names and that exist; empty for the usual ones.
        certificates: of such keys, that it names and that exist.
        known_hosts: the user's own files of known hosts; the first is written to.
        shared_known_hosts: those of the system.
        key_algorithms: whether it says which kinds of host keys are wanted.
        jump: hosts to go through, as in `ProxyJump`, or None.
    """

    options: SSHClientConnectionOptions
    address: str
    user: str
    port: int
    alias: str
    identities: tuple[Path, ...]
    certificates: tuple[Path, ...]
    known_hosts: tuple[Path, ...]
    shared_known_hosts: tuple[Path, ...]
    key_algorithms: bool
    jump: str | None


def read_settings(host: Host, ssh_config: Path | None = None) -> Settings:
    """Reads the settings of one host.

    Raises:
        HostError: the configuration cannot be read or understood.
    """
    here = local_user()
    if here == str(os.getuid()):
        os.environ["LOGNAME"] = here  # AsyncSSH refuses a user without a name
    config = _load(host, _files(ssh_config))
    get: Any = config.get
    address = str(get("Hostname") or host.name)
    own, shared = get("UserKnownHostsFile"), get("GlobalKnownHostsFile")
    try:
        identities, certificates = _paths(get("IdentityFile") or ()), _paths(get("CertificateFile") or ())
        known = _paths(_KNOWN_HOSTS if own is None else own)
        shared_known = _paths(_SHARED_KNOWN_HOSTS if shared is None else shared)
    except RudelError as error:
        raise HostError(f"The SSH settings for `{host}` cannot be used: {error}") from error
    only_public = get("IdentitiesOnly")
    return Settings(
        options=_options(config),
        address=address,
        user=str(host.user or get("User") or here),
        port=int(host.port or get("Port") or 22),
        alias=str(get("HostKeyAlias") or address),
        identities=tuple(p for p in identities if p.exists() and (only_public or p.suffix != ".pub")),
        certificates=tuple(path for path in certificates if path.exists()),
        known_hosts=known,
        shared_known_hosts=shared_known,
        key_algorithms=bool(get("HostKeyAlgorithms")),
        jump=get("ProxyJump") or None,
    )


def _files(ssh_config: Path | None) -> tuple[str, ...]:
    if ssh_config is None:
        if own := os.environ.get("RUDEL_SSH_CONFIG"):
            return _files(Path(own))
        usual = expanded("~/.ssh/config")
        return (str(usual),) if usual.is_file() else ()
    if not expanded(ssh_config).is_file():
        raise HostError(
            f"There is no SSH configuration `{ssh_config}`: give an existing file with {option('ssh_config')}."
        )
    return (str(expanded(ssh_config)),)


def _options(config: ExpandedConfig) -> SSHClientConnectionOptions:
    options = SSHClientConnectionOptions(config=None, client_keys=None)
    options.config = config
    return options


def _load(host: Host, files: tuple[str, ...]) -> ExpandedConfig:
    def load(final: bool) -> ExpandedConfig:
        target = (local_user(), host.user or (), host.name, host.port or ())
        config = ExpandedConfig.load(None, list(files), False, False, final, *target)
        assert isinstance(config, ExpandedConfig)
        return config

    try:
        config = load(final=False)
        return load(final=True) if config.has_match_final() else config
    except ConfigParseError as error:
        raise HostError(f"The SSH configuration cannot be understood: {error}.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise HostError(f"The SSH configuration `{files[0]}` cannot be read ({error}).") from error


def _paths(names: Iterable[str]) -> tuple[Path, ...]:
    return tuple(expanded(name) for name in names)
