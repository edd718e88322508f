"""A model of a table is asked with the columns' names, texts for categories, and null for what is missing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from predicting import predict_files
from serve.serve_support import Server, write_run

import rudel
from rudel.recipes import table

TABLE = {
    "km/h": [None if number % 5 == 0 else float(number) for number in range(40)],
    "postcode": [8001, 3000] * 20,
    "colour of it": ["red", "red", "blue", "green"] * 10,
    "answer": ["yes", "no"] * 20,
}
ROW = {"km/h": 7, "postcode": "3000", "colour of it": "red"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    dataset = table.data(TABLE, target="answer", categories=("postcode",))
    model = table.model(dataset, steps=4, hidden=8)
    rudel.fit(model, dataset.train, epochs=4, verbose=False)
    return write_run(tmp_path_factory.mktemp("runs") / "cars", model, "table", ("no", "yes"))


@pytest.fixture(scope="module")
def server(run: Path, tmp_path_factory: pytest.TempPathFactory, warm_python: str) -> Any:
    from serve.serve_support import serving

    with serving(tmp_path_factory.mktemp("server"), run, python=warm_python) as started:
        yield started


def test_a_row_is_answered_as_in_a_file(run: Path, server: Server, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("colour of it,postcode,km/h\nred,3000,7\npink,,\n")
    wanted = [prediction.outputs for prediction in predict_files(run, [tmp_path / "rows.csv"])]
    rows = [ROW, {"km/h": None, "postcode": None, "colour of it": "pink"}]
    found = server.ask("/v1/models/cars:predict", {"instances": rows}).json["predictions"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    columns = {name: [row[name] for row in rows] for name in ROW}
    np.testing.assert_allclose(
        server.ask("/v1/models/cars:predict", {"inputs": columns}).json["outputs"], wanted, rtol=1e-5
    )
    labels = server.ask("/v1/models/cars:classify", {"examples": [ROW | {"postcode": 3000}]}).json["results"]
    assert dict(labels[0])["yes"] == pytest.approx(wanted[0][1], rel=1e-5)


def test_a_savedmodel_takes_the_same_rows(
    run: Path, server: Server, start: Callable[..., Server], tmp_path: Path
) -> None:
    examples = table.data(TABLE, target="answer", categories=("postcode",)).train
    exported = rudel.export(run, "savedmodel", tmp_path / "cars", data=examples)
    rows = [{"km_h": speed, "postcode": "3000", "colour_of_it": "pink"} for speed in (7, None)]
    found = start(exported.path).ask("/v1/models/cars:predict", {"instances": rows}).json["predictions"]
    same = [ROW | {"km/h": speed, "colour of it": "pink"} for speed in (7, None)]
    wanted = server.ask("/v1/models/cars:predict", {"instances": same}).json["predictions"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_the_open_inference_protocol_takes_a_row(server: Server) -> None:
    about = server.ask("/v2/models/cars").json["inputs"]
    assert {each["name"]: each["datatype"] for each in about} == {
        "km/h": "FP32", "postcode": "BYTES", "colour of it": "BYTES"
    }  # fmt: skip
    values = ROW | {"km/h": None}
    inputs = [{**each, "shape": [1], "data": [values[each["name"]]]} for each in about]
    found = server.ask("/v2/models/cars/infer", {"inputs": inputs}).json["outputs"][0]["data"]
    wanted = server.ask("/v1/models/cars:predict", {"instances": [values]}).json["predictions"][0]
    assert found == pytest.approx(wanted)


def test_a_category_is_not_a_number_in_the_open_inference_protocol(server: Server) -> None:
    inputs = [{"name": "postcode", "datatype": "INT64", "shape": [1], "data": [3000]}]
    answer = server.ask("/v2/models/cars/infer", {"inputs": inputs})
    wanted = "The input `postcode` takes BYTES, and its `datatype` is INT64."
    assert (answer.status, answer.error) == (400, wanted)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda row: row | {"km/h": "fast"}, "`km/h` takes numbers"),
        (lambda row: row | {"colour of it": [1]}, "`colour of it`"),
        (lambda row: {**row, "more": 1}, "takes `colour of it`, `km/h`, `postcode`"),
        (lambda row: {**row, "more": 1}, "Example 0 has an input `more`, which is unknown"),
        (lambda row: {"km/h": 7}, "takes `colour of it`, `km/h`, `postcode`"),
        (lambda row: {"km/h": 7, "postcode": "3000", "more": 1}, "Example 0 lacks the input `colour of it`"),
    ],
)
def test_mistakes_are_one_sentence(server: Server, change: Callable[[dict[str, Any]], Any], words: str) -> None:
    answer = server.ask("/v1/models/cars:predict", {"instances": [change(ROW)]})
    assert (answer.status, words in answer.error) == (400, True), answer.error
