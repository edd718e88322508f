"""A page to draw on, with the model in it: a folder for any web server."""

from pathlib import Path
from typing import Any

from rudel.errors import ExportError
from rudel.export import compiled
from rudel.export.front import Front
from rudel.export.materials import Materials
from rudel.play.page import write_page
from rudel.play.player import Player, player_of

_MODEL = "model"


def check(materials: Materials) -> Player:
    """Refuses a run whose inputs a page cannot make.

    Raises:
        ServeError: it does not guess drawings.
        ExportError: only Python can make its inputs.
    """
    player = player_of(materials.run, materials.model)
    check_page(player, materials.recipe)
    return player


def check_page(player: Player, recipe: str) -> None:
    """Refuses what only a recipe can make inputs for.

    Raises:
        ExportError: only Python can make its inputs.
    """
    if player.drawing.by_recipe:
        raise ExportError(
            f"The recipe `{recipe}` has a `read_image` of its own, which a page without Python cannot call: "
            "use `rudel play`, or let it return rudel.data.pictures.ink_on_a_square(picture, ...)."
        )


def write(
    name: str,
    model: Path,
    materials: Materials,
    front: Front,
    about: list[dict[str, Any]],
    made: Path,
    raw: Path,
    folder: Path,
) -> tuple[int, list[str]]:
    """Writes the page.

    Args:
        name: of the model's files.
        model: a .tflite file in int8.
        materials: what the export started from.
        made: the folder to write to.
        front, about, raw, folder: see `rudel.export.compiled.write`.

    Returns:
        Bytes of the module, and notes.

    Raises:
        CompileError: the model cannot be compiled.
        ExportError: the result differs from LiteRT's in a bit.
    """
    player = check(materials)
    (made / _MODEL).mkdir()
    size, notes = compiled.write(
        "wasm", name, model, materials.recipe, made / _MODEL, raw, folder, front, about, materials.class_names
    )
    (made / _MODEL / "package.json").unlink()
    write_page(made, player.description(f"{_MODEL}/{name}.js", offline=True))
    return size, [*notes, f"Try it: python3 -m http.server --directory {made.name}"]
