"""The requests that the server answers: those that address it by a name of its own and carry the token.

A request that gives no name, as HTTP/1.0 allows, does not come from a web site: browsers always send one.
"""

import hmac
from dataclasses import dataclass

from rudel.listening import is_own
from rudel.serve.body import Headers
from rudel.serve.refusal import Refusal


@dataclass(frozen=True)
class Guard:
    """Checks every request.

    Args:
        token: that requests must carry; None for none.
        is_local: whether the server listens on loopback, so that no name but this computer's can lead to it.
        allowed: other names under which it then answers, too, such as that of a proxy.
    """

    token: str | None
    is_local: bool
    allowed: tuple[str, ...] = ()

    def check(self, headers: Headers, is_open: bool) -> None:
        """Refuse a request that must not be answered.

        Args:
            headers: of the request.
            is_open: whether it needs no token.

        Raises:
            Refusal: the host name (403) or the token (401) is wrong.
        """
        if self.is_local and headers.host is not None and not is_own(headers.host, self.allowed):
            raise Refusal(
                403,
                "The header `Host` names another computer: use `localhost`, or behind a proxy start the server with "
                "`--allow-host NAME`.",
            )
        if self.token is not None and not is_open and not self._is_shown(headers.authorization):
            raise Refusal(
                401,
                "A token is required: send the header `Authorization: Bearer TOKEN`.",
                ((b"www-authenticate", b"Bearer"),),
            )

    def _is_shown(self, authorization: bytes) -> bool:
        assert self.token is not None
        scheme, _, shown = authorization.partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(shown.strip(b" "), self.token.encode())
