"""The article's MLP in MLServer: a runtime as its users write them."""

import numpy as np
from mlserver import MLModel  # pyright: ignore[reportMissingImports]
from mlserver.codecs import NumpyCodec  # pyright: ignore[reportMissingImports]
from mlserver.types import InferenceRequest, InferenceResponse  # pyright: ignore[reportMissingImports]
from serve_mlp import Mlp


class Runtime(MLModel):
    """Asks the net; the file of its weights is in the model's settings."""

    async def load(self) -> bool:
        assert self.settings.parameters
        self._net = Mlp(str(self.settings.parameters.uri))
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        x = np.asarray(NumpyCodec.decode_input(payload.inputs[0]), np.float32)
        output = NumpyCodec.encode_output("output_0", self._net(x))
        return InferenceResponse(model_name=self.name, outputs=[output])
