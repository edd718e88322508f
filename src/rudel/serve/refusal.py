"""The answer to a request that gets no result: a status and one sentence."""

from collections.abc import Sequence

Headers = Sequence[tuple[bytes, bytes]]

CLOSE: Headers = ((b"connection", b"close"),)
AGAIN: Headers = ((b"retry-after", b"1"),)

NOTHING_HERE = "There is nothing here; /openapi.json lists all paths."


class Refusal(Exception):  # noqa: N818  # it is an answer, and no failure of the server
    """Raised wherever it is found out that a request cannot be answered.

    Args:
        status: of HTTP.
        sentence: what is wrong, for the client.
        headers: to be sent with it.
    """

    def __init__(self, status: int, sentence: str, headers: Headers = ()) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.headers = headers


class ClientGoneError(Exception):
    """The client has closed its connection: nobody waits for an answer."""


def bad(sentence: str) -> Refusal:
    """A refusal of what the client has sent."""
    return Refusal(400, sentence)


def missing(sentence: str) -> Refusal:
    """A refusal of a name that does not exist."""
    return Refusal(404, sentence)


def busy(sentence: str) -> Refusal:
    """A refusal because there is too much to do; the client may try again."""
    return Refusal(503, sentence, AGAIN)
