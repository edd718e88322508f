"""TensorFlow Serving's REST API, as its clients use it."""

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
from PIL import Image, ImageDraw
from serve_support import dense, write_run

import rudel

ROWS = [[0.5, 1.0, -1.0, 2.0], [1, 2, 3, 4]]


@pytest.fixture(scope="module")
def predicted(runs: Path) -> list[list[float]]:
    """What the model itself says of `ROWS`."""
    return rudel.predict(rudel.load(runs / "small"), np.array(ROWS, np.float32)).tolist()


def picture(kind: str = "PNG") -> bytes:
    image = Image.new("L", (60, 50), "white")
    ImageDraw.Draw(image).line((10, 10, 40, 30), fill="black", width=5)
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


def test_the_usual_client(server: Any, predicted: list[list[float]]) -> None:
    """As in TensorFlow Serving's tutorials: requests, and a text as the body."""
    status = requests.get(f"{server.address}/v1/models/small")
    assert status.json() == {
        "name": "small",
        "ready": True,
        "model_version_status": [
            {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
        ],
    }
    data = '{"signature_name": "serving_default", "instances": [[0.5, 1.0, -1.0, 2.0], [1, 2, 3, 4]]}'
    answer = requests.post(f"{server.address}/v1/models/small:predict", data=data)
    assert answer.status_code == 200
    np.testing.assert_allclose(answer.json()["predictions"], predicted, rtol=1e-5)


@pytest.mark.parametrize("version", ["", "/versions/1"])
@pytest.mark.parametrize(
    ("body", "key"),
    [
        ({"instances": ROWS}, "predictions"),
        ({"instances": [{"x": row} for row in ROWS]}, "predictions"),
        ({"inputs": ROWS}, "outputs"),
        ({"inputs": {"x": ROWS}}, "outputs"),
    ],
)
def test_rows_and_columns(server: Any, predicted: list[list[float]], version: str, body: Any, key: str) -> None:
    answer = server.ask(f"/v1/models/small{version}:predict", body)
    assert answer.status == 200
    assert list(answer.json) == [key]
    np.testing.assert_allclose(answer.json[key], predicted, rtol=1e-5)


def test_more_examples_than_a_batch_holds(server: Any, runs: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(37, 4)).astype(np.float32)
    answer = server.ask("/v1/models/small:predict", {"instances": rows.tolist()})
    expected = rudel.predict(rudel.load(runs / "small"), rows)
    np.testing.assert_allclose(answer.json["predictions"], expected, rtol=1e-5)


def test_several_inputs_and_outputs(server: Any) -> None:
    rows = {"instances": [{"left": [1, 2], "right": [3]}, {"left": [0.5, 0], "right": [1.0]}]}
    assert server.ask("/v1/models/pairs:predict", rows).json == {
        "predictions": [{"total": [6.0], "same": [1.0, 2.0, 3.0]}, {"total": [1.5], "same": [0.5, 0.0, 1.0]}]
    }
    columns = {"inputs": {"left": [[1, 2]], "right": [[3]]}}
    assert server.ask("/v1/models/pairs:predict", columns).json == {
        "outputs": {"total": [[6.0]], "same": [[1.0, 2.0, 3.0]]}
    }


@pytest.mark.parametrize("examples", [[{"x": row} for row in ROWS], ROWS])
def test_classes_best_first(server: Any, predicted: list[list[float]], examples: Any) -> None:
    key = "examples" if isinstance(examples[0], dict) else "instances"
    results = server.ask("/v1/models/small:classify", {key: examples}).json["results"]
    for scores, row in zip(predicted, results, strict=True):
        best_first = sorted(zip(("bit", "bot", "but"), scores, strict=True), key=lambda pair: -pair[1])
        assert [label for label, _ in row] == [label for label, _ in best_first]
        np.testing.assert_allclose([score for _, score in row], [score for _, score in best_first], rtol=1e-5)


def test_classes_without_names_are_numbered(start: Any, predicted: list[list[float]], tmp_path: Path) -> None:
    server = start(write_run(tmp_path / "bare", dense()))
    results = server.ask("/v1/models/bare:classify", {"instances": ROWS}).json["results"]
    for scores, row in zip(predicted, results, strict=True):
        assert [label for label, _ in row] == [str(index) for index in np.argsort(scores)[::-1]]
        np.testing.assert_allclose([score for _, score in row], sorted(scores, reverse=True), rtol=1e-5)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_an_uploaded_picture_is_read_as_in_training(server: Any, runs: Path, tmp_path: Path, kind: str) -> None:
    from predicting import predict_files

    file = tmp_path / f"x.{kind.lower()}"
    file.write_bytes(picture(kind))
    (expected,) = predict_files(runs / "drawings", [file])
    headers = {"content-type": f"image/{kind.lower()}"}
    answer = server.ask("/v1/models/quick:predict", file.read_bytes(), headers)
    np.testing.assert_allclose(answer.json["predictions"], [expected.outputs], rtol=1e-5)
    (classes,) = server.ask("/v1/models/quick:classify", file.read_bytes(), headers).json["results"]
    assert [label for label, _ in classes] == [label for label, _ in expected.ranking]
    lines, line = base64.encodebytes(file.read_bytes()).decode(), base64.b64encode(file.read_bytes()).decode()
    assert "\n" in lines.strip()
    encoded = {"instances": [{"b64": lines}, {"b64": line}]}
    answer = server.ask("/v1/models/quick:predict", encoded)
    np.testing.assert_allclose(answer.json["predictions"], [expected.outputs] * 2, rtol=1e-5)


def test_metadata(server: Any) -> None:
    document = server.ask("/v1/models/pairs/versions/1/metadata").json
    assert document["model_spec"] == {"name": "pairs", "signature_name": "", "version": "1"}
    signature = document["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["inputs"]["right"]["dtype"] == "DT_INT32"
    assert [size["size"] for size in signature["inputs"]["left"]["tensor_shape"]["dim"]] == ["-1", "2"]
