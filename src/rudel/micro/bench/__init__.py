"""Models measured on emulated microcontrollers: `bench` compiles and measures, `measure` takes what is compiled."""

from rudel.micro.bench.measure import Layer, Measurement, bench, measure, uniform_inputs
from rudel.micro.bench.tools import BenchError

__all__ = ["BenchError", "Layer", "Measurement", "bench", "measure", "uniform_inputs"]
