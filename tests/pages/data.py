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
import soundfile
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
    fields = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({count}, 784), }}"
    return header + fields.ljust(117).encode() + b"\n" + np.where(smudges, 255 - thing, thing).tobytes()


def make_words(folder: Path, count: int = 12) -> None:
    """Tones of ten pitches, named as the recordings of the Free Spoken Digit Dataset are."""
    random, n = np.random.default_rng(0), np.arange(3200) / 8000
    folder.mkdir(parents=True)
    for digit in range(10):
        for number in range(count):
            wave = random.uniform(0.1, 0.5) * np.sin(2 * np.pi * 300 * 1.25**digit * n)
            soundfile.write(folder / f"{digit}_{'abc'[number % 3]}_{number}.wav", wave, 8000)


def make_movements(folder: Path, count: int = 15) -> None:
    """Swings along one axis or another, as Arduino's IMU_Capture prints them."""
    random, t = np.random.default_rng(0), np.arange(119) / 119
    folder.mkdir()
    for axis, name in enumerate(("punch", "flex")):
        recordings = []
        for _ in range(count):
            rows = random.normal(size=(119, 6)) * [0.1, 0.1, 0.1, 20, 20, 20]
            rows[:, axis] += 3 * np.sin(2 * np.pi * random.uniform(3, 5) * t)
            rows[:, 3 + axis] += 300 * np.cos(2 * np.pi * 4 * t)
            recordings.append("\n".join(",".join(f"{value:.3f}" for value in row) for row in rows))
        (folder / f"{name}.csv").write_text("aX,aY,aZ,gX,gY,gZ\n" + "\n\n".join(recordings) + "\n")


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
