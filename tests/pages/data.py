"""Made-up data in the place of what pages fetch."""

import contextlib
import functools
import threading
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
from PIL import Image, ImageDraw


@contextlib.contextmanager
def drawings_served() -> Iterator[str]:
    """The address of a server with drawings."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Drawings)
    server.daemon_threads = False
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


class _Drawings(BaseHTTPRequestHandler):
    """Any class of drawings there could be, as Quick, Draw!'s bucket would serve it."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        content = _file_of_drawings(unquote(self.path).rpartition("/")[2])
        first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        part = content[first : last + 1]
        self.send_response(206)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(content)}")
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@functools.cache
def _file_of_drawings(name: str, count: int = 4000) -> bytes:
    random = np.random.default_rng(zlib.crc32(name.encode()))
    thing = random.integers(0, 2, 784, np.uint8) * 255
    smudges = random.integers(0, 4, (count, 784), np.uint8) == 0
    header = b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little")
    said = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({count}, 784), }}"
    return header + said.ljust(117).encode() + b"\n" + np.where(smudges, 255 - thing, thing).tobytes()


def make_signs(folder: Path, count: int = 12) -> None:
    """Ten folders with pictures of digits, named as the photographs of the data set are."""
    random = np.random.default_rng(0)
    for digit in range(10):
        (folder / str(digit)).mkdir(parents=True)
        for number in range(count):
            ground = random.integers(130, 255, 3)
            picture = Image.fromarray((ground + random.integers(-20, 20, (100, 100, 3))).clip(0, 255).astype(np.uint8))
            place = tuple(random.integers(10, 40, 2).tolist())
            ImageDraw.Draw(picture).text(place, str(digit), "black", font_size=60)
            picture.save(folder / str(digit) / f"IMG_{1118 + digit + 10 * number}.JPG")
