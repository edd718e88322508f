"""The files of the page, and the folder that they make with a model."""

import hashlib
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; manifest-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'"
)
"""The page's security policy: its own files alone, and compiling the model. It is in index.html too."""

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
}
"""Media types by ending."""

DESCRIPTION = "model.json"
"""The name under which the page requests `rudel.play.player.Player.description`."""

_WORKER = "worker.js"


_SHARED = ("base.css", "elements.js", "icon.svg", "opened-as-file.js", _WORKER)
"""Files of the page to draw on that the page of a sensor has too."""


def page_files(page: str = "page") -> dict[str, bytes]:
    """The files that are the same for every model, by name.

    Args:
        page: `page`, to draw on, or `sensor_page`.
    """
    folders = {folder: (files("rudel.play") / folder).iterdir() for folder in {"page", page}}
    return {
        file.name: file.read_bytes()
        for folder, found in folders.items()
        for file in found
        if file.is_file() and (folder == page or file.name in _SHARED)
    }


def write_page(folder: Path, description: dict[str, Any], page: str = "page") -> None:
    """Writes the page beside a model that is in the folder already, so that browsers can keep it all.

    Args:
        folder: where; whatever files are in it belong to the page.
        description: of the model.
        page: see `page_files`.
    """
    for name, content in page_files(page).items():
        (folder / name).write_bytes(content)
    (folder / DESCRIPTION).write_text(json.dumps(description, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != _WORKER)
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]
    names = ["./", *(path.relative_to(folder).as_posix() for path in paths)]
    worker = (folder / _WORKER).read_text(encoding="utf-8")
    worker = worker.replace('"VERSION"', json.dumps(digest)).replace('["FILES"]', json.dumps(names))
    (folder / _WORKER).write_text(worker, encoding="utf-8")
