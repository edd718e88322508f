"""The recommender: what it learns from is what it says, how good it is, and that it is the same on several devices."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rudel
from rudel.backend import keras_on_jax, set_seed
from rudel.errors import OptionError
from rudel.recipes import recommend
from rudel.recipes.interactions import Interactions, Preferences, best_possible, draw, make_preferences

keras = keras_on_jax()

SMALL: dict[str, Any] = {"users": 4000, "items": 400, "tastes": 12, "history": 10, "targets": 6, "held_out": 2000}


def probabilities(preferences: Preferences) -> np.ndarray:
    return np.exp([preferences.log_probabilities(taste) for taste in range(len(preferences.tastes))])


@pytest.fixture(scope="module")
def drawn() -> tuple[Preferences, Interactions]:
    preferences = make_preferences(50, 4, seed=0)
    return preferences, draw(preferences, users=3000, history=6, targets=5, held_out=1000, seed=0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    run = tmp_path_factory.mktemp("recommend") / "run"
    return rudel.train_recipe("recommend", options=SMALL | {"dims": 16}, epochs=4, batch_size=256, run=run)


def test_every_item_is_drawn_as_often_as_its_probability_says(drawn: tuple[Preferences, Interactions]) -> None:
    preferences, seen = drawn
    likely = probabilities(preferences)
    np.testing.assert_allclose(likely.sum(1), 1, rtol=1e-9)
    for taste in range(4):
        of_taste = seen.targets[seen.taste == taste]
        share = np.bincount(of_taste.reshape(-1), minlength=50) / of_taste.size
        np.testing.assert_allclose(share, likely[taste], atol=5 * np.sqrt(0.25 / of_taste.size))


def test_a_history_is_a_set_with_counts(drawn: tuple[Preferences, Interactions]) -> None:
    _, seen = drawn
    totals = seen.counts.sum(1)
    assert (totals.min(), totals.max()) == (3, 6)
    for items, counts in zip(seen.history, seen.counts, strict=True):
        real = items[counts > 0]
        assert len(set(real.tolist())) == len(real)
        assert (counts[: len(real)] > 0).all()
        assert (items[len(real) :] == 0).all()
    assert seen.counts.max() > 1


def test_the_best_ranking_is_that_of_bayes_theorem() -> None:
    """Two tastes, by hand: what a user took says which one it is, and how sure that is."""
    shares = np.array([[0.5, 0.3, 0.15, 0.05], [0.05, 0.2, 0.25, 0.5]])
    preferences = Preferences(np.zeros(4), np.eye(2), np.log(shares).T)
    np.testing.assert_allclose(probabilities(preferences), shares)
    seen = Interactions(
        taste=np.array([0, 1]),
        history=np.array([[1, 0], [3, 2]], np.int32),
        counts=np.array([[2, 0], [1, 1]], np.float32),
        targets=np.array([[0], [3]], np.int32),
        held_out_users=np.array([0, 1], np.int32),
        held_out_items=np.array([1, 0], np.int32),
    )
    weights = np.array([[0.3**2 * 0.5, 0.2**2 * 0.05], [0.05 * 0.15 * 0.05, 0.5 * 0.25 * 0.5]])
    likely = weights / weights.sum(1, keepdims=True) @ shares
    best = np.sort(likely)[:, -2:]
    found, expected = best_possible(preferences, seen, k=2)
    assert found == 0.5  # item 1 is the second of user 0; item 0 the last of user 1
    assert expected == pytest.approx(best.sum() / 2)


def test_what_the_best_ranking_finds_is_what_was_to_be_expected(drawn: tuple[Preferences, Interactions]) -> None:
    preferences, seen = drawn
    found, expected = best_possible(preferences, seen, k=5)
    assert found == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / 1000))
    oracle = np.sort(probabilities(preferences))[:, -5:].sum(1)[seen.taste[seen.held_out_users]].mean()
    popular = np.bincount(seen.targets.reshape(-1), minlength=50)
    assert np.sort(popular)[-5:].sum() / popular.sum() < expected <= oracle + 1e-6


def test_it_comes_close_to_the_best_ranking(trained: Any) -> None:
    recall = trained.summary["metrics"]["val_recall_at_10"]
    (note,) = trained.notes
    expected = float(note.split("more than ")[1].split()[0])
    assert 0.85 * expected < recall < expected + 0.03
    assert "recall_at_10" not in trained.summary["metrics"]


def test_the_run_shows_what_there_is_to_show(trained: Any) -> None:
    report = (trained.path / "report.html").read_text()
    assert "validation recall at 10" in report
    assert not (trained.path / "predictions.npz").exists()


def test_the_metric_counts_places_in_the_whole_catalogue(trained: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from rudel.recipes import two_tower

    held_out = recommend.data(**SMALL).validation
    assert held_out
    vectors = rudel.predict(trained.model, held_out.x)
    items, scores = trained.model.top_items(vectors, 10)
    assert items.shape == scores.shape == (2000, 10)
    assert (np.diff(scores) <= 0).all()
    by_hand = (items == held_out.y[:, None]).any(1).mean()
    recall = rudel.evaluate(trained.model, held_out)["recall_at_10"]
    assert recall == pytest.approx(by_hand, abs=1e-3)
    assert recall == pytest.approx(trained.summary["metrics"]["val_recall_at_10"], abs=1e-6)
    monkeypatch.setattr(two_tower, "_SCORES_AT_ONCE", 400 * 7)
    assert rudel.evaluate(trained.model, held_out)["recall_at_10"] == pytest.approx(recall, abs=1e-6)
    np.testing.assert_array_equal(trained.model.top_items(vectors[:100], 10)[0], items[:100])


@pytest.fixture(scope="module")
def elsewhere(trained: Any) -> Any:
    """What another process makes of the run, and of the same training on a mesh of four devices."""
    folder = trained.path.parent
    np.savez(folder / "x.npz", **recommend.data(**SMALL).train.take(slice(0, 5)).x)
    (folder / "elsewhere.py").write_text(ELSEWHERE)
    command = [sys.executable, str(folder / "elsewhere.py"), str(folder), json.dumps(SMALL | {"dims": 16})]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


ELSEWHERE = """
import json, sys
from pathlib import Path
import rudel
from rudel.recipes.load import find_recipe

find_recipe("recommend")
assert "keras" not in sys.modules
folder, options = Path(sys.argv[1]), json.loads(sys.argv[2])
strategy = rudel.Mesh(axes={"model": 4})

import jax, keras, numpy as np

class Shares(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.shares = sorted(
            (array.nbytes, [shard.data.nbytes for shard in array.addressable_shards])
            for array in jax.live_arrays()
            if array.ndim == 2 and array.shape[0] in (400, 4000) and len(array.sharding.device_set) == 4
            and array.dtype == "float32" and array.shape[1] in (1, 16)
        )

vectors = rudel.predict(rudel.load(folder / "run"), dict(np.load(folder / "x.npz")))
watch = Shares()
run = rudel.train_recipe("recommend", options=options, epochs=4, batch_size=256, strategy=strategy, callbacks=[watch],
                         run=folder / "mesh", verbose=False)
print(json.dumps({"vectors": vectors.tolist(), "shares": watch.shares, "loss": run.history.history["loss"],
                  "recall": run.history.history["val_recall_at_10"], "mesh": run.summary["strategy_options"]}))
"""


def test_a_run_is_read_back_where_nobody_knows_its_classes(trained: Any, elsewhere: Any) -> None:
    x = recommend.data(**SMALL).train.take(slice(0, 5)).x
    np.testing.assert_allclose(elsewhere["vectors"], rudel.predict(trained.model, x), rtol=1e-5)


def test_each_of_four_devices_has_a_quarter_of_the_tables(elsewhere: Any) -> None:
    tables = {16 * 4000 * 4, 16 * 400 * 4, 400 * 4}
    assert {total for total, _ in elsewhere["shares"]} == tables
    assert len(elsewhere["shares"]) >= 9  # each table, and two moments of Adam for it
    assert all(parts == [total // 4] * 4 for total, parts in elsewhere["shares"])
    assert elsewhere["mesh"]["layouts"]["two_tower/users/embeddings"] == "model,-: by rows"


def test_it_learns_the_same_on_four_devices(trained: Any, elsewhere: Any) -> None:
    np.testing.assert_allclose(elsewhere["loss"], trained.history.history["loss"], rtol=1e-5)
    np.testing.assert_allclose(elsewhere["recall"], trained.history.history["val_recall_at_10"], atol=1e-3)


def test_unlikely_items_are_not_favoured_for_being_rare(trained: Any) -> None:
    """Without the correction, an item is ranked by how much more likely it is than in general."""
    data = recommend.data(**SMALL)
    set_seed(0)
    model = recommend.model(data, steps=372, users=4000, items=400, dims=16)
    for variable in (model.log_share, model.item_bias.embeddings):
        variable.assign(np.zeros(variable.shape, np.float32))
    rudel.fit(model, data, epochs=4, batch_size=256)
    assert data.validation
    without = rudel.evaluate(model, data.validation)["recall_at_10"]
    assert without < trained.summary["metrics"]["val_recall_at_10"] - 0.03


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"items": 5}, "`items` must be at least 11, not 5"),
        ({"history": 2}, "`history` must be at least 3, not 2"),
        ({"users": 100, "held_out": 101}, "`held_out` must be at most the number of users, 100, not 101"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=message):
        rudel.train_recipe("recommend", options=options, run=tmp_path / "run")
    assert not (tmp_path / "run").exists()
