"""Recordings as they are: a run that hears is served WAV and FLAC of any rate, and answers as `rudel predict` does."""

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from predicting import predict_files
from serve_support import Server, dense, serving, write_run

import rudel
from rudel.recipes.load import find_recipe
from rudel.serve.image_inputs import decode_all
from rudel.serve.model_signature import Signature, Tensor
from rudel.serve.recording_inputs import RECORDINGS, reader
from rudel.serve.refusal import Refusal
from rudel.serve.server_limits import Limits

WORDS = ("no", "yes")
WAV = {"content-type": "audio/wav"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "words"
    examples = rudel.Examples(np.zeros((2, 8000), np.int16), np.arange(2))
    recipe = find_recipe("keywords")
    model = recipe.model(recipe.settings({"net": "tiny"}), dataset=rudel.Dataset(examples, class_names=WORDS))
    write_run(path, model, "keywords", WORDS)
    write_run(path.parent / "small", dense(), classes=("bit", "bot", "but"))
    return path


@pytest.fixture(scope="module")
def server(run: Path, tmp_path_factory: pytest.TempPathFactory, warm_python: str) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    with serving(folder, run, run.parent / "small", "--max-body", "1", python=warm_python) as started:
        yield started


def recording(rate: int = 8000, seconds: float = 0.7, channels: int = 1, form: str = "WAV") -> bytes:
    random, n = np.random.default_rng(0), np.arange(round(rate * seconds)) / rate
    wave = 0.3 * np.sin(2 * np.pi * (400 + 300 * n) * n) + random.normal(0, 0.01, n.shape)
    file = io.BytesIO()
    soundfile.write(file, np.stack([wave] * channels, 1), rate, format=form, subtype="PCM_16")
    return file.getvalue()


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({}, "audio/wav"),
        ({"rate": 44_100, "channels": 2}, "audio/x-wav"),
        ({"seconds": 1.4}, "audio/wav"),
        ({"form": "FLAC"}, "audio/flac"),
    ],
)
def test_a_body_is_a_recording(server: Server, run: Path, given: Any, kind: str, tmp_path: Path) -> None:
    content = recording(**given)
    (tmp_path / "asked.wav").write_bytes(content)
    (expected,) = predict_files(run, [tmp_path / "asked.wav"])
    answer = server.ask("/v1/models/words:classify", content, {"content-type": kind}).json["results"][0]
    assert [label for label, _ in answer] == [label for label, _ in expected.ranking]
    assert [score for _, score in answer] == pytest.approx([score for _, score in expected.ranking], abs=1e-5)


def test_recordings_in_json_are_base64(server: Server) -> None:
    contents = [recording(), recording(16_000)]
    instances = [{"b64": base64.b64encode(content).decode()} for content in contents]
    answer = server.ask("/v1/models/words:predict", json.dumps({"instances": instances}).encode()).json["predictions"]
    alone = [server.ask("/v1/models/words:predict", content, WAV).json["predictions"][0] for content in contents]
    np.testing.assert_allclose(answer, alone, atol=1e-5)


def test_samples_are_still_taken_as_numbers(server: Server) -> None:
    samples, _ = soundfile.read(io.BytesIO(recording(seconds=1)), dtype="int16")
    asked = json.dumps({"instances": [samples.tolist()]}).encode()
    answer = server.ask("/v1/models/words:predict", asked).json["predictions"]
    np.testing.assert_allclose(
        answer, server.ask("/v1/models/words:predict", recording(seconds=1), WAV).json["predictions"], atol=1e-5
    )


@pytest.mark.parametrize(
    ("model", "content", "kind", "status", "says"),
    [
        ("words", b"RIFF", "audio/wav", 400, "The recording cannot be decoded"),
        ("words", b"", "audio/flac", 400, "The recording cannot be decoded"),
        ("words", recording(seconds=5), "audio/wav", 400, "5 times the 1 seconds that the model takes at once"),
        ("words", b"\x89PNG", "image/png", 400, "takes no images"),
        ("small", recording(), "audio/wav", 400, "takes no recordings"),
        ("words", b"ID3", "audio/mpeg", 415, "recordings as audio/wav or audio/flac"),
    ],
)
def test_what_is_refused(server: Server, model: str, content: bytes, kind: str, status: int, says: str) -> None:
    answer = server.ask(f"/v1/models/{model}:predict", content, {"content-type": kind})
    assert answer.status == status
    assert says in answer.error


def test_small_files_cannot_fill_the_memory() -> None:
    """One sample a second becomes 8,000."""
    file = io.BytesIO()
    soundfile.write(file, np.zeros(2000, np.int16), 1, format="WAV")
    tensor = Tensor("sound", (8000,), "int16")
    read = reader(Signature((tensor,), ()), 8000)
    with pytest.raises(Refusal, match="The recordings have more than 1,000,000 samples together: send fewer at once"):
        decode_all([file.getvalue()], tensor, read, Limits(pixels=1_000_000), 1e9, RECORDINGS)


def test_the_description_names_the_types(server: Server) -> None:
    paths = server.ask("/openapi.json").json["paths"]
    assert {"audio/wav", "audio/flac"} < set(paths["/v1/models/words:classify"]["post"]["requestBody"]["content"])
    assert set(paths["/v1/models/small:classify"]["post"]["requestBody"]["content"]) == {"application/json"}
