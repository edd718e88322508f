"""Tables: what becomes of their columns, how good the model is, and that every way into it reads the same values."""

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas
import polars
import pyarrow
import pytest
from predicting import predict_files
from pyarrow import parquet

import rudel
from rudel.backend import keras_on_jax
from rudel.data.table import read_table
from rudel.errors import DataError, OptionError, RecipeError, RudelError, RunError
from rudel.features.table_columns import Column, texts_of
from rudel.features.table_layer import columns_of
from rudel.recipes import table as recipe
from rudel.recipes.load import find_recipe
from rudel.recipes.table_roles import find_columns
from rudel.runs.evaluate_run import evaluate_run
from rudel.runs.loading import dataset_of
from rudel.runs.run_directory import open_finished

keras = keras_on_jax()

ROWS = 1280  # whole batches of 128, to learn from and to validate with: others are programs to compile
CITIES = ("Bern", "Kyoto", "Lima", "Ōsu")


def made_up(rows: int = ROWS, seed: int = 0) -> dict[str, Any]:
    """Rent by size, by city, and by the kind of a heating that is often not told; who pays more than 1,500 is rich."""
    random = np.random.default_rng(seed)
    area, city, heating = random.uniform(20, 200, rows), random.integers(0, 4, rows), random.random(rows)
    rent = 10 * area * np.array([1.6, 1.0, 0.5, 0.8])[city] - 300 * (heating > 0.8)
    return {
        "km/h": area.round(1).tolist(),
        "city": [CITIES[each] for each in city],
        "heating": [None if each > 0.8 else round(float(each), 3) for each in heating],
        "name": [f"n{number}" for number in range(rows)],
        "planet": ["Earth"] * rows,
        "rent": rent.round(2).tolist(),
        "rich": ["yes" if each > 1000 else "no" for each in rent],
    }


def write(path: Path, columns: Mapping[str, Any], delimiter: str = ",") -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("table") / "rents.csv", made_up())


@pytest.fixture(scope="module")
def classifier(file: Path) -> Any:
    options = {"target": "rich", "ignore": "rent"}
    return rudel.train_recipe("table", data=str(file), options=options, run=file.parent / "classes", epochs=15)


@pytest.fixture(scope="module")
def regressor(file: Path) -> Any:
    options = {"target": "rent", "ignore": "rich", "learning_rate": 1e-2}
    return rudel.train_recipe("table", data=str(file), options=options, run=file.parent / "numbers", epochs=15)


def test_classes_are_learned_and_reported(classifier: Any) -> None:
    assert classifier.summary["metrics"]["val_accuracy"] > 0.9
    assert classifier.notes == (
        "`rich` has 2 classes: this is a classification.",
        "The column `name` is left out: most of its values are there only once, as in names and texts.",
        "The column `planet` is left out: it is the same in all rows.",
    )
    assert "Confusion matrix" in (classifier.path / "report.html").read_text()


def test_rows_without_a_target_are_counted(tmp_path: Path) -> None:
    rows = {"heat": list(range(9)), "pain": ["none", "mild", "severe"] * 3}
    dataset = find_recipe("table").data({"target": "pain"}, source=str(write(tmp_path / "pains.csv", rows)))
    assert "Left out: 3 of 9 rows, whose `pain` is missing (`none`)." in dataset.notes


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_columns_may_be_named_as_layers(tmp_path: Path, task: str) -> None:
    names = ("columns", "dense", "dense_0", "dropout_0", "classes", "scaled", "number")
    rows = {name: [place % (3 + number) for place in range(40)] for number, name in enumerate(names)}
    data = str(write(tmp_path / "layers.csv", rows | {"y": [0, 1] * 20}))
    options = {"target": "y", "task": task}
    result = rudel.train_recipe("table", data=data, options=options, run=tmp_path / "run", steps=1, verbose=False)
    assert {column.name for column in columns_of(rudel.load(result.path))} == set(names)


def test_whole_numbers_of_a_category_are_found_with_and_without_a_point() -> None:
    column = Column("code", categories=("8001.0", "8002", "8003"))
    assert column.encoded(["8001.0", "8001", "8002.0", "8003.5", "8003"], "here").tolist() == [1, 1, 2, 0, 3]
    assert column.encoded([8001, 8002.0, None], "here").tolist() == [1, 2, 0]


def test_numbers_are_learned_in_their_unit(regressor: Any) -> None:
    assert regressor.summary["metrics"]["val_r2"] > 0.9
    assert regressor.notes[0] == "`rent` is a number: this is a regression."
    assert "Predictions" in (regressor.path / "report.html").read_text()


def test_a_table_is_predicted_row_by_row(classifier: Any, regressor: Any, tmp_path: Path) -> None:
    few = write(tmp_path / "few.csv", {"city": ["Bern", "Atlantis"], "heating": [0.5, ""], "km/h": [190, 25]})
    first, second = predict_files(classifier.path, [few])
    assert (first.source, first.ranking[0][0], second.ranking[0][0]) == (f"{few}[0]", "yes", "no")
    (number, _) = predict_files(regressor.path, [few])
    assert number.outputs[0] == pytest.approx(3040, rel=0.2)
    with pytest.raises(DataError, match="has no column `city`, `heating`, which the model takes: it has `km/h`"):
        predict_files(regressor.path, [write(tmp_path / "less.csv", {"km/h": [190]})])
    with pytest.raises(DataError, match=r"`km/h` in .*wrong\.csv holds 'fast' in row 2, and the model takes numbers"):
        predict_files(
            regressor.path, [write(tmp_path / "wrong.csv", {"km/h": [1, "fast"], "city": "ab", "heating": "12"})]
        )


def test_a_run_is_evaluated_on_another_table(classifier: Any, regressor: Any, tmp_path: Path) -> None:
    other = made_up(258, seed=1)
    other["rich"][0] = "maybe"
    other["rich"][1] = None
    found = evaluate_run(classifier.path, write(tmp_path / "other.csv", other))
    assert (found.examples, found.left_out) == (256, {"maybe": 1})
    assert found.notes == ("Left out: 1 of 258 rows, whose `rich` is missing (nothing).",)
    assert found.metrics["accuracy"] > 0.9
    assert evaluate_run(regressor.path, tmp_path / "other.csv").metrics["r2"] > 0.9
    assert evaluate_run(regressor.path).examples == ROWS // 5
    with pytest.raises(OptionError, match="A table has no splits"):
        evaluate_run(regressor.path, tmp_path / "other.csv", split="test")


@pytest.mark.parametrize("form", ["semicolons", "tabs", "parquet", "pandas", "polars", "pyarrow", "dict"])
def test_every_form_gives_the_same_examples(file: Path, tmp_path: Path, form: str) -> None:
    columns = made_up()
    german = {name: [str(value).replace(".", ",") if isinstance(value, float) else value for value in values]
              for name, values in columns.items()}  # fmt: skip
    parquet.write_table(pyarrow.table(columns), tmp_path / "rents.parquet")
    forms: dict[str, Callable[[], Any]] = {
        "semicolons": lambda: str(write(tmp_path / "rents.csv", german, ";")),
        "tabs": lambda: str(write(tmp_path / "rents.tsv", columns, "\t")),
        "parquet": lambda: tmp_path / "rents.parquet",
        "pandas": lambda: pandas.DataFrame(columns).astype({"city": "category"}),
        "polars": lambda: polars.DataFrame(columns),
        "pyarrow": lambda: pyarrow.table(columns),
        "dict": lambda: columns,
    }
    first, second = (recipe.data(source, target="rent") for source in (str(file), forms[form]()))
    assert first.columns == second.columns
    np.testing.assert_array_equal(first.train.y, second.train.y)
    assert first.validation
    assert second.validation
    for name, values in first.validation.x.items():
        np.testing.assert_array_equal(values, second.validation.x[name])


def test_a_missing_category_is_missing_in_every_form(tmp_path: Path) -> None:
    colours = ["red", None, "blue", None, "red"]
    frames = [pandas.DataFrame({"colour": pandas.Categorical(colours)}),
              polars.DataFrame({"colour": polars.Series(colours, dtype=polars.Categorical)})]  # fmt: skip
    sources: list[Any] = [*frames, pyarrow.table({"colour": pyarrow.array(colours).dictionary_encode()})]
    for number, table in enumerate([sources[2], pyarrow.Table.from_pandas(frames[0]), frames[1].to_arrow()]):
        parquet.write_table(table, tmp_path / f"{number}.parquet")
        sources.append(tmp_path / f"{number}.parquet")
    for source in sources:
        assert texts_of(read_table(source).columns["colour"]) == ["red", "", "blue", "", "red"]


@pytest.mark.parametrize("form", ["pandas", "polars", "pyarrow", "parquet", "dict"])
def test_blanks_around_the_names_of_columns_do_not_count(tmp_path: Path, form: str) -> None:
    columns = {"age": [1, 2], " income ": [3, 4]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    forms: dict[str, Any] = {
        "pandas": pandas.DataFrame(columns),
        "polars": polars.DataFrame(columns),
        "pyarrow": pyarrow.table(columns),
        "parquet": tmp_path / "t.parquet",
        "dict": columns,
    }
    found = read_table(forms[form]).columns
    assert {name: values.tolist() for name, values in found.items()} == {"age": [1, 2], "income": [3, 4]}


def test_a_frame_trains_and_its_run_asks_for_data(tmp_path: Path, regressor: Any) -> None:
    frame = polars.DataFrame(made_up())
    options = {"target": "rent", "ignore": ("rich",), "learning_rate": 1e-2}
    trained = rudel.train_recipe("table", data=frame, options=options, run=tmp_path / "run", epochs=15)
    assert trained.summary["metrics"] == regressor.summary["metrics"]
    assert json.loads((tmp_path / "run/config.json").read_text())["source"] is None
    with pytest.raises(DataError, match=r"file with `data=`, and with `options=\{'target': 'COLUMN'\}`"):
        evaluate_run(tmp_path / "run")


def test_columns_become_numbers_and_categories() -> None:
    values = {
        "few": [1, 2, 3, None] * 50,
        "postcode": [8001, 8002, 8001.0, 3000] * 50,
        "colour": ["red", " red", "?", "blue"] * 49 + ["green"] + ["NA"] * 3,
        "y": [0, 1] * 100,
    }
    table = read_table(values)
    found, notes = find_columns(table, "y", categories=["postcode"])
    few, postcode, colour = found
    assert not notes
    assert (few.dtype, few.mean, few.gaps, few.categories) == ("float32", 2.0, True, ())
    assert postcode.categories == ("3000", "8001", "8002")
    assert colour.categories == ("", "blue", "red")
    assert colour.encoded(["red", "green", None, "blue "], "here").tolist() == [3, 0, 1, 2]
    assert postcode.encoded([8002, "3000", 1], "here").tolist() == [3, 1, 0]
    assert np.isnan(few.encoded(["1.5", ""], "here")).tolist() == [False, True]
    assert Column("whole", mean=7.0).encoded(["1.5", "n/a"], "here").tolist() == [1.5, 7.0]


@pytest.mark.parametrize(
    ("values", "task", "names"),
    [
        ([0, 1] * 10, "auto", ("0", "1")),
        (["10", "9"] * 10, "auto", ("9", "10")),
        (["1.0", "1", "2.0", "2"] * 5, "auto", ("1", "2")),
        ([True, False] * 10, "auto", ("False", "True")),
        (list(range(20)), "auto", ()),
        ([0.5, 1] * 10, "auto", ()),
        ([0, 1] * 10, "regression", ()),
        ([0.5, 1] * 10, "classification", ("0.5", "1")),
    ],
)
def test_the_target_says_what_is_learned(values: list[Any], task: Any, names: tuple[str, ...]) -> None:
    made = recipe.data({"x": list(range(20)), "y": values}, target="y", task=task)
    assert made.class_names == names
    assert made.train.y.shape == ((16,) if names else (16, 1))


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        (None, {"target": "b"}, r"There is no file .*t.csv: give a table"),
        ("", {"target": "b"}, "has no rows"),
        ("a,b\n", {"target": "b"}, "has no rows"),
        ("a,b\n1,2\n1,2,3\n", {"target": "b"}, "has 3 fields in line 3, and 2 columns"),
        ("a,a\n1,2\n", {"target": "a"}, "has the column `a` twice"),
        ("a,\n1,2\n", {"target": "a"}, "column 2 of .* has no name"),
        ('a,b\n"1,2\n', {"target": "a"}, "cannot be read in line"),
        ("a,b\n1,2\n", {}, "Which column is to be predicted.* has `a`, `b`."),
        ("age,b\n1,2\n", {"target": "aeg"}, "no column `aeg` to predict: did you mean `age`"),
        ("a,b\n1,\n2,NA\n", {"target": "b"}, "`b` of .* is empty in every row"),
        ("a,b\n1,x\n2,x\n", {"target": "b"}, "is `x` in every row"),
        ("a,b\n1,x\n2,3\n", {"target": "b", "task": "regression"}, "holds 'x' in row 1: a regression predicts numbers"),
        ("a,b\n" + "1,2\n2,3\n" * 10, {"target": "b", "ignore": "c"}, "`ignore` names `c`"),
        ("a,b\n" + "1,2\n1,3\n" * 10, {"target": "b"}, "no column to learn from beside `b`. The column `a` is left"),
        ("a,b\n" + "1,2\n2,3\n" * 20 + "x,2\n" * 3, {"target": "b"}, "holds numbers, and 'x' beside them"),
        ("a,b\n" + "1,2\n2,3\n" * 10, {"target": "b", "validation": 1}, "`validation` is a share"),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence(text: str | None, options: dict[str, Any], words: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "t.csv").write_text(text)
    with pytest.raises(RudelError, match=words):
        rudel.train_recipe("table", data=str(tmp_path / "t.csv"), options=options, run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_is_not_a_table_is_said(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"a,b\n\xff,1\n")
    (tmp_path / "t.parquet").write_bytes(b"a,b\n1,2\n")
    for name, words in (("t.csv", "is not UTF-8"), ("t.parquet", "cannot be read as a Parquet file")):
        with pytest.raises(DataError, match=words):
            read_table(tmp_path / name)
    with pytest.raises(DataError, match="int is not a table"):
        read_table(3)
    with pytest.raises(RecipeError, match="is a table, not a recipe: the recipe `table` learns from it, with `data="):
        find_recipe(str(tmp_path / "t.csv"))


@pytest.mark.usefixtures("warm_exports")
def test_a_lite_model_takes_the_numbers_of_categories(classifier: Any, tmp_path: Path) -> None:
    made = rudel.export(classifier.path, "litert", tmp_path / "model.tflite")
    assert made.largest_difference < 1e-5
    assert {each["name"]: each["dtype"] for each in made.inputs}["city"] == "int32"
    assert "takes categories by number" in made.notes[0]


@pytest.mark.usefixtures("warm_exports")
def test_an_onnx_model_takes_texts(classifier: Any, tmp_path: Path) -> None:
    made = rudel.export(classifier.path, "onnx", tmp_path / "model.onnx")
    assert made.largest_difference < 1e-5
    session: Any = onnxruntime.InferenceSession(str(made.path))
    kinds = {given.name: given.type for given in session.get_inputs()}
    assert kinds == {"km_h": "tensor(float)", "city": "tensor(string)", "heating": "tensor(float)"}
    few = {
        "city": (*CITIES, "Atlantis", ""),
        "heating": ["0.5", "", "0.1", "", "0.2", "0.3"],
        "km/h": range(50, 110, 10),
    }
    wanted = predict_files(classifier.path, [write(tmp_path / "few.csv", few)])
    for row, prediction in enumerate(wanted):
        given = {
            "km_h": np.array([few["km/h"][row]], np.float32),
            "city": np.array([few["city"][row]]),
            "heating": np.array([few["heating"][row] or "nan"]).astype(np.float32),
        }
        np.testing.assert_allclose(session.run(None, given)[0][0], prediction.outputs, atol=1e-5)


def test_a_table_that_has_changed_is_read_as_in_training(tmp_path: Path) -> None:
    file, options = write(tmp_path / "rents.csv", made_up()), {"target": "rich", "ignore": "rent"}
    run = rudel.train_recipe("table", data=str(file), options=options, run=tmp_path / "run", epochs=15).path
    changed = made_up(400, seed=2)
    changed["city"] = ["Bern" if each == "Bern" else f"{each}!" for each in changed["city"]]
    changed["rich"][:5] = ["a class that is new"] * 5
    write(file, {name: values[:400] for name, values in changed.items()} | {"area": range(400)})
    found = evaluate_run(run)
    again = dataset_of(open_finished(run), model=rudel.load(run))
    assert sorted(again.train.x) == ["city", "heating", "km/h".replace("/", "\N{DIVISION SLASH}")]
    assert set(np.unique(again.train.x["city"])) == {0, 1}
    assert found.examples == 79


def test_workers_train_together(file: Path, tmp_path: Path, two_workers: Any) -> None:
    options, (_, client) = {"target": "rich", "ignore": "rent"}, two_workers
    trained = rudel.train_recipe(
        "table", data=str(file), options=options, run=tmp_path / "run", epochs=30, client=client
    )  # each takes as many steps as one alone in 15 epochs
    assert len(trained.summary["hosts"]) == 2
    assert trained.summary["metrics"]["val_accuracy"] > 0.9


def test_a_run_is_resumed(classifier: Any, file: Path, tmp_path: Path) -> None:
    options = {"target": "rich", "ignore": "rent"}

    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch == 5:
                raise KeyboardInterrupt

    arguments: dict[str, Any] = {"data": str(file), "options": options, "run": tmp_path / "run", "epochs": 15}
    with pytest.raises(KeyboardInterrupt):
        rudel.train_recipe("table", **arguments, callbacks=[Stop()])
    with pytest.raises(RunError):
        rudel.load(tmp_path / "run")
    again = rudel.train_recipe("table", **arguments, resume=True)
    assert again.summary["metrics"] == classifier.summary["metrics"]
