"""A wheel of the very Rudel that runs here, also where it is installed for editing: hosts get what the driver has."""

import base64
import hashlib
import io
import zipfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import rudel

_LONG_AGO = (1980, 1, 1, 0, 0, 0)
_SKIPPED = ("__pycache__",)


@dataclass(frozen=True)
class OwnWheel:
    """A wheel in memory.

    Args:
        name: of the file.
        version: of Rudel.
        content: of the file; the same bytes for the same source.
    """

    name: str
    version: str
    content: bytes

    @property
    def sha256(self) -> str:
        """Of the content, in hexadecimal digits."""
        return hashlib.sha256(self.content).hexdigest()


def build_own_wheel() -> OwnWheel:
    """Packs the modules that `import rudel` finds here, with the metadata of the installed package.

    Format: the specification of binary distributions, https://packaging.python.org/specifications/binary-distribution-format.
    """
    version = rudel.__version__
    folder = f"rudel-{version}.dist-info"
    files = {f"rudel/{name}": content for name, content in _modules().items()}
    files[f"{folder}/METADATA"] = _metadata(version)
    files[f"{folder}/entry_points.txt"] = b"[console_scripts]\nrudel = rudel.cli.main:run\n"
    files[f"{folder}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: rudel\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = "".join(f"{name},sha256={_digest(content)},{len(content)}\n" for name, content in files.items())
    files[f"{folder}/RECORD"] = f"{record}{folder}/RECORD,,\n".encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, _LONG_AGO)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, content)
    return OwnWheel(f"rudel-{version}-py3-none-any.whl", version, packed.getvalue())


def _modules() -> dict[str, bytes]:
    root = Path(rudel.__file__).parent
    files = sorted(path for path in root.rglob("*") if path.is_file() and not set(_SKIPPED) & set(path.parts))
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files if path.suffix != ".pyc"}


def _metadata(version: str) -> bytes:
    lines = ["Metadata-Version: 2.1", "Name: rudel", f"Version: {version}", "Requires-Python: >=3.11"]
    lines += [f"Requires-Dist: {requirement}" for requirement in metadata.requires("rudel") or []]
    return ("\n".join(lines) + "\n").encode()


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
