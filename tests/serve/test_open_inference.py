"""The Open Inference Protocol (KServe v2), asked by Triton's public Python client."""

import io
import json
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

import rudel

X = np.array([[0.5, 1.0, -1.0, 2.0], [1, 2, 3, 4]], np.float32)


@pytest.fixture(scope="module")
def client(server: Any) -> Iterator[Any]:
    from tritonclient.http import InferenceServerClient

    with InferenceServerClient(server.address.removeprefix("http://"), concurrency=4) as made:
        yield made


@pytest.fixture(scope="module")
def triton() -> Any:
    import tritonclient.http

    return tritonclient.http


@pytest.fixture(scope="module")
def predicted(runs: Any) -> np.ndarray:
    return rudel.predict(rudel.load(runs / "small"), X)


def test_server_and_models(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("small")
    assert client.is_model_ready("small", "1")
    assert not client.is_model_ready("nothing")
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    assert client.get_model_metadata("pairs") == {
        "name": "pairs",
        "versions": ["1"],
        "platform": "jax",
        "inputs": [
            {"name": "left", "datatype": "FP32", "shape": [-1, 2]},
            {"name": "right", "datatype": "INT32", "shape": [-1, 1]},
        ],
        "outputs": [
            {"name": "same", "datatype": "FP32", "shape": [-1, 3]},
            {"name": "total", "datatype": "FP32", "shape": [-1, 1]},
        ],
    }


@pytest.mark.parametrize("binary_in", [False, True])
@pytest.mark.parametrize("binary_out", [False, True])
def test_inference(client: Any, triton: Any, predicted: np.ndarray, binary_in: bool, binary_out: bool) -> None:
    x = triton.InferInput("x", list(X.shape), "FP32")
    x.set_data_from_numpy(X, binary_data=binary_in)
    outputs = [triton.InferRequestedOutput("output_0", binary_data=binary_out)]
    result = client.infer("small", [x], outputs=outputs, request_id="seven")
    np.testing.assert_allclose(result.as_numpy("output_0"), predicted, rtol=1e-5)
    response = result.get_response()
    assert (response["id"], response["model_name"], response["model_version"]) == ("seven", "small", "1")


def test_all_outputs_without_asking_for_them(client: Any, triton: Any) -> None:
    left, right = triton.InferInput("left", [2, 2], "FP32"), triton.InferInput("right", [2, 1], "INT32")
    left.set_data_from_numpy(np.array([[1, 2], [3, 4]], np.float32))
    right.set_data_from_numpy(np.array([[5], [6]], np.int32))
    result = client.infer("pairs", [right, left], model_version="1")
    assert result.as_numpy("total").tolist() == [[8], [13]]
    assert result.as_numpy("same").tolist() == [[1, 2, 5], [3, 4, 6]]


def test_many_at_the_same_time(client: Any, triton: Any, predicted: np.ndarray) -> None:
    def asked(row: np.ndarray) -> Any:
        x = triton.InferInput("x", [1, 4], "FP32")
        x.set_data_from_numpy(row[None])
        return client.async_infer("small", [x])

    answers = [asked(X[i % 2]) for i in range(100)]
    for i, answer in enumerate(answers):
        np.testing.assert_allclose(answer.get_result().as_numpy("output_0")[0], predicted[i % 2], rtol=1e-5)


def test_an_error_is_told(client: Any, triton: Any) -> None:
    from tritonclient.utils import InferenceServerException

    x = triton.InferInput("x", [1, 3], "FP32")
    x.set_data_from_numpy(np.zeros((1, 3), np.float32))
    with pytest.raises(InferenceServerException, match=r"shape \(4,\)"):
        client.infer("small", [x])


def test_encoded_pictures_are_bytes(client: Any, triton: Any, server: Any) -> None:
    file = io.BytesIO()
    Image.linear_gradient("L").save(file, "PNG")
    name = client.get_model_metadata("quick")["inputs"][0]["name"]
    x = triton.InferInput(name, [2], "BYTES")
    x.set_data_from_numpy(np.array([file.getvalue()] * 2, object))
    answer = server.ask("/v1/models/quick:predict", file.getvalue(), {"content-type": "image/png"})
    expected = answer.json["predictions"] * 2
    np.testing.assert_allclose(client.infer("quick", [x]).as_numpy("output_0"), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("datatype", "form"), [("UINT8", "B"), ("INT8", "b"), ("INT64", "q"), ("FP16", "e"), ("FP32", "f"), ("FP64", "d")]
)
def test_numbers_of_other_kinds_are_taken_where_nothing_is_lost(server: Any, datatype: str, form: str) -> None:
    numbers = struct.pack(f"<4{form}", 1, 2, 3, 4)
    head = {
        "inputs": [
            {"name": "x", "shape": [1, 4], "datatype": datatype, "parameters": {"binary_data_size": len(numbers)}}
        ],
        "parameters": {"binary_data_output": True},
    }
    body = json.dumps(head).encode()
    headers = {"inference-header-content-length": str(len(body)), "content-type": "application/octet-stream"}
    answer = server.ask("/v2/models/small/infer", body + numbers, headers)
    assert answer.status == 200
    length = int(answer.headers["inference-header-content-length"])
    expected = server.ask("/v1/models/small:predict", {"instances": [[1, 2, 3, 4]]}).json["predictions"]
    np.testing.assert_allclose(np.frombuffer(answer.body[length:], np.float32), expected[0], rtol=1e-5)


@pytest.mark.parametrize("data", [[1, 2, 3, 4, 5, 6, 7, 8], [[1, 2, 3, 4], [5, 6, 7, 8]]])
def test_flat_and_nested_json(server: Any, data: Any) -> None:
    body = {"inputs": [{"name": "x", "shape": [2, 4], "datatype": "INT32", "data": data}]}
    (output,) = server.ask("/v2/models/small/infer", body).json["outputs"]
    assert (output["datatype"], output["shape"], len(output["data"])) == ("FP32", [2, 3], 6)
