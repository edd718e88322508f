"""What the evaluation measures: cells, each a strategy or a rival with a model, a number of hosts and a link speed."""

import fnmatch
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from evaluate_recipe import HIDDEN, RATE
from measure import BenchmarkError

BATCH_SIZE = 32
HOSTS, RATES = (1, 2, 4, 8), (5, 20, 100, 300, 1000)
ALONE = ("single", "single-ema")
"""One host: the recipe as it is, and with an exponential moving average of the weights."""

RUDEL = (*ALONE, "mesh", "diloco", "async")
RIVALS = ("mwms", "parameter-server", "ddp", "post-local-sgd", "flower")
CENTRE_HOSTS, CENTRE_RATES = 4, (100, 20)

EVERY_STEP = ("mesh", "mwms", "ddp")
"""Those that all-reduce gradients in every step: they learn what one host learns from the same steps."""

EXTRAPOLATED = (*ALONE, *EVERY_STEP, "parameter-server")
"""Those whose time is measured over some of the steps; the others train to the end, once for each seed."""


@dataclass(frozen=True)
class Net:
    """A model, and the job that it has.

    Args:
        title: for people.
        weights: how many it has.
        recipe: a built-in name, or the file of a recipe.
        steps: of the whole job, batches of 32 of all hosts together.
        target: validation accuracy to which time is measured; the median training on one host reaches it.
        eval_every: steps between two evaluations.
        alone_steps: that are timed on one host by itself.
        options: of the recipe.
        hidden: hidden layers, for rivals, which know MLPs only; empty where they do not know the model.
        learning_rate: of Adam, for rivals.
    """

    title: str
    weights: int
    recipe: str
    steps: int
    target: float
    eval_every: int
    alone_steps: int
    options: Mapping[str, str] = field(default_factory=dict)
    hidden: Sequence[int] = ()
    learning_rate: float = 1e-3


_OTHERS = str(Path(__file__).with_name("evaluate_recipe.py"))

MODELS: Mapping[str, Net] = {
    "mlp": Net("MLP", 204_301, "quickdraw", 8192, 0.80, 256, 4096, hidden=(256,)),
    "cnn": Net("CNN", 141_997, "quickdraw", 1024, 0.80, 128, 96, {"net": "cnn"}),
    "large": Net(
        "large MLP", 4_906_893, _OTHERS, 768, 0.73, 96, 40, {"of": "large"}, HIDDEN,
        learning_rate=RATE,
    ),
}  # fmt: skip


LEARNERS: Mapping[str, Net] = {
    **MODELS,
    "mlp-ema": replace(MODELS["mlp"], recipe=_OTHERS, options={"of": "averaged"}),
}
"""What is trained on one host, once for each seed, to know how fast it learns."""


@dataclass(frozen=True)
class Cell:
    """One thing to measure.

    Args:
        strategy: of Rudel, or a rival.
        model: a name in MODELS.
        hosts: how many.
        rate: Mbit/s of the air; what trains alone does not notice it.
    """

    strategy: str
    model: str
    hosts: int
    rate: int

    @property
    def name(self) -> str:
        """As `--only` has it."""
        return f"{self.strategy}/{self.model}/{self.hosts}/{self.rate}"

    @property
    def learner(self) -> str:
        """Whose learning curve on one host is this cell's, too, where that is not measured: a key of `LEARNERS`."""
        return f"{self.model}-ema" if self.strategy == "single-ema" else self.model

    @property
    def is_known(self) -> bool:
        """Whether it exists: one host has no link, only the MLP is averaged, and rivals know some models."""
        if self.strategy in ALONE:
            averaged = self.strategy == "single-ema"
            return self.hosts == 1 and self.rate == CENTRE_RATES[0] and (self.model == "mlp" or not averaged)
        if self.strategy in RIVALS:
            return self.hosts > 1 and len(MODELS[self.model].hidden) in ((1,) if self.strategy == "flower" else (1, 2))
        return True


def every_cell() -> list[Cell]:
    """The full product of all axes."""
    product = itertools.product((*RUDEL, *RIVALS), MODELS, HOSTS, RATES)
    return [cell for cell in itertools.starmap(Cell, product) if cell.is_known]


def default_cells() -> list[Cell]:
    """Each axis varied around the centre (4 hosts, 100 and 20 Mbit/s, the MLP), what tells most first."""
    several = [strategy for strategy in RUDEL if strategy not in ALONE]
    rates = sorted(RATES, key=lambda rate: rate not in CENTRE_RATES)
    found = [cell for cell in every_cell() if cell.strategy in ALONE]
    found += [Cell(strategy, "mlp", CENTRE_HOSTS, rate) for rate in rates for strategy in several]
    found += [Cell(s, "mlp", hosts, rate) for hosts in HOSTS[1:] for rate in CENTRE_RATES for s in several]
    found += [Cell(rival, "mlp", CENTRE_HOSTS, rate) for rate in CENTRE_RATES for rival in RIVALS]
    others = [model for model in MODELS if model != "mlp"]
    found += [Cell(s, model, CENTRE_HOSTS, rate) for rate in CENTRE_RATES for s in several for model in others]
    return list(dict.fromkeys(found))


def chosen(patterns: str, everything: bool) -> list[Cell]:
    """The cells asked for.

    Args:
        patterns: shell patterns for names, separated by commas; empty for all.
        everything: whether the full product is meant rather than the default.

    Raises:
        BenchmarkError: a pattern fits no cell.
    """
    cells = every_cell() if everything or patterns else default_cells()
    found: list[Cell] = []
    for pattern in filter(None, (text.strip() for text in patterns.split(","))):
        fitting = [cell for cell in cells if fnmatch.fnmatch(cell.name, pattern)]
        if not fitting:
            raise BenchmarkError(f"No cell is called {pattern}: names are as `diloco/mlp/4/100`; --list has them.")
        found += fitting
    return list(dict.fromkeys(found)) if patterns else cells


def by_hosts(cells: Iterable[Cell]) -> dict[int, list[Cell]]:
    """Cells that can be measured in the same lab; rivals after Rudel, as its workers are ended before."""
    groups: dict[int, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.hosts, []).append(cell)
    return {hosts: sorted(group, key=lambda cell: cell.strategy in RIVALS) for hosts, group in groups.items()}
