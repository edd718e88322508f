"""Encoded recordings as inputs of a model that hears, as `rudel predict` reads them: one of any rate is one example.

A file of some kilobytes can hold samples that fill all memory, or a rate that makes it so; they are counted before they
are decoded.
"""

import numpy as np

from rudel.data.sound.recording import decode
from rudel.data.windows import cut_or_padded
from rudel.errors import DataError
from rudel.serve.image_inputs import Admit, Decode, Files
from rudel.serve.model_signature import Signature

RECORDINGS = Files(
    ("audio/wav", "audio/x-wav", "audio/wave", "audio/vnd.wave", "audio/flac", "audio/x-flac"), "recordings", "samples"
)


def reader(signature: Signature, rate: int) -> Decode | None:
    """Conversion of encoded recordings to inputs; None for a model that takes more than sound.

    Args:
        signature: of the model.
        rate: of the sound that it hears, samples a second.
    """
    if len(signature.inputs) != 1 or len(signature.inputs[0].shape) != 1:
        return None
    (length,) = signature.inputs[0].shape

    def read(content: bytes, admit: Admit) -> np.ndarray:
        windows = cut_or_padded(decode(content, rate, "The recording", admit), length)
        if len(windows) > 1:
            raise DataError(
                f"The recording has {len(windows)} times the {length / rate:g} seconds that the model takes at once: "
                "send it in parts."
            )
        return windows[0]

    return read
