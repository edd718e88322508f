"""Undocumented parts of Pillow that Rudel uses: its JPEG decoder, without the reading of the file before."""

import io

from PIL import Image

from rudel.internals import require


def decode_jpeg(content: bytes, mode: str, width: int, height: int, shrink: int) -> Image.Image:
    """Decodes a JPEG at a fraction of its size. Releases the GIL.

    Args:
        content: the whole file.
        mode: "L" or "RGB", what the pixels shall be.
        width, height: of its frame.
        shrink: 1, 2, 4 or 8: by what sides are divided, rounded up.

    Raises:
        ValueError: the file is cut short or damaged.
    """
    size = -(-width // shrink), -(-height // shrink)
    return Image.frombytes(mode, size, content, "jpeg", (mode, "", shrink, 0))


def _works() -> bool:
    """Whether the decoder takes these arguments, shrinks, and refuses what is cut short."""
    file = io.BytesIO()
    Image.new("L", (16, 16), 200).save(file, "JPEG")
    content = file.getvalue()
    try:
        decoded = decode_jpeg(content, "L", 16, 16, 8)
    except Exception:
        return False
    try:
        decode_jpeg(content[: len(content) // 2], "L", 16, 16, 8)
    except ValueError:
        return decoded.size == (2, 2) and all(abs(level - 200) < 3 for level in decoded.tobytes())
    return False


require("pillow", {"the decoder `jpeg` of Image.frombytes": _works()})
