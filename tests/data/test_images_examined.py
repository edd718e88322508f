"""Pictures pass as they are, are made anew, or are left out."""

import io
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from rudel.data.images import examined_image
from rudel.data.images.examined_image import ExaminedImage, Refused, examine
from rudel.data.photographs import MOST_PIXELS, decode
from rudel.errors import DataError


@pytest.fixture(scope="module")
def scene() -> Image.Image:
    """90 x 70 pixels, smooth and colourful, nowhere symmetric."""
    coarse = np.random.default_rng(0).integers(0, 255, (7, 9, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((90, 70), Image.Resampling.BICUBIC)


def encoded(image: Image.Image, form: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def made_anew(found: ExaminedImage | Refused) -> Image.Image:
    assert isinstance(found, ExaminedImage)
    assert found.content is not None
    image = Image.open(io.BytesIO(found.content))
    image.load()
    assert image.size == (found.width, found.height)
    return image


def apart(one: Image.Image, other: Image.Image) -> float:
    return float(np.abs(np.asarray(one.convert("RGB"), int) - np.asarray(other.convert("RGB"), int)).mean())


@pytest.mark.parametrize(
    ("form", "mode", "options"),
    [
        ("JPEG", "RGB", {}),
        ("JPEG", "RGB", {"progressive": True}),
        ("JPEG", "RGB", {"subsampling": 0, "comment": b"of a picture" * 99}),
        ("JPEG", "RGB", {"restart_marker_rows": 1}),
        ("JPEG", "L", {}),
        ("PNG", "RGB", {}),
        ("PNG", "RGBA", {}),
        ("PNG", "P", {}),
        ("PNG", "1", {}),
        ("PNG", "I;16", {}),
    ],
)
def test_whole_upright_pictures_pass_as_they_are(
    scene: Image.Image, form: str, mode: str, options: dict[str, Any]
) -> None:
    image = Image.new("I;16", scene.size, 40_000) if mode == "I;16" else scene.convert(mode)
    assert examine(encoded(image, form, **options)) == ExaminedImage(70, 90)


def test_an_orientation_of_1_changes_nothing(scene: Image.Image) -> None:
    assert examine(encoded(scene, "JPEG", exif=_turned(1))) == ExaminedImage(70, 90)


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
@pytest.mark.parametrize("orientation", range(2, 9))
def test_turned_pictures_become_upright(scene: Image.Image, form: str, orientation: int) -> None:
    content = encoded(scene, form, exif=_turned(orientation))
    found = examine(content)
    assert isinstance(found, ExaminedImage)
    assert (examined_image.UPRIGHT in found.changes) == (form != "TIFF")  # which Pillow turns itself
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
    image = made_anew(found)
    assert apart(image, upright) < 2.5
    assert "exif" not in image.info  # nobody turns it again


def _turned(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def test_cmyk_becomes_rgb(scene: Image.Image) -> None:
    content = encoded(scene.convert("CMYK"), "JPEG", quality=95, subsampling=0)
    found = examine(content)
    image = made_anew(found)
    assert isinstance(found, ExaminedImage)
    assert found.changes == (examined_image.FROM_CMYK,)
    assert (image.format, image.mode) == ("JPEG", "RGB")
    assert apart(image, Image.open(io.BytesIO(content)).convert("RGB")) < 2


@pytest.mark.parametrize(
    ("form", "options"), [("WEBP", {"lossless": True}), ("GIF", {}), ("BMP", {}), ("TIFF", {})], ids=str
)
def test_what_has_no_loss_becomes_png_without_a_loss(scene: Image.Image, form: str, options: dict[str, Any]) -> None:
    content = encoded(scene, form, **options)
    found = examine(content)
    assert isinstance(found, ExaminedImage)
    assert found.changes == (examined_image.RECODED,)
    assert made_anew(found).format == "PNG"
    assert apart(made_anew(found), Image.open(io.BytesIO(content))) == 0


def test_webp_with_losses_becomes_jpeg(scene: Image.Image) -> None:
    content = encoded(scene, "WEBP", quality=90)
    image = made_anew(examine(content))
    assert image.format == "JPEG"
    assert apart(image, Image.open(io.BytesIO(content))) < 2.5


def test_transparency_is_kept(scene: Image.Image) -> None:
    clear = scene.convert("RGBA")
    clear.putalpha(Image.linear_gradient("L").resize(scene.size))
    content = encoded(clear, "WEBP", lossless=True)
    made = examine(content)
    assert isinstance(made, ExaminedImage)
    assert made.content is not None
    assert (decode(made.content, 70, 90) == decode(content, 70, 90)).all()


def test_an_uncommon_jpeg_is_written_as_a_common_one(scene: Image.Image) -> None:
    common = encoded(scene, "JPEG")
    start = common.index(b"\xff\xc0")
    uncommon = common[: start + 1] + b"\xc9" + common[start + 2 :]  # says that it has arithmetic codes
    found = examine(uncommon)
    assert isinstance(found, Refused) or found.content is not None


@pytest.mark.parametrize(
    ("form", "mode"), [("JPEG", "RGB"), ("JPEG", "L"), ("PNG", "RGB"), ("PNG", "P"), ("PNG", "I;16")]
)
def test_large_pictures_are_made_smaller(scene: Image.Image, form: str, mode: str) -> None:
    large = scene.resize((900, 700))
    image = Image.new("I;16", large.size, 40_000) if mode == "I;16" else large.convert(mode)
    found = examine(encoded(image, form), max_side=90)
    assert isinstance(found, ExaminedImage)
    assert (found.height, found.width, found.changes) == (70, 90, (examined_image.SHRUNK,))
    made = made_anew(found)
    assert made.format == form
    assert apart(made, image.resize((90, 70)) if mode in ("RGB", "L") else made) < 4
    if mode == "I;16":
        assert np.asarray(made).max() == 40_000 >> 8


def test_small_pictures_stay_under_max_side(scene: Image.Image) -> None:
    assert examine(encoded(scene, "JPEG"), max_side=90) == ExaminedImage(70, 90)


@pytest.mark.parametrize(
    ("form", "size"), [("JPEG", (65_000, 65_000)), ("PNG", (9_500, 9_500)), ("PNG", (40_000, 40_000))]
)
def test_decompression_bombs_are_left_out_undecoded(form: str, size: tuple[int, int]) -> None:
    small = encoded(Image.new("L", (8, 8)), form)
    width, height = size
    if form == "JPEG":
        place = small.index(b"\xff\xc0") + 5
        content = small[:place] + height.to_bytes(2, "big") + width.to_bytes(2, "big") + small[place + 4 :]
    else:
        import zlib

        header = b"IHDR" + width.to_bytes(4, "big") + height.to_bytes(4, "big") + small[24:29]
        content = small[:12] + header + zlib.crc32(header).to_bytes(4, "big") + small[33:]
    assert width * height > MOST_PIXELS
    found = examine(content)
    assert isinstance(found, Refused)
    assert found.reason == examined_image.TOO_LARGE


@pytest.mark.parametrize("form", ["GIF", "WEBP", "PNG"])
def test_animated_pictures_are_left_out(scene: Image.Image, form: str) -> None:
    content = encoded(scene, form, save_all=True, append_images=[ImageOps.mirror(scene)])
    assert examine(content) == Refused(examined_image.ANIMATED, f"2 pictures in one {form} file")


def test_a_jpeg_with_a_second_picture_behind_it_is_its_first(scene: Image.Image) -> None:
    content = encoded(scene, "MPO", save_all=True, append_images=[ImageOps.mirror(scene)])
    assert examine(content) == ExaminedImage(70, 90)
    assert isinstance(examine(content, max_side=45), ExaminedImage)


@pytest.mark.parametrize("content", [b"a text", b"\0" * 999, b"<svg/>", b"%PDF-1.7", b"P"], ids=str)
def test_what_is_no_picture_is_left_out(content: bytes) -> None:
    assert examine(content) == Refused(examined_image.NOT_AN_IMAGE)


def _damaged(whole: bytes, seed: int, number: int) -> Iterator[bytes]:
    chosen = random.Random(seed)
    for _ in range(number):
        yield whole[: chosen.randrange(3, len(whole))]
        flipped = bytearray(whole)
        for _ in range(chosen.randrange(1, 4)):
            flipped[chosen.randrange(len(flipped))] ^= 1 << chosen.randrange(8)
        yield bytes(flipped)


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("JPEG", {}),
        ("JPEG", {"progressive": True}),
        ("JPEG", {"restart_marker_rows": 1}),
        ("PNG", {}),
    ],
    ids=str,
)
def test_what_passes_is_what_decodes(scene: Image.Image, form: str, options: dict[str, Any]) -> None:
    """A scan that is read for its end alone finds what decoding in full finds: cut off, or with flipped bits."""
    refused = 0
    for content in _damaged(encoded(scene, form, **options), seed=1, number=120):
        passes = isinstance(examine(content), ExaminedImage)
        try:
            decode(content, 70, 90)
        except DataError:
            assert not passes
            refused += 1
        else:
            assert passes
    assert refused > 60


def test_a_photograph_cut_anywhere_is_unreadable(shared_data: Path) -> None:
    content = min((shared_data / "sign-digits/3").iterdir()).read_bytes()
    assert examine(content) == ExaminedImage(100, 100)
    for length in [*range(2, 300), *range(300, len(content), 97), len(content) - 1]:
        found = examine(content[:length])
        assert isinstance(found, Refused), length
        assert found.reason == examined_image.UNREADABLE
