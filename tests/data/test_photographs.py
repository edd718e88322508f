"""Photographs as inputs: whatever a file holds, upright and in the right colours; else refused in one sentence."""

import contextlib
import functools
import io
import re
import struct
import subprocess
import sys
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from rudel.data.exif import orientation
from rudel.data.images.jpeg import frame, segments
from rudel.data.photographs import MOST_PIXELS, decode, middle
from rudel.data.pictures import read_input
from rudel.errors import DataError

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)

PUTS_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What has to be done to a picture as it is stored, by its EXIF orientation."""

UNDONE_BY = {
    Image.Transpose.ROTATE_270: Image.Transpose.ROTATE_90,
    Image.Transpose.ROTATE_90: Image.Transpose.ROTATE_270,
}


def encoded(picture: Image.Image, form: str, **options: Any) -> bytes:
    content = io.BytesIO()
    picture.save(content, form, **options)
    return content.getvalue()


def quarters(height: int = 40, width: int = 60) -> Image.Image:
    """Red and green above, blue and white below."""
    pixels = np.zeros((height, width, 3), np.uint8)
    for row, column, colour in ((0, 0, RED), (0, 1, GREEN), (1, 0, BLUE), (1, 1, WHITE)):
        rows, columns = np.arange(height) * 2 // height == row, np.arange(width) * 2 // width == column
        pixels[np.ix_(rows, columns)] = colour
    return Image.fromarray(pixels)


def noise(height: int, width: int, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


def flat(colour: Any, mode: str = "RGB") -> Image.Image:
    return Image.new(mode, (9, 9), colour)


def png_header(width: int, height: int) -> bytes:
    """A PNG that says it is so large, and has nearly nothing in it."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


def jpeg_header(width: int, height: int) -> bytes:
    """A JPEG that says it is so large."""
    content = encoded(flat("red"), "JPEG")
    frame = content.index(b"\xff\xc0")
    return content[: frame + 5] + struct.pack(">HH", height, width) + content[frame + 9 :]


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("number", range(1, 9))
def test_pictures_are_turned_upright(number: int, form: str) -> None:
    stored = quarters()
    if number in PUTS_UPRIGHT:
        upright = PUTS_UPRIGHT[number]
        stored = stored.transpose(UNDONE_BY.get(upright, upright))
    exif = Image.Exif()
    exif[0x010E] = "a picture"
    exif[0x0112] = number
    content = encoded(stored, form, exif=exif)
    assert orientation(content) == number
    pixels = decode(content, 20, 30).astype(int)
    corners = pixels[[2, 2, -3, -3], [2, -3, 2, -3]]
    assert np.abs(corners - [RED, GREEN, BLUE, WHITE]).max() < 20


@pytest.mark.parametrize("number", range(2, 9))
def test_what_is_cut_off_is_that_of_the_upright_image_where_the_margin_is_odd(number: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = number
    for height, width in ((30, 41), (41, 30)):
        upright, undone = noise(height, width), PUTS_UPRIGHT[number]
        content = encoded(upright.transpose(UNDONE_BY.get(undone, undone)), "PNG", exif=exif)
        pixels = [decode(file, 30, 30).astype(int) for file in (content, encoded(upright, "PNG"))]
        assert np.abs(pixels[0] - pixels[1]).max() <= 1


def tiff_block(random: Random) -> bytes:
    """A TIFF block as EXIF has them: mostly with an orientation, in mostly one entry of mostly the right type."""
    order = random.choice("<>")
    entries = [
        (random.choice([0x0112, 0x0112, 0x010F, 0x8769]), random.choice([3, 3, 3, 4, 0, 99]),
         random.choice([1, 1, 1, 2, 0]), random.randint(0, 9))
        for _ in range(random.randint(0, 4))
    ]  # fmt: skip
    gap = random.randint(0, 3)
    content = struct.pack(f"{order}2sHI", b"II" if order == "<" else b"MM", 42, 8 + gap) + bytes(gap)
    content += struct.pack(f"{order}H", len(entries))
    for tag, kind, count, value in entries:
        form = "I" if kind == 4 else "Hxx"
        if kind == 4 and tag == 0x0112:
            count = min(count, 1)  # more are elsewhere, where Rudel does not look
        content += struct.pack(f"{order}HHI{form}", tag, kind, count, value)
    content += bytes(4)
    return content[: random.choice([len(content), random.randint(0, len(content))])]


@functools.cache
def teal(width: int) -> bytes:
    return encoded(Image.new("RGB", (width, 7), "teal"), "JPEG")


def jpeg(random: Random) -> bytes:
    """A JPEG file with all that may be between and in its segments, before the first scan."""

    def segment(marker: int, content: bytes) -> bytes:
        return bytes([0xFF, marker]) + struct.pack(">H", len(content) + 2) + content

    def part() -> bytes:
        if random.random() < 0.5:
            return segment(0xE1, b"Exif\0\0" * random.choice([1, 2]) + tiff_block(random))
        return segment(random.choice([0xE1, 0xE2, 0xE7, 0xFE]), random.randbytes(random.randint(0, 9)))

    fill = [b"", b"", b"\xff", b"\xff\xff\xff", b"\xff\0", b"\xff\xd3"]
    content = b"\xff\xd8" + random.choice(fill)  # Pillow asks for a marker here
    for _ in range(random.randint(0, 4)):
        content += part() + random.choice([random.choice(fill), b"\0", b"text"])
    return content + teal(random.randint(1, 40))[2:]


@given(content=st.randoms(use_true_random=True).map(jpeg))
@settings(max_examples=1500, deadline=None)
def test_jpegs_say_the_same_to_us_and_to_pillow(content: bytes) -> None:
    with warnings.catch_warnings(), contextlib.suppress(SyntaxError):  # Pillow refuses blocks that are not TIFF
        warnings.simplefilter("ignore")
        picture = Image.open(io.BytesIO(content))
        found = frame(content)
        assert (found.width, found.height) == picture.size
        turned = picture.getexif().get(0x0112, 0)
        assert orientation(content) == (turned if turned in range(1, 9) else 0)


def test_a_fill_byte_before_the_exif_segment_does_not_hide_it() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    content = encoded(quarters(), "JPEG", exif=exif)
    place = content.index(b"\xff\xe1")
    assert orientation(content[:place] + b"\xff" + content[place:]) == 6


@pytest.mark.parametrize(
    ("content", "colour"),
    [
        pytest.param(encoded(flat((200, 100, 50)).quantize(4), "PNG"), (200, 100, 50), id="palette"),
        pytest.param(encoded(flat(0xC8FF, "I;16"), "PNG"), (200, 200, 200), id="16 bits"),
        pytest.param(encoded(flat(0xC8FF, "I"), "TIFF"), (200, 200, 200), id="16 of 32 bits"),
        pytest.param(encoded(flat(200, "I"), "TIFF"), (200, 200, 200), id="8 of 32 bits"),
        pytest.param(encoded(flat((200, 100, 50, 0), "RGBA"), "PNG"), WHITE, id="transparent"),
        pytest.param(encoded(flat((200, 100, 50, 51), "RGBA"), "PNG"), (244, 224, 214), id="a fifth opaque"),
        pytest.param(encoded(flat((200, 51), "LA"), "PNG"), (244, 244, 244), id="grey, a fifth opaque"),
        pytest.param(encoded(flat((200, 100, 50)), "PNG", transparency=(200, 100, 50)), WHITE, id="one colour"),
        pytest.param(encoded(flat(1, "1"), "PNG"), WHITE, id="one bit"),
        pytest.param(encoded(flat(120, "L"), "JPEG"), (120, 120, 120), id="grey"),
        pytest.param(encoded(flat((55, 155, 205, 0), "CMYK"), "JPEG", quality=100), (200, 100, 50), id="CMYK"),
        pytest.param(encoded(flat((200, 100, 50)), "BMP"), (200, 100, 50), id="BMP"),
        pytest.param(encoded(flat((200, 100, 50)), "JPEG", progressive=True), (200, 100, 50), id="progressive"),
        *(
            pytest.param(
                encoded(flat((200, 100, 50)), form, save_all=True, append_images=[flat("blue")]),
                (200, 100, 50),
                id=form,
            )
            for form in ("GIF", "WEBP", "PNG")
        ),
    ],
)
def test_every_kind_of_file_has_its_colours(content: bytes, colour: tuple[int, int, int]) -> None:
    pixels = decode(content, 5, 7)
    assert (pixels.shape, pixels.dtype) == ((5, 7, 3), np.uint8)
    assert np.abs(pixels.astype(int) - colour).max() <= 2
    grey = decode(content, 5, 7, 1)
    assert grey.shape == (5, 7, 1)
    assert np.abs(grey - np.dot(colour, (0.299, 0.587, 0.114))).max() <= 2.5


def test_shapes_stay_as_they_are_and_the_edges_are_cut_off() -> None:
    pixels = np.zeros((30, 90, 3), np.uint8)
    pixels[:, 30:60] = 200
    assert (decode(encoded(Image.fromarray(pixels), "PNG"), 30, 30) == 200).all()
    turned = encoded(Image.fromarray(pixels.swapaxes(0, 1)), "PNG")
    assert (decode(turned, 30, 30) == 200).all()
    assert middle(1000, 1, 3, 500) == (499, 0, 500, 1)


@pytest.mark.parametrize(("height", "width"), [(64, 64), (100, 100), (7, 5), (301, 40), (1, 1)])
def test_scaling_is_pillows(height: int, width: int) -> None:
    picture = noise(height, width)
    expected = np.asarray(picture.resize((64, 64), Image.Resampling.BILINEAR, box=middle(width, height, 64, 64)))
    pixels = decode(encoded(picture, "PNG"), 64, 64)
    assert np.abs(pixels.astype(int) - expected).max() <= 1  # which direction is first is Pillow's choice


def test_large_photographs_are_as_good_as_decoded_in_full(shared_data: Path) -> None:
    large = [path for path in (shared_data / "sign-digits").glob("*/*.JPG") if path.stat().st_size > 200_000]
    assert len(large) == 3
    for path in large:
        picture = ImageOps.exif_transpose(Image.open(path))
        assert picture.size == (3024, 3024)
        whole = np.asarray(picture.resize((64, 64), Image.Resampling.BILINEAR))
        difference = np.abs(decode(path.read_bytes(), 64, 64).astype(int) - whole)
        assert (difference.max(), difference.mean()) <= (1, 0.2)


def test_threads_decode_the_same(shared_data: Path) -> None:
    contents = [path.read_bytes() for path in sorted((shared_data / "sign-digits/7").iterdir())[:60]]
    alone = [decode(content, 32, 32) for content in contents]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda content: decode(content, 32, 32), contents))
    np.testing.assert_array_equal(alone, together)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is not an image"),
        (b"a text\n", "is not an image"),
        (encoded(flat("red"), "PPM"), "give JPEG, PNG, WebP, AVIF, GIF, BMP or TIFF"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "is not an image"),
        *((encoded(noise(40, 40), form)[:-900], "is damaged or truncated") for form in ("JPEG", "PNG", "BMP")),
        (encoded(noise(40, 40), "AVIF").replace(b"iloc", b"none"), "is damaged or truncated"),
        (re.sub(b"(?<=mdat).{20}", bytes(20), encoded(noise(40, 40), "AVIF"), flags=re.S), "is damaged or truncated"),
        (encoded(noise(40, 40), "JPEG")[:10], "my.jpg is"),
        (png_header(0, 5), "is not an image"),
        (png_header(10_000, 9_000), f"more than {MOST_PIXELS:,} pixels"),
        (png_header(60_000, 60_000), f"more than {MOST_PIXELS:,} pixels"),
        (jpeg_header(60_000, 60_000), f"more than {MOST_PIXELS:,} pixels"),
    ],
)
def test_what_is_refused_is_one_sentence(content: bytes, words: str) -> None:
    with pytest.raises(DataError) as refused:
        decode(content, 8, 8, name="my.jpg")
    message = str(refused.value)
    assert words in message
    assert message.startswith("my.jpg ")
    assert message.endswith(".")
    assert "\n" not in message


def test_an_image_of_which_pillow_only_warns_is_refused() -> None:
    refused = pytest.raises(DataError, match=f"more than {MOST_PIXELS:,} pixels")
    with refused, pytest.warns(Image.DecompressionBombWarning):
        decode(png_header(10_000, 9_000), 8, 8)


def test_warnings_of_the_process_stay_as_they_are() -> None:
    program = (
        "import io, warnings; from PIL import Image; from rudel.data.photographs import decode\n"
        "file, before = io.BytesIO(), warnings.filters[:]\n"
        "Image.new('L', (8, 8)).save(file, 'PNG')\n"
        "decode(file.getvalue(), 8, 8)\n"
        "assert warnings.filters == before"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def with_scans(picture: Image.Image, more: int) -> bytes:
    """A progressive JPEG with its last scan, of a few bytes, so many times more."""
    content = encoded(picture, "JPEG", progressive=True)
    last = content[content.rindex(b"\xff\xda") : -2]
    return content[:-2] + last * more + content[-2:]


def test_a_jpeg_of_many_scans_is_refused_however_they_are_hidden() -> None:
    content = with_scans(flat("teal"), 100)
    comment = b"\xff\xfe\0\x04\xff\xd9"  # looks like the end of the image
    scan = content.index(b"\xff\xda")
    last = content.rindex(b"\xff\xda")
    within = content[:last] + comment + content[last:]
    before = content[:scan] + comment * 5000 + content[scan:]
    for hostile in (content, within, before):
        with pytest.raises(DataError, match=r"my\.jpg is a JPEG of more than 64 scans: save it"):
            decode(hostile, 8, 8, name="my.jpg")


def test_what_looks_like_scans_beside_the_image_does_not_count() -> None:
    like = b"\xff\xda" * 100
    content = with_scans(flat((200, 100, 50)), 50)
    application = b"\xff\xe4" + struct.pack(">H", len(like) + 2) + like
    pixels = decode(content[:2] + application + content[2:] + like, 5, 7)
    assert np.abs(pixels.astype(int) - (200, 100, 50)).max() <= 2


def test_millions_of_segments_are_not_walked_through() -> None:
    content = encoded(flat("teal"), "JPEG")
    flood = content[:2] + b"\xff\xe0\0\x02" * (1 << 20)
    assert len(list(segments(flood + content[2:]))) == 4096
    with pytest.raises(DataError, match="ends before its frame begins"):
        decode(flood, 8, 8)


SOUND = [
    encoded(noise(20, 30), form, **options)
    for form, options in (
        ("JPEG", {"exif": b"Exif\0\0MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0"}),
        ("JPEG", {"progressive": True}),
        ("PNG", {"exif": b"II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0\0\0\0\0"}),
        ("WEBP", {}),
        ("GIF", {}),
        ("BMP", {}),
        ("AVIF", {}),
        ("TIFF", {}),
    )
]


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(SOUND),
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 255)), max_size=6),
    st.integers(0, 3000) | st.none(),
)
def test_damaged_files_are_pictures_or_refused(content: bytes, changes: Any, end: int | None) -> None:
    damaged = bytearray(content)
    for place, value in changes:
        damaged[place % len(damaged)] = value
    with contextlib.suppress(DataError):
        assert decode(bytes(damaged[:end]), 8, 8).shape == (8, 8, 3)


@pytest.mark.parametrize("shape", [(16, 24, 3), (16, 24, 1), (16, 24)])
def test_predict_reads_files_as_training_does(tmp_path: Path, shape: tuple[int, ...]) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(encoded(noise(50, 90), "JPEG"))
    rows = read_input(path, shape)
    channels = shape[2] if len(shape) == 3 else 1
    np.testing.assert_array_equal(rows, decode(path.read_bytes(), 16, 24, channels).reshape(1, *shape))
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(DataError, match=r"photo\.jpg is damaged or truncated"):
        read_input(path, shape)
    with pytest.raises(DataError, match=r"takes inputs of shape \(5, 7, 2\)"):
        read_input(path, (5, 7, 2))
    (tmp_path / "photo.avif").write_bytes(encoded(noise(40, 40), "AVIF").replace(b"iloc", b"none"))
    with pytest.raises(DataError, match=r"photo\.avif cannot be read as an image"):
        read_input(tmp_path / "photo.avif", shape, np.asarray)
