"""Recommendations: two towers learn from made-up interactions what users would take next; the best result is known.

20,000 users of 64 tastes and 10,000 items by default. The tables can be cut over several devices (`--mesh model=4`).
"""

from typing import TYPE_CHECKING, Any

import numpy as np

import rudel
from rudel.errors import OptionError
from rudel.recipes.interactions import best_possible, draw, make_preferences

if TYPE_CHECKING:
    from rudel.recipes.interactions import Interactions

training = {"epochs": 3, "batch_size": 512}


def data(
    users: int = 20_000,
    items: int = 10_000,
    tastes: int = 64,
    history: int = 16,
    targets: int = 8,
    held_out: int = 4_000,
    seed: int = 0,
) -> rudel.Dataset:
    """Draws who took what.

    Args:
        users: how many.
        items: how many, all of which are ranked in an evaluation.
        tastes: number of tastes; a user has one of them.
        history: most items that a user is known to have taken before, of 3 at least.
        targets: training items per user.
        held_out: users of whom one more item is held out.
        seed: seed of the interactions.
    """
    _check(users, items, tastes, history, targets, held_out)
    preferences = make_preferences(items, tastes, seed)
    drawn = draw(preferences, users, history, targets, held_out, seed)
    found, expected = best_possible(preferences, drawn)
    everybody = np.repeat(np.arange(users, dtype=np.int32), targets)
    return rudel.Dataset(
        rudel.Examples(_inputs(drawn, everybody), drawn.targets.reshape(-1)),
        rudel.Examples(_inputs(drawn, drawn.held_out_users), drawn.held_out_items),
        notes=(
            f"Nobody can be expected to find more than {expected:.4f} of the held-out items among ten: who knows all "
            f"probabilities finds {found:.4f} of these.",
        ),
    )


def model(
    dataset: rudel.Dataset,
    steps: int = 1,
    users: int = 20_000,
    items: int = 10_000,
    dims: int = 64,
    dropout: float = 0.4,
    learning_rate: float = 3e-3,
) -> Any:
    """Two towers, whose tables have a row for each user and each item.

    Args:
        dataset: says how often each item is a target.
        steps: of the whole training, over which the learning rate falls to 0.
        users: rows of the users' table.
        items: rows of the items' table.
        dims: columns of the tables.
        dropout: share of what is known of a user to drop in training.
        learning_rate: initial learning rate of Adam.
    """
    import keras

    from rudel.recipes.two_tower import TwoTower

    made = TwoTower(users, items, dims, dropout, name="two_tower")
    made.set_shares(np.bincount(dataset.train.y, minlength=items))
    schedule: Any = keras.optimizers.schedules.CosineDecay(learning_rate, steps)
    made.compile(keras.optimizers.Adam(schedule))
    return made


def register_classes() -> None:
    """Makes Keras know the model's class, for those who read a model back."""
    import rudel.recipes.two_tower  # noqa: F401


def _inputs(drawn: "Interactions", users: np.ndarray) -> dict[str, np.ndarray]:
    return {"user": users, "history": drawn.history[users], "weights": drawn.counts[users]}


def _check(users: int, items: int, tastes: int, history: int, targets: int, held_out: int) -> None:
    least = {"users": (users, 1), "items": (items, 11), "tastes": (tastes, 1), "history": (history, 3)}
    least |= {"targets": (targets, 1), "held_out": (held_out, 1)}
    for name, (value, smallest) in least.items():
        if value < smallest:
            raise OptionError(f"`{name}` must be at least {smallest}, not {value}.")
    if held_out > users:
        raise OptionError(f"`held_out` must be at most the number of users, {users:,}, not {held_out:,}.")
