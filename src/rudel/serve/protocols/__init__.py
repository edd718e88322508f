"""The protocols that clients speak: each matches paths, parses requests, writes answers and documents all that.

To add one, write its class in a module beside `tensorflow_rest` and name an instance in `PROTOCOLS`: the application
and the OpenAPI document find it there.
"""

from rudel.serve.protocols.open_inference import OpenInference
from rudel.serve.protocols.protocol import ServingProtocol
from rudel.serve.protocols.tensorflow_rest import TensorFlowRest

PROTOCOLS: tuple[ServingProtocol, ...] = (TensorFlowRest(), OpenInference())
