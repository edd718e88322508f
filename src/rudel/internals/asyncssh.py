"""Undocumented parts of AsyncSSH that Rudel uses: OpenSSH's configuration and known hosts."""

import itertools
import re
import shlex

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
        for name in (
            "load",
            "_percent_expand",
            "_no_split",
            "_handlers",
            "_match",
            "_set_bool",
            "_set_tokens",
            "_expand_token",
            "_error",
            "get_options",
        )
    },
)


def host_keys(known: asyncssh.SSHKnownHosts, name: str, port: int | None) -> list[asyncssh.SSHKey]:
    """The keys on lines for this very name and port; None is a line without a port."""
    return list(known._match(name, "", port)[0])


class ExpandedConfig(SSHClientConfig):
    """The configuration as OpenSSH reads it, with tokens and values that AsyncSSH does not know."""

    _percent_expand = SSHClientConfig._percent_expand | {"ProxyJump", "UserKnownHostsFile"}
    _no_split = SSHClientConfig._no_split | {"match"}

    def _set_tokens(self) -> None:
        super()._set_tokens()
        self._tokens["k"] = str(self.get("HostKeyAlias") or self._orig_host)
        self._tokens["j"] = str(self.get("ProxyJump") or "")

    def _match(self, option: str, args: list[str]) -> None:
        """Splits the line up to a comment, at spaces and `=`, but not in quotes, where AsyncSSH takes `=` away, too."""
        words = shlex.shlex(args.pop(), posix=True)
        words.whitespace, words.whitespace_split, words.commenters = " \t=", True, ""
        try:
            args += itertools.takewhile(lambda word: not word.startswith("#"), filter(None, words))
        except ValueError as error:
            self._error(str(error))
        if not args:
            self._error(f"Missing {option} value")
        self._set_tokens()
        for place, word in enumerate(args[:-1]):
            if word.lower().lstrip("!") == "exec":
                args[place + 1] = re.sub("%(.)", self._expand_token, args[place + 1])
        super()._match(option, args)

    def _set_public_key_authentication(self, option: str, args: list[str]) -> None:
        """Sets yes or no; two other values restrict how a forwarded agent may be used, and mean yes."""
        if args[0].lower() in ("unbound", "host-bound"):
            args[0] = "yes"
        self._set_bool(option, args)

    _handlers = SSHClientConfig._handlers | {
        "match": ("Match", _match),
        "pubkeyauthentication": ("PubkeyAuthentication", _set_public_key_authentication),
    }
    del _handlers["connecttimeout"]  # `rudel.cluster.ssh` has its own, and AsyncSSH does not know `none`

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
