"""Files become the same pixels in a SavedModel as in training, to the last bit."""

import io
import os
import struct
import subprocess
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from rudel.data.exif import orientation
from rudel.data.photographs import decode
from rudel.export.process import ENVIRONMENT

SHAPES = [(64, 64, 3), (20, 33, 1)]

IN_A_GRAPH = """
import ast, pathlib, sys
import numpy as np
import tensorflow as tf
from rudel.export.converter.photographs import decode_all

files = tf.constant([path.read_bytes() for path in sorted(pathlib.Path("files").iterdir())])
for number, shape in enumerate(ast.literal_eval(sys.argv[1])):
    spec = [tf.TensorSpec([None], tf.string)]
    decode = tf.function(lambda files: decode_all(files, *shape), input_signature=spec, autograph=False)
    np.save(f"{number}.npy", decode(files).numpy())
"""


def in_a_graph(python: str, contents: list[bytes], folder: Path) -> list[np.ndarray]:
    """What TensorFlow makes of files, for every shape."""
    (folder / "files").mkdir()
    for number, content in enumerate(contents):
        (folder / "files" / f"{number:05d}").write_bytes(content)
    words = [python, "-c", IN_A_GRAPH, str(SHAPES)]
    done = subprocess.run(words, cwd=folder, env=os.environ | ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [np.load(folder / f"{number}.npy") for number in range(len(SHAPES))]


def encoded(picture: Image.Image, form: str, **options: Any) -> bytes:
    content = io.BytesIO()
    picture.save(content, form, **options)
    return content.getvalue()


def picture(random: np.random.Generator, height: int, width: int, channels: int = 3) -> Image.Image:
    """Soft spots of colour."""
    coarse = random.integers(0, 256, (height // 9 + 2, width // 7 + 2, channels), np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def grey_png(random: np.random.Generator, bits: int, transparent: int | None = None) -> bytes:
    """A PNG with so many bits a pixel, as Pillow does not write it, and its transparent grey level."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = b"".join(b"\0" + row.tobytes() for row in random.integers(0, 256, (11, 3), np.uint8))
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 24 // bits, 11, bits, 0, 0, 0, 0))
    head += chunk(b"tRNS", struct.pack(">H", transparent)) if transparent is not None else b""
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def exif(orientation: int) -> Image.Exif:
    block = Image.Exif()
    block[0x010F] = "a camera"
    block[0x0112] = orientation
    return block


def kinds() -> dict[str, bytes]:
    """A file of every kind that differs in how it is decoded."""
    random = np.random.default_rng(0)
    soft = [picture(random, *size) for size in ((90, 70), (40, 200), (7, 5), (700, 500), (1, 1), (300, 900))]
    files = {
        f"jpeg {number} {subsampling}": encoded(each, "JPEG", subsampling=subsampling, quality=60 + number)
        for number, each in enumerate(soft)
        for subsampling in (0, 1, 2)
    }
    files |= {f"png {number}": encoded(each, "PNG") for number, each in enumerate(soft)}
    for number in range(10):
        files[f"jpeg turned {number}"] = encoded(soft[0], "JPEG", exif=exif(number))
        files[f"png turned {number}"] = encoded(soft[1], "PNG", exif=exif(number))
    plain = soft[0]
    translucent = plain.convert("RGBA")
    translucent.putalpha(picture(random, 90, 70).convert("L"))
    shades = np.asarray(plain.convert("L")).astype(np.uint16) * 256 + 99
    one = tuple(np.asarray(plain)[0, 0].tolist())
    return files | {
        "progressive": encoded(soft[3], "JPEG", progressive=True),
        "grey jpeg": encoded(soft[3].convert("L"), "JPEG"),
        "cmyk": encoded(plain.convert("CMYK"), "JPEG"),
        "palette": encoded(plain.quantize(40), "PNG"),
        "palette with a hole": encoded(plain.quantize(40), "PNG", transparency=3),
        **{f"palette of {count}": encoded(plain.quantize(count), "PNG") for count in (2, 4, 16)},
        **{
            f"palette of {count} with a hole": encoded(plain.quantize(count), "PNG", transparency=1)
            for count in (2, 16)
        },
        "grey png": encoded(plain.convert("L"), "PNG"),
        "grey and translucent": encoded(translucent.convert("LA"), "PNG"),
        "translucent": encoded(translucent, "PNG"),
        "one colour transparent": encoded(plain, "PNG", transparency=one),
        "16 bits": encoded(Image.fromarray(shades), "PNG"),
        "16 bits, one transparent": encoded(Image.fromarray(shades), "PNG", transparency=int(shades[0, 0])),
        "animated": encoded(plain, "PNG", save_all=True, append_images=[plain.rotate(180)]),
        **{f"{bits} bits": grey_png(random, bits) for bits in (1, 2, 4, 8)},
        **{
            f"{bits} bits, {level} transparent": grey_png(random, bits, level) for bits in (1, 2, 4) for level in (0, 1)
        },
        **{
            f"odd margin, turned {number}": encoded(picture(random, 41, 30), "PNG", exif=exif(number))
            for number in range(1, 9)
        },
    }


def with_damaged_exif(count: int) -> dict[str, bytes]:
    """JPEG and PNG files in whose EXIF blocks bytes are changed."""
    random = np.random.default_rng(1)
    files = {}
    for number in range(count):
        form = ("JPEG", "PNG")[number % 2]
        content = bytearray(encoded(picture(random, 30, 50), form, exif=exif(6)))
        start = content.index(b"Exif\0\0" if form == "JPEG" else b"eXIf")
        size = 40 + 6 * (form == "JPEG")
        for _ in range(random.integers(1, 4)):
            content[start + random.integers(4, size)] = random.choice([0, 1, 3, 6, 8, 18, 42, 73, 77, 255])
        if form == "PNG":  # else it is another mistake, which Pillow sees
            end = start + 4 + int.from_bytes(content[start - 4 : start], "big")
            content[end : end + 4] = struct.pack(">I", zlib.crc32(content[start:end]))
        files[f"damaged exif {number}"] = bytes(content)
    return files


def pick(random: np.random.Generator, texts: list[bytes]) -> bytes:
    return texts[random.integers(len(texts))]  # NumPy's own choice drops zeros at the end


def with_odd_segments(count: int) -> dict[str, bytes]:
    """JPEG files with bytes between their segments, and with several EXIF segments, some of which are cut."""
    random = np.random.default_rng(2)
    fill = [b"", b"", b"\xff", b"\xff\xff\xff", b"\xff\0", b"\0", b"text"]
    plain = encoded(picture(random, 30, 50), "JPEG")
    files = {}
    for number in range(count):
        content = b"\xff\xd8" + pick(random, fill[:-2])
        for _ in range(random.integers(1, 4)):
            order, mark = (("<", b"II"), (">", b"MM"))[random.integers(2)]
            kind, value = random.choice([3, 3, 4, 7]), random.integers(0, 10)
            entry = struct.pack(f"{order}HHI", 0x0112, kind, random.choice([1, 1, 2]))
            entry += struct.pack(f"{order}{'I' if kind == 4 else 'Hxx'}", value)
            block = struct.pack(f"{order}2sHIH", mark, 42, 8, 1) + entry + bytes(4)
            block = b"Exif\0\0" * random.integers(1, 3) + block[: random.choice([8, 16, 30, 30, 30])]
            marker = random.choice([0xE1, 0xE1, 0xE1, 0xE2, 0xFE])
            content += struct.pack(">BBH", 0xFF, marker, len(block) + 2) + block + pick(random, fill)
        files[f"odd segments {number}"] = content + plain[2:]
    return files


def test_a_graph_decodes_to_the_same_bits(shared_data: Path, tmp_path: Path, warm_python: str) -> None:
    photographs = sorted((shared_data / "sign-digits").glob("*/*.JPG"))
    chosen = [path for path in photographs if path.stat().st_size > 200_000] + photographs[::15]
    files = {path.name: path.read_bytes() for path in chosen} | kinds()
    files |= with_damaged_exif(60) | with_odd_segments(120)

    for shape, found in zip(SHAPES, in_a_graph(warm_python, list(files.values()), tmp_path), strict=True):
        expected = np.stack([decode(content, *shape) for content in files.values()])
        differing = (found != expected).reshape(len(files), -1).any(1)
        assert [name for name, differs in zip(files, differing, strict=True) if differs] == []
        turned = {orientation(content) for name, content in files.items() if name.startswith("odd")}
        assert turned == set(range(9))
        assert len({found[list(files).index(f"png turned {number}")].tobytes() for number in range(1, 9)}) == 8
