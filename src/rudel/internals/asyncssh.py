"""Undocumented parts of AsyncSSH that Rudel uses: OpenSSH's configuration and known hosts."""

import re

import asyncssh
from asyncssh.config import ConfigParseError, SSHClientConfig
from asyncssh.public_key import get_default_certificate_algs, get_default_public_key_algs

from rudel.internals import require

__all__ = [
    "ConfigParseError", "ExpandedConfig", "get_default_certificate_algs", "get_default_public_key_algs", "host_keys",
]  # fmt: skip


require(
    "asyncssh",
    {
        f"SSHClientConfig.{name}": hasattr(SSHClientConfig, name)
        for name in ("load", "_percent_expand", "_handlers", "_match", "_set_tokens", "_expand_token", "get_options")
    },
)


def host_keys(known: asyncssh.SSHKnownHosts, name: str, port: int | None) -> list[asyncssh.SSHKey]:
    """The keys on lines for this very name and port; None is a line without a port."""
    return list(known._match(name, "", port)[0])


class ExpandedConfig(SSHClientConfig):
    """The configuration with every token that OpenSSH expands; AsyncSSH leaves out those below."""

    _percent_expand = SSHClientConfig._percent_expand | {"ProxyJump", "UserKnownHostsFile"}

    def _set_tokens(self) -> None:
        super()._set_tokens()
        self._tokens["k"] = str(self.get("HostKeyAlias") or self._orig_host)
        self._tokens["j"] = str(self.get("ProxyJump") or "")

    def _match(self, option: str, args: list[str]) -> None:
        self._set_tokens()
        for place, word in enumerate(args[:-1]):
            if word.lower().lstrip("!") == "exec":
                args[place + 1] = re.sub("%(.)", self._expand_token, args[place + 1])
        super()._match(option, args)

    _handlers = SSHClientConfig._handlers | {"match": ("Match", _match)}

    def get_options(self, reload: bool) -> dict[str, object]:
        """Returns the options read so far, also where AsyncSSH, which has no files to read again, starts over."""
        return super().get_options(reload=False)


_known = asyncssh.SSHKnownHosts()
require(
    "asyncssh",
    {
        "SSHKnownHosts._match": hasattr(_known, "_match") and len(_known._match("name", "", None)) == 7,
    },
)
