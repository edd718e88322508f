"""The scripts of the benchmarks that hold the server to its promises, for a moment each."""

import asyncio
import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from serve_support import serving

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def test_twice_as_much_as_it_can_bear(script: Any, runs: Path, tmp_path: Path, warm_python: str) -> None:
    """Mixed requests: every one is answered once, and nothing but 503 from 500 on."""
    soak = script("soak")
    arguments = [f"{soak.NAME}={runs / 'drawings'}", "--queue", "16", "--log", "none", "--max-batch", "4"]
    with serving(tmp_path, *arguments, python=warm_python) as server:
        tally, capacity = asyncio.run(soak.soak(server.port, 4.0, 2.0))
        assert server.stop() == 0
    assert tally.problems == []
    assert capacity > 0
    assert {kind.partition(":")[0] for kind in tally.answers} == {"good", "bad", "slow"}
    assert tally.sent["aborted"] > 0
    assert "Traceback" not in server.log.read_text()


def test_answers_are_as_the_openapi_document_says(script: Any, server: Any) -> None:
    answered, failures = script("fuzz").fuzz(server.address, 200, 0, ["/v1/models/small", "/v2/models/small"])
    assert failures == []
    assert sum(answered.values()) > 100
    assert {status for _, status in answered} <= {200, 400, 422}
    assert "Traceback" not in server.log.read_text()


def test_an_answer_without_numbers_needs_a_reason(script: Any) -> None:
    fuzz = script("fuzz")

    def check(error: str, *numbers: float) -> None:
        answer = SimpleNamespace(status_code=422, json=lambda: {"error": error})
        fuzz.overflowed(None, answer, SimpleNamespace(body={"instances": [[1.0, [*numbers]]]}))

    reason = "The model answers example 0 with NaN or infinity in its output `output_0`."
    check(reason, -3e38)
    with pytest.raises(AssertionError, match="for numbers up to 5"):
        check(reason, 5.0)
    with pytest.raises(AssertionError, match="because: The request"):
        check("The request makes no sense.", 3e38)
