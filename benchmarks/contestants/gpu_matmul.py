"""Which devices JAX sees, and how fast one of them multiplies large square matrices, at best."""

import json
import sys
import time
from typing import Any

from rudel.backend import keras_on_jax

keras_on_jax(light=True)

import jax  # noqa: E402  # after Keras, which says where JAX keeps its programs
import jax.numpy as jnp  # noqa: E402

SIZES = {"large": (4096, 8192, 16384), "small": (1024, 2048)}
PRODUCTS = 8


def best(size: int, dtype: str, seconds: float) -> float:
    """TFLOP/s of products of (size, size) matrices, the best of some rounds that take about so long."""
    left, right = (jax.random.normal(jax.random.key(i), (size, size), dtype) for i in range(2))

    @jax.jit
    def multiply(a: Any, b: Any) -> Any:
        for _ in range(PRODUCTS):
            a = jnp.tanh(a @ b)  # bounded, and so no product can be left out
        return a

    jax.block_until_ready(multiply(left, right))
    times, end = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        began = time.perf_counter()
        jax.block_until_ready(multiply(left, right))
        times.append(time.perf_counter() - began)
    return PRODUCTS * 2 * size**3 / min(times) / 1e12


def main() -> None:
    """Measures, prints."""
    job = json.loads(sys.argv[1])
    device = jax.devices()[0]
    size = job["size"] if job["size"] != "auto" else "small" if device.platform == "cpu" else "large"
    measured = {
        dtype: max(best(number, dtype, job["seconds"]) for number in SIZES[size])
        for dtype in dict.fromkeys(job["precisions"])
    }
    report = {"platform": device.platform, "kind": device.device_kind, "devices": jax.device_count(), "size": size}
    print(json.dumps({**report, "matmul": measured, "jax": jax.__version__}))


if __name__ == "__main__":
    main()
