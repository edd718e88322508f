"""Limits of a server."""

from dataclasses import dataclass

from rudel.data.photographs import MOST_PIXELS


@dataclass(frozen=True)
class Limits:
    """Bounds on what clients may ask for, and on what the server keeps in memory for them.

    Args:
        batch: most examples that a model computes at once.
        delay: seconds that a request may wait for others to fill a batch, when the model is free; 0 for none.
        waiting: most requests that wait for one model.
        body: most bytes of a request.
        pixels: most of all images of a request together, before they are scaled; or samples, of all recordings.
        memory: most bytes of all requests that are being read, of those that wait to be parsed or decoded, and of all
            arrays that wait for one model.
        seconds: from the beginning of a request to its answer.
        connections: most that are open.
        quick: seconds; a model whose largest batch takes less is called where requests are read, because handing it to
            another thread takes longer.
        poll: seconds between two looks for new versions.
    """

    batch: int = 64
    delay: float = 0.0
    waiting: int = 512
    body: int = 16 << 20
    pixels: int = MOST_PIXELS
    memory: int = 256 << 20
    seconds: float = 30.0
    connections: int = 900
    quick: float = 2e-3
    poll: float = 1.0
