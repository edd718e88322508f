"""Recipes: what to train. Each is a short file with `data(...) -> rudel.Dataset` and `model(dataset) -> keras.Model`.

The arguments of both functions are the recipe's options, which `rudel train RECIPE --set KEY=VALUE` sets. `training`, a
dict or a function of options that returns one, gives defaults for the arguments of `rudel.fit` (epochs or steps,
batch_size), and a function `read_image(image) -> array` says how `rudel predict` turns a Pillow image into an input,
and a function `evaluation(source, split, class_names) -> ToEvaluate` what all the examples at a source are.
Where the model's classes are not defined when the file is imported, a function `register_classes()` defines them.
"""

BUILT_IN = ("digits", "images", "keywords", "motion", "quickdraw", "recommend", "sine", "table")
"""Names of the modules in this package that are recipes."""

_FORMER = {"montagsmaler": "quickdraw", "signs": "images"}
"""Names that recipes had in version 0.1, which runs and commands may still have."""


def current_name(name: str) -> str:
    """The name of a recipe that may be given by a former one.

    >>> current_name("signs")
    'images'
    """
    return _FORMER.get(name, name)
