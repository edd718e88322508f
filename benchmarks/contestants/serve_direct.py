"""Calls the model of a run without a server: `python serve_direct.py RUN WEIGHTS.npz`

Prints `p50` and `p99` of the seconds of a call with one example, as JSON, and leaves the weights of the article's MLP
in a file for the rivals.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

import rudel
from rudel.serve.runtimes.keras_runtime import load_run

run, weights = map(Path, sys.argv[1:])
model = load_run(run, 64)
x = [np.random.default_rng(0).integers(0, 256, (1, 28, 28)).astype(np.float32)]
taken = []
for _ in range(3000):
    began = time.perf_counter()
    model.compute(x)
    taken.append(time.perf_counter() - began)
taken = sorted(taken[500:])
kept = rudel.load(run).get_weights()
np.savez(weights, **dict(zip(("w1", "b1", "w2", "b2"), kept, strict=True)))
print(json.dumps({"p50": taken[len(taken) // 2], "p99": taken[len(taken) * 99 // 100]}))
