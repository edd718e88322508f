"""Tables: what becomes of their columns, how good the model is, and that every way into it reads the same values."""

import csv
import json
import re
import shlex
import sys
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
from rudel.cli import main
from rudel.cli.train import key_and_value
from rudel.data.table import read_table
from rudel.errors import DataError, ExportError, OptionError, RecipeError, RudelError, RunError, speaking_options
from rudel.features.table_columns import Column, encoded, texts_of
from rudel.features.table_layer import TableColumns, columns_of
from rudel.loop.table_frames import as_taken
from rudel.recipes import table as recipe
from rudel.recipes.load import find_recipe
from rudel.recipes.table_roles import find_columns, find_target
from rudel.runs.evaluate_run import evaluate_run
from rudel.runs.loading import dataset_of
from rudel.runs.model_file import load_model
from rudel.runs.predict_many import predict_many
from rudel.runs.run_directory import open_finished
from rudel.serve.model_signature import Tensor
from rudel.serve.values import filled

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


def test_booleans_are_found_however_they_are_capitalised() -> None:
    column = Column("member", categories=("TRUE", "false"))
    assert column.encoded([True, np.bool_(False), "true", "FALSE", None], "here").tolist() == [1, 2, 1, 2, 0]
    of_json = filled([True, False], Tensor("member", (), "bytes", gaps=True))
    assert column.encoded(of_json, "here").tolist() == [1, 2]
    assert Column("member", categories=("True", "true")).encoded(["true", True], "here").tolist() == [2, 1]


def test_numbers_are_learned_in_their_unit(regressor: Any) -> None:
    assert regressor.summary["metrics"]["val_r2"] > 0.9
    assert regressor.notes[0] == "`rent` is a number: this is a regression."
    assert "Predictions" in (regressor.path / "report.html").read_text()


@pytest.mark.parametrize("unit", [1e-12, 1e12])
def test_the_unit_of_a_target_does_not_matter(unit: float) -> None:
    columns = made_up()
    found = {}
    for scale in (1, unit):
        rents = (np.array(columns["rent"]) * scale).tolist()
        dataset = recipe.data({"km/h": columns["km/h"], "rent": rents}, target="rent")
        keras.utils.set_random_seed(0)
        model = recipe.model(dataset, steps=24, hidden=32, layers=1, learning_rate=1e-2)
        rudel.fit(model, dataset, steps=24, batch_size=128, verbose=False)
        found[scale] = rudel.evaluate(model, dataset.validation)
    assert found[unit]["r2"] == pytest.approx(found[1]["r2"], abs=1e-3)
    assert found[unit]["mae"] == pytest.approx(found[1]["mae"] * unit, rel=1e-2)
    assert found[unit]["loss"] == pytest.approx(1 - found[unit]["r2"], rel=0.2)


def test_r2_is_right_far_from_zero(tmp_path: Path) -> None:
    mean = -30_000.0
    model = recipe.model(recipe.data({"x": range(400), "y": [mean + x % 20 for x in range(400)]}, target="y"))
    model.save(tmp_path / "m.keras")
    x, y = np.arange(400), (mean + np.arange(400) % 20).astype(np.float32)[:, None]
    errors = y - rudel.predict(model, {"x": x})
    wanted = float(1 - (errors**2).mean(dtype=np.float64) / y.var(dtype=np.float64))
    for each in (model, load_model(tmp_path / "m.keras")):
        assert rudel.evaluate(each, {"x": x}, y)["r2"] == pytest.approx(wanted, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("value", [0.0, 1e-9, 0.1])
def test_a_constant_number_is_predicted(value: float) -> None:
    dataset = recipe.data({"x": range(40), "y": [value] * 40}, target="y", task="regression")
    model = recipe.model(dataset)
    assert np.isfinite(rudel.evaluate(model, dataset.validation)["loss"])


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


@pytest.mark.parametrize(("target", "column"), [("rent", "rent"), ("error", "output_0")])
def test_predictions_are_called_as_the_target(target: str, column: str, tmp_path: Path) -> None:
    rows = {"x": [*range(40)], target: [each / 2 for each in range(40)]}
    options = {"target": target}
    made = rudel.train_recipe("table", data=rows, options=options, run=tmp_path / "run", steps=1, verbose=False)
    answers = list(predict_many(made.path, [write(tmp_path / "t.csv", rows)], tmp_path / "out.csv"))
    header, first, *_ = csv.reader((tmp_path / "out.csv").read_text().splitlines())
    assert (header, len(answers)) == (["source", column], 40)
    assert float(first[1]) == rudel.predict(made.model, {"x": np.arange(1, dtype=np.float32)})[0, 0]


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


def test_a_wrong_text_is_named_by_its_row_of_the_file(regressor: Any, tmp_path: Path) -> None:
    rows = {"city": ["Bern"] * 5, "heating": [""] * 5, "km/h": [50, 60, 70, 80, "fast"], "rent": ["", "", 700, 800, 1]}
    words = r"`km/h` in .* holds 'fast' in row 5, and"
    with pytest.raises(DataError, match=words):
        evaluate_run(regressor.path, write(tmp_path / "other.csv", rows))
    with pytest.raises(DataError, match=words):
        recipe.data(tmp_path / "other.csv", trained=(regressor.model, ()), target="rent")


@pytest.mark.parametrize("form", ["pandas", "polars", "lazy", "pyarrow", "dict"])
def test_a_frame_is_predicted_and_evaluated_in_python(form: str, regressor: Any, tmp_path: Path) -> None:
    columns = {name: values[:256] for name, values in made_up().items()}
    forms = {
        "pandas": pandas.DataFrame,
        "polars": polars.DataFrame,
        "lazy": polars.LazyFrame,
        "pyarrow": pyarrow.table,
        "dict": dict,
    }
    frame, model = forms[form](columns), rudel.load(regressor.path)
    wanted = [each.outputs for each in predict_files(regressor.path, [write(tmp_path / "t.csv", columns)])]
    np.testing.assert_allclose(rudel.predict(model, frame), wanted, rtol=1e-5)
    assert rudel.evaluate(model, frame, columns["rent"])["r2"] > 0.9
    with pytest.raises(DataError, match="Which column of the frame has the targets"):
        rudel.evaluate(model, frame)


def test_columns_that_are_encoded_stay_as_they_are(regressor: Any) -> None:
    model, frame = rudel.load(regressor.path), made_up(128)
    x = encoded(columns_of(model), frame, "here")
    np.testing.assert_array_equal(rudel.predict(model, x), rudel.predict(model, frame))


@pytest.mark.parametrize("values", [[True, False, True], [0, 1, 0], np.array([1, 0, 1], np.int64)])
def test_a_dict_of_raw_values_is_read_as_a_frame(values: Any) -> None:
    frame = {"code": values, "size": [1.5, np.nan, 2.5]}
    columns = [Column("code", tuple(sorted(set(texts_of(values))))), Column("size", mean=2.0)]
    inputs = {column.key: keras.Input((), dtype=column.dtype, name=column.key) for column in columns}
    model = keras.Model(inputs, TableColumns(columns)(inputs))
    x = as_taken(model, frame)
    assert x["code"].tolist() == as_taken(model, pandas.DataFrame(frame))["code"].tolist() != [0, 0, 0]
    assert x["code"].min() == 1
    assert x["size"].tolist() == [1.5, 2.0, 2.5]
    assert as_taken(model, x) is x


def test_categories_that_are_new_are_noted(
    classifier: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = made_up(128, seed=1)
    other["city"] = ["Atlantis"] * 128
    few = write(tmp_path / "new.csv", other)
    note = "`city`: 128 of 128 values are unknown to the model."
    assert evaluate_run(classifier.path, few).notes == (note,)
    monkeypatch.setattr(sys, "argv", ["rudel", "predict", str(classifier.path), str(few), "-o", f"{tmp_path}/out.csv"])
    with pytest.raises(SystemExit):
        main.run()
    assert f"note: {note}\n" in capsys.readouterr().err
    known = write(tmp_path / "known.csv", made_up(128, seed=1))
    assert evaluate_run(classifier.path, known).notes == ()


@pytest.mark.parametrize(
    "form", ["semicolons", "tabs", "parquet", "pandas", "polars", "lazy", "pyarrow", "batch", "dict"]
)
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
        "lazy": lambda: polars.LazyFrame(columns),
        "pyarrow": lambda: pyarrow.table(columns),
        "batch": lambda: pyarrow.RecordBatch.from_pydict(columns),
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


@pytest.mark.parametrize("name", [None, "id"])
@pytest.mark.parametrize("form", ["parquet", "pyarrow", "batch"])
def test_the_index_of_pandas_is_no_column(name: str | None, form: str, tmp_path: Path) -> None:
    frame = pandas.DataFrame({"age": [30, 40, 50]}, index=pandas.Index([7, 2, 9], name=name))
    frame.to_parquet(tmp_path / "t.parquet")
    forms: dict[str, Any] = {
        "parquet": tmp_path / "t.parquet",
        "pyarrow": pyarrow.Table.from_pandas(frame),
        "batch": pyarrow.RecordBatch.from_pandas(frame),
    }
    assert list(read_table(forms[form]).columns) == ["age"]


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_numbers_of_categories_are_as_short_in_every_type(kind: Any) -> None:
    values = [0.1, 2.25, 801.0, np.nan]
    assert texts_of(np.array(values, kind)) == texts_of(values) == ["0.1", "2.25", "801", ""]
    most = np.finfo(kind).max
    assert texts_of(np.array([most, -np.inf], kind)) == [str(int(most)), "-inf"]


@pytest.mark.parametrize("form", ["pyarrow", "polars", "parquet"])
def test_large_whole_numbers_stay_apart_beside_a_missing_one(form: str, tmp_path: Path) -> None:
    columns = {"id": [2**53 + 1, None, 2**53 + 2, 7]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    forms: dict[str, Any] = {
        "pyarrow": pyarrow.table(columns),
        "polars": polars.DataFrame(columns),
        "parquet": tmp_path / "t.parquet",
    }
    found = read_table(forms[form]).columns["id"]
    assert texts_of(found) == ["9007199254740993", "", "9007199254740994", "7"]


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_times_are_texts_in_every_unit(tmp_path: Path, unit: str) -> None:
    moments, spans = np.array(["2024-05-01T12:30", "NaT"], f"M8[{unit}]"), np.array([90, "NaT"], "m8[s]")
    columns = {"moment": moments, "span": spans.astype(f"m8[{unit}]")}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    for source in (columns, pandas.DataFrame(columns), tmp_path / "t.parquet"):
        found = read_table(source).columns
        assert [texts_of(values) for values in found.values()] == [["2024-05-01 12:30:00", ""], ["0:01:30", ""]]


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
    with pytest.raises(DataError, match="learned from a frame, which it does not keep: give a CSV or Parquet file"):
        evaluate_run(tmp_path / "run")
    assert evaluate_run(tmp_path / "run", write(tmp_path / "t.csv", made_up(258, seed=1))).examples == 258


def test_columns_become_numbers_and_categories() -> None:
    values = {
        "few": [1, 2, 3, None] * 50,
        "postcode": [8001, 8002, 8001.0, 3000] * 50,
        "colour": ["red", " red", "?", "blue"] * 49 + ["green"] + ["NA"] * 3,
        "ticked": ["1", "", "1", "1"] * 50,
        "y": [0, 1] * 100,
    }
    table = read_table(values)
    found, notes = find_columns(table, "y", categories=["postcode"])
    few, postcode, colour, ticked = found
    assert not notes
    assert (few.dtype, few.mean, few.gaps, few.categories) == ("float32", 2.0, True, ())
    assert postcode.categories == ("3000", "8001", "8002")
    assert colour.categories == ("", "blue", "red")
    assert colour.encoded(["red", "green", None, "blue "], "here").tolist() == [3, 0, 1, 2]
    assert postcode.encoded([8002, "3000", 1], "here").tolist() == [3, 1, 0]
    assert (ticked.mean, ticked.gaps) == (1.0, True), "the same in all rows that have it"
    assert np.isnan(few.encoded(["1.5", ""], "here")).tolist() == [False, True]
    assert Column("whole", mean=7.0).encoded(["1.5", "n/a"], "here").tolist() == [1.5, 7.0]


@pytest.mark.parametrize(
    ("text", "names", "first"),
    [
        ('"Gewicht, kg";"Größe, cm";Art\n80,5;180,2;A\n', ("Gewicht, kg", "Größe, cm", "Art"), ("80.5", "180.2", "A")),
        ("Weight, kg;Height, cm;y\n80,5;180,2;A\n", ("Weight, kg", "Height, cm", "y"), ("80.5", "180.2", "A")),
        ("Weight, kg;Height, cm\n80,5;180,2\n", ("Weight, kg", "Height, cm"), ("80.5", "180.2")),
        ('"a;b","c;d","e;f",y\n1,2,3,x\n', ("a;b", "c;d", "e;f", "y"), ("1", "2", "3", "x")),
        ('a,"b\n;;;;"\n1;,2\n', ("a", "b\n;;;;"), ("1;", "2")),
        ("a;b;c\n9,2e-06;,5;-1,5E+3\n", ("a", "b", "c"), ("9.2e-06", ".5", "-1.5E+3")),
        ("a\tb, in m\n1\t2,5\n", ("a", "b, in m"), ("1", "2,5")),
        ("id,when;zone,y\n1,12:00;CET,3\n", ("id", "when;zone", "y"), ("1", "12:00;CET", "3")),
        ("id,name,y\t\n1,x,2\t\n", ("id", "name", "y"), ("1", "x", "2\t")),
        ("a,b;\n1,2;\n", ("a", "b;"), ("1", "2;")),
        ("only\n1\n", ("only",), ("1",)),
    ],
)
def test_the_delimiter_is_found(text: str, names: tuple[str, ...], first: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    columns = read_table(tmp_path / "t.csv").columns
    assert (tuple(columns), tuple(values[0] for values in columns.values())) == (names, first)


@pytest.mark.parametrize("bands", [["10_19", "20_29"], ["10_19", "20_29", None], [b"10_19", b"20_29"]])
def test_texts_with_underscores_are_categories(bands: list[Any]) -> None:
    table = read_table({"band": bands * 20, "y": list(range(len(bands) * 20))})
    (column,), _ = find_columns(table, "y")
    assert [each for each in column.categories if each] == ["10_19", "20_29"]
    assert find_target(table, "band", "auto").class_names == ("10_19", "20_29")


def test_fields_may_be_long(tmp_path: Path) -> None:
    before = csv.field_size_limit()
    long = "a" * (before + 1)
    file = write(tmp_path / "long.csv", {"text": [long, "b"], "n": [1, 2]})
    assert read_table(file).columns["text"].tolist() == [long, "b"]
    assert csv.field_size_limit() == before


def test_numbers_beyond_float32_stay_finite() -> None:
    most = np.finfo(np.float64).max
    table = read_table({"x": [*range(200), most, most] * 2, "far": [-most, most] * 202, "y": [0, 1] * 202})
    columns, _ = find_columns(table, "y")
    assert all(np.isfinite([column.mean, column.deviation, *column.edges]).all() for column in columns)
    assert np.isfinite(TableColumns(columns)(encoded(columns, table.columns, "here"))).all()


def test_a_target_beyond_float32_is_refused() -> None:
    table = read_table({"x": range(40), "y": [0.5] * 38 + [-1e39, np.nan]})
    with pytest.raises(DataError, match=r"The column `y` of .* holds '-1e\+39' in row 39, and a regression predicts"):
        find_target(table, "y", "regression")


@pytest.mark.parametrize(
    ("first", "others"),
    [
        ("348,227", ["1,012,500"]),
        ("348.227,00", ["9"]),
        ("5,234.00", ["790.00"]),
        ("39,6", ["40"]),
        ("5'234", ["790"]),
        ("5 234", ["790"]),
        ("-5\u202f234", ["790"]),
        ("12%", ["7.5 %"]),
        ("$1,234.50", ["$7"]),
        ("-3.5 €", ["12 €"]),
    ],
)
def test_numbers_in_another_notation_are_refused(first: str, others: list[str]) -> None:
    table = read_table({"a": [first, *others * 9], "n": range(1 + 9 * len(others))})
    words = f"`a` of .* holds numbers such as {re.escape(repr(first))}: write them without thousands separators"
    for task in ("auto", "regression"):
        with pytest.raises(DataError, match=words + r".*\{'task': 'classification'\}"):
            find_target(table, "a", task)
    with pytest.raises(DataError, match=words + r".*\{'categories': \('a',\)\}"):
        find_columns(table, "n")
    assert first in find_target(table, "a", "classification").class_names


@pytest.mark.parametrize("power", [-20, -30, 18, 30])
def test_a_target_whose_squares_are_beyond_float32_is_refused(power: int) -> None:
    table = read_table({"y": [number * 10.0**power for number in range(40)]})
    with pytest.raises(DataError, match=r"`y` of .* has a standard deviation of .*: give it in another unit"):
        find_target(table, "y", "regression")


def test_a_target_that_float32_does_not_tell_apart_is_refused() -> None:
    table = read_table({"y": [1_700_000_000_000 + 1000 * number for number in range(40)]})
    with pytest.raises(DataError, match=r"`y` of .* has numbers up to 1.7e\+12 .*: subtract a constant from all"):
        find_target(table, "y", "regression")


@pytest.mark.parametrize("mark", ["-", "unknown"])
def test_a_word_beside_many_numbers_is_no_category(mark: str) -> None:
    table = read_table({"a": [*range(15), mark, mark, mark] * 3, "y": list(range(54))})
    with pytest.raises(DataError, match=rf"`a` of .* holds numbers, and '{mark}' beside them: correct it, or say what"):
        find_columns(table, "y")
    with pytest.raises(DataError, match=rf"`a` of .* holds numbers, and '{mark}' beside them: .*'classification'"):
        find_target(table, "a", "auto")
    assert len(find_target(table, "a", "classification").class_names) == 16
    assert find_columns(table, "y", categories=("a",))[0][0].categories


def test_what_excel_writes_for_a_missing_value_is_missing() -> None:
    ((column,), _) = find_columns(read_table({"a": ["1", "2", "#N/A"] * 9, "y": range(27)}), "y")
    assert (column.categories, column.gaps) == ((), True)


def test_texts_that_occur_once_are_no_classes() -> None:
    table = read_table({"name": [f"n{number}" for number in range(20)], "n": range(20)})
    with pytest.raises(DataError, match="has 20 different texts in 20 rows, and most of them only once: name another"):
        find_target(table, "name", "auto")
    assert len(find_target(table, "name", "classification").class_names) == 20


@pytest.mark.parametrize(
    ("values", "notes"),
    [
        (["3.870", "790"], ["The column `x` holds '3.870', which is read as 3.87: if its point separates thousands"]),
        (["3.870", "790.5"], []),
        (["0.870", "790"], []),
        (["3.870", "2.125"], []),
        ([3.87, 790], []),
        (
            [1.7e12, 1.7e12 + 9e3],
            ["The column `x` has a standard deviation of 4.5e+03, and float32"],
        ),
        ([1.7e12, None], []),
        (["2024-05-01", "2024-05-02"], ["The column `x` looks like dates, and is taken as 2 categories: other"]),
        (["1.5.2024", "12.5.2024", ""], ["The column `x` looks like dates, and is taken as 2 categories: other"]),
        (["2024-05-01 12:00", "2024-05-01 13:00"], ["The column `x` looks like dates"]),
        (["10.0.0.1", "10.0.0.2"], []),
        (["192.168.178.20", "192.168.178.21"], []),
        (["10.100.1", "10.100.2"], []),
    ],
)
def test_what_may_not_be_what_it_seems_is_noted(values: list[Any], notes: list[str]) -> None:
    _, found = find_columns(read_table({"x": values * 20, "y": [0] * 20 * len(values)}), "y")
    assert [note.startswith(wanted) for note, wanted in zip(found, notes, strict=True)] == [True] * len(notes)


def test_a_column_that_is_mostly_empty_is_not_taken_for_dates() -> None:
    table = read_table({"x": [*["", "", "", ""] * 10, *map("remark {}".format, range(10))], "y": [0] * 50})
    assert find_columns(table, "y")[1] == []


def test_decimal_commas_are_no_thousands_separators(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", {"w": ["3,870", "790", "12"], "p": ["3.870", "790", "12"], "y": "abc"}, ";")
    columns, notes = find_columns(read_table(file).take(np.arange(3)), "y")
    assert [column.name for column in columns] == ["w", "p"]
    assert [note.partition(":")[0] for note in notes] == ["The column `p` holds '3.870', which is read as 3.87"]


@pytest.mark.parametrize("name", ['Price, "net"', "Price\n(net)", "Price\r\n(net), in francs"])
def test_the_advice_on_a_column_can_be_followed(name: str) -> None:
    table = read_table({name: [*range(30), "x"], "n": list(range(31)), "y": [0] * 31})
    with pytest.raises(DataError, match=re.escape(f"`options={{'ignore': ({name!r},)}}`")):
        find_columns(table, "y")
    with speaking_options(), pytest.raises(DataError) as caught:
        find_columns(table, "y")
    advice = str(caught.value).rpartition("`--set ")[2].removesuffix("`.")
    key, text = key_and_value(*shlex.split(advice))
    assert find_recipe("table").settings({key: text})["ignore"] == (name,)


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
    (tmp_path / "t.json").write_text('[{"a": 1}]')
    with pytest.raises(DataError, match=r"t\.json is not a CSV or Parquet file: save the table as one"):
        read_table(tmp_path / "t.json")
    (tmp_path / "t.xls").write_text("a\tb\n1\t2\n")
    assert list(read_table(tmp_path / "t.xls").columns) == ["a", "b"]
    with pytest.raises(DataError, match="The recipe `table` learns from a table"):
        recipe.data(target="y")
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
    assert {each["name"]: each.get("key") for each in made.inputs} == {"km_h": "km/h", "city": None, "heating": None}
    assert made.notes[1] == "Names of its inputs are identifiers: `km_h` is `km/h`."


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


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("c", "takes the columns of a table, and `c` has no operators for them: export to litert, "),
        ("wasm", "takes the columns of a table, and `wasm` has no operators"),
        ("litert-int8", "Numbers may be missing in `heating`, and the integers of `litert-int8` have no NaN"),
        ("c-array", "Numbers may be missing in `heating`"),
    ],
)
def test_forms_that_lack_what_columns_need_are_refused(form: str, words: str, classifier: Any, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=words):
        rudel.export(classifier.path, form, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_categories_are_refused_by_int16(tmp_path: Path) -> None:
    rows = {"colour": ["red", "blue"] * 20, "y": ["a", "b"] * 20}
    made = rudel.train_recipe("table", data=rows, options={"target": "y"}, run=tmp_path / "run", steps=1, verbose=False)
    data = str(write(tmp_path / "t.csv", rows))
    with pytest.raises(ExportError, match="takes categories, and the converter to `litert-int16` does not: export to"):
        rudel.export(made.path, "litert-int16", tmp_path / "out.tflite", data=data)


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
    (note,) = found.notes
    assert note.startswith("The training data has changed since the training, so some of these examples may have been")


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
    shorter = write(tmp_path / "shorter.csv", {name: values[1:] for name, values in made_up().items()})
    changed: dict[str, Any] = {**arguments, "data": str(shorter)}
    with pytest.raises(RunError, match=r"was begun with training data \(fingerprint\)"):
        rudel.train_recipe("table", **changed, resume=True)
    again = rudel.train_recipe("table", **arguments, resume=True)
    assert again.summary["metrics"] == classifier.summary["metrics"]
