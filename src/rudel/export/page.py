"""A page with the model in it, to draw on or with a sensor: a folder for any web server."""

import shlex
from pathlib import Path

from rudel.errors import ExportError
from rudel.export.compiled import wasm
from rudel.export.int8_model import Int8Model
from rudel.export.materials import Materials
from rudel.play.listener import Listener, listener_of
from rudel.play.page_files import write_page
from rudel.play.player import Player, player_of

_MODEL = "model"


def check(materials: Materials) -> Player | Listener:
    """Refuses a run whose inputs a page cannot make.

    Raises:
        ServeError: it neither guesses drawings nor recognises words or movements.
        ExportError: only Python can make its inputs.
    """
    if listener := listener_of(materials.run, materials.model):
        return listener
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


def page(model: Int8Model, made: Path, folder: Path) -> tuple[int, list[str]]:
    """Writes the page; a `Maker`."""
    assert model.materials is not None
    assert model.out is not None
    player = check(model.materials)
    (made / _MODEL).mkdir()
    size, notes = wasm(model, made / _MODEL, folder)
    (made / _MODEL / "package.json").unlink()
    write_page(made, player.description(f"{_MODEL}/{model.name}.js", offline=True), player.page)
    if isinstance(player, Listener):
        notes = [*notes, *player.notes]
    return size, [*notes, f"Try it: python3 -m http.server --directory {shlex.quote(str(model.out))}"]
