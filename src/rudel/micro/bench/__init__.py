"""Models measured on microcontrollers: `bench` compiles and measures on an emulated one, `measure` takes what is
compiled, and `bench_board` measures on a board."""

from rudel.micro.bench.measure import Layer, Measurement, bench, measure, uniform_inputs
from rudel.micro.bench.on_board import BoardMeasurement, bench_board
from rudel.micro.bench.tools import BenchError

__all__ = [
    "BenchError",
    "BoardMeasurement",
    "Layer",
    "Measurement",
    "bench",
    "bench_board",
    "measure",
    "uniform_inputs",
]
