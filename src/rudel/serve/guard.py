"""Whom the server answers: those who ask for it by a name of its own, and show the token."""

import hmac
from dataclasses import dataclass

from rudel.own_names import is_own
from rudel.serve.body import Headers
from rudel.serve.refusal import Refusal


@dataclass(frozen=True)
class Guard:
    """What is asked of every request.

    Args:
        token: that clients have to show; None for none.
        is_local: whether the server listens on loopback, so that no name but this computer's can lead to it.
        allowed: other names by which it may be asked then, such as that of a proxy.
    """

    token: str | None
    is_local: bool
    allowed: tuple[str, ...] = ()

    def check(self, headers: Headers, is_open: bool) -> None:
        """Refuses a request that is not to be answered.

        Args:
            headers: of the request.
            is_open: whether it is answered without a token.

        Raises:
            Refusal: the name (403) or the token (401) is another.
        """
        if self.is_local and not is_own(headers.host, self.allowed):
            raise Refusal(
                403,
                "The server is asked for by a name that is not this computer's: ask `localhost`, or start it with "
                "`--allow-host NAME` behind a proxy.",
            )
        if self.token is not None and not is_open and not self._is_shown(headers.authorization):
            raise Refusal(
                401,
                "Show the token: send the header `Authorization: Bearer TOKEN`.",
                ((b"www-authenticate", b"Bearer"),),
            )

    def _is_shown(self, authorization: bytes) -> bool:
        assert self.token is not None
        scheme, _, shown = authorization.partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(shown.strip(b" "), self.token.encode())
