"""The matrix products of a training step, by NumPy, and nothing else: what no training on this BLAS can undercut.

Two products forward and three backward, float32, all buffers allocated beforehand. With one thread or with all,
whichever is faster: small products often do not gain by threads.
"""

import time
from collections.abc import Callable

import job
import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

PIXELS, HIDDEN = 784, 256


def products(size: int, classes: int) -> Callable[[], None]:
    """A function that does the products of one step."""
    random = np.random.default_rng(0)

    def filled(*shape: int) -> np.ndarray:
        return random.random(shape, np.float32)

    x, weights_1, weights_2 = filled(size, PIXELS), filled(PIXELS, HIDDEN), filled(HIDDEN, classes)
    hidden, output, error = filled(size, HIDDEN), filled(size, classes), filled(size, classes)
    hidden_error, gradient_1, gradient_2 = filled(size, HIDDEN), filled(PIXELS, HIDDEN), filled(HIDDEN, classes)

    def step() -> None:
        np.matmul(x, weights_1, out=hidden)
        np.matmul(hidden, weights_2, out=output)
        np.matmul(hidden.T, error, out=gradient_2)
        np.matmul(error, weights_2.T, out=hidden_error)
        np.matmul(x.T, hidden_error, out=gradient_1)

    return step


def seconds_for(step: Callable[[], None], steps: int) -> float:
    """How long so many steps take."""
    began = time.perf_counter()
    for _ in range(steps):
        step()
    return time.perf_counter() - began


def main() -> None:
    """Chooses the number of threads, measures, prints."""
    given = job.read()
    step = products(given.batch_size, len(given.classes))
    trials = {}
    for threads in sorted({1, *(pool["num_threads"] for pool in threadpool_info())}):
        with threadpool_limits(threads):
            seconds_for(step, given.warm_up)
            trials[threads] = seconds_for(step, given.warm_up)
    threads = min(trials, key=lambda tried: trials[tried])
    with threadpool_limits(threads):
        seconds = seconds_for(step, given.steps)
    job.answer(["numpy"], steps=given.steps, step_seconds=seconds / given.steps, threads=threads)


if __name__ == "__main__":
    main()
