"""The article's MLP in KServe's Python server: `python serve_kserve.py WEIGHTS.npz NAME PORT`"""

import sys
from typing import Any

import numpy as np
from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer  # pyright: ignore[reportMissingImports]
from serve_mlp import Mlp


class Net(Model):
    """Asks the net."""

    def __init__(self, name: str, weights: str) -> None:
        super().__init__(name)
        self._net = Mlp(weights)
        self.ready = True

    def predict(self, payload: Any, headers: Any = None, response_headers: Any = None) -> Any:
        assert isinstance(payload, InferRequest)
        outputs = self._net(np.asarray(payload.inputs[0].as_numpy(), np.float32))
        output = InferOutput("output_0", list(outputs.shape), "FP32")
        output.set_data_from_numpy(outputs, binary_data=payload.use_binary_outputs)
        return InferResponse(payload.id or "0", self.name, [output])


if __name__ == "__main__":
    weights, name, port = sys.argv[1:]
    ModelServer(http_port=int(port), enable_grpc=False, workers=1).start([Net(name, weights)])
