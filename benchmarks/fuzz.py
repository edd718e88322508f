"""Schemathesis against the OpenAPI document of a running server: every case is answered as the document says.

    rudel serve runs/sine --port 8501 &
    python benchmarks/fuzz.py --url http://127.0.0.1:8501 --cases 10000

Schemathesis makes requests that the document allows, and requests that it does not, for every path. No answer may be
5xx; status, media type and document of an answer have to be those that are told; what the document allows has to be
answered, and what it does not allow has to be refused. Status 422 is allowed for numbers above 1e30 of which the model
makes NaN or infinity, as its answer has to say. For `/infer`, acceptance and refusal are left out, as no schema can
tell that the `shape` of a tensor has to fit its `data`; the same goes for columns of models with several inputs, which
need as many examples each. Use models with small inputs: what Schemathesis makes is small, too.
"""

import collections
import io
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import schemathesis
import typer
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import builds, integers
from PIL import Image
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    positive_data_acceptance,
    response_schema_conformance,
    status_code_conformance,
)

_SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
UNEVEN = "The inputs have different numbers of examples."
NOT_FINITE = re.compile(r"The model answers example [\d,]+ with NaN or infinity in its output `[^`]+`\.")
HUGE = 1e30
"""Numbers below this do not overflow in a small model, whose values are float32."""


def overflowed(context: Any, response: Any, case: Any) -> Any:
    """Status 422 is for numbers so large that the model answers with NaN or infinity, and for nothing else."""
    if response.status_code == 422:
        error = response.json().get("error", "")
        assert NOT_FINITE.fullmatch(error), f"status 422 because: {error}"
        assert _largest(case.body) > HUGE, f"status 422 for numbers up to {_largest(case.body):g}"


def _largest(value: Any) -> float:
    """The largest magnitude of all numbers in a request's body."""
    if isinstance(value, dict | list):
        return max(map(_largest, value.values() if isinstance(value, dict) else value), default=0.0)
    return abs(value) if isinstance(value, int | float) else 0.0


ALWAYS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    overflowed,
]


def accepted(context: Any, response: Any, case: Any) -> Any:
    """What the document allows is answered, except for what it cannot describe.

    That is several inputs of different lengths, and numbers of which the model makes NaN or infinity.
    """
    if response.status_code == 422 or (response.status_code == 400 and response.json().get("error") == UNEVEN):
        return None
    return positive_data_acceptance(context, response, case)


def pictures(form: str) -> Any:
    """Files of small pictures, which no schema can tell from other bytes."""

    def file_of(width: int, height: int, grey: int) -> bytes:
        file = io.BytesIO()
        Image.new("L", (width, height), grey).save(file, form)
        return file.getvalue()

    return builds(file_of, integers(1, 40), integers(1, 40), integers(0, 255))


for kind in ("png", "jpeg"):
    schemathesis.openapi.media_type(f"image/{kind}", pictures(kind))

STRICT = [*ALWAYS, accepted, negative_data_rejection]


def main(
    url: Annotated[str, typer.Option(help="Of the server.")],
    cases: Annotated[int, typer.Option(min=1, help="How many in all.")] = 10_000,
    start: Annotated[int, typer.Option("--seed", help="Of the cases.")] = 0,
) -> None:
    """Ask, and say what was answered; exit code 1 where a check has failed."""
    answered, failures = fuzz(url, cases, start)
    for (path, status), count in sorted(answered.items()):
        print(f"{count:8,}  {status}  {path}")
    print(f"{sum(answered.values()):,} cases, {len(failures)} failures")
    for failure in failures:
        print(failure)
    raise typer.Exit(1 if failures else 0)


def fuzz(
    url: str, cases: int, start: int, only: Sequence[str] = ("/",)
) -> tuple[collections.Counter[tuple[str, int]], list[str]]:
    """Asks paths that begin with one of `only`; returns how often each gave which status, and what has failed."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    schema.config.generation.update(modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
    every: list[Any] = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    operations = [operation for operation in every if operation.path.startswith(tuple(only))]
    posts = [operation for operation in operations if operation.method.upper() == "POST"]
    each = -(-cases // (2 * len(posts)))
    answered: collections.Counter[tuple[str, int]] = collections.Counter()
    failures = []
    for operation in operations:
        modes = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE] if operation in posts else [GenerationMode.POSITIVE]
        for mode in modes:
            failures += _ask(operation, mode, each if operation in posts else 1, start, answered)
    return answered, failures


def _ask(operation: Any, mode: GenerationMode, count: int, start: int, answered: Any) -> list[str]:
    checks = ALWAYS if operation.path.endswith("/infer") else STRICT

    @seed(start)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=_SLOW,
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def test(case: Any) -> None:
        response = case.call()
        answered[operation.path, response.status_code] += 1
        case.validate_response(response, checks=checks)

    try:
        test()
    except (Exception, BaseExceptionGroup) as error:  # its text has the request and the answer
        return [f"{operation.method.upper()} {operation.path}, {mode.value}: {_first(error)}"]
    return []


def _first(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return "\n    ".join(lines[:25])


if __name__ == "__main__":
    sys.exit(typer.run(main))
