"""Kernels for cores with the DSP instructions of Armv7E-M: Cortex-M4, M7, M33."""

from rudel.micro.dsp.convolution import lower_convolution
from rudel.micro.dsp.dense import lower_dense
from rudel.micro.dsp.depthwise import lower_depthwise
from rudel.micro.emit import Lowering

LOWERINGS: dict[str, Lowering] = {
    "CONV_2D": lower_convolution,
    "DEPTHWISE_CONV_2D": lower_depthwise,
    "FULLY_CONNECTED": lower_dense,
}
"""By kind of operator; each returns None where the generic kernel has to do."""
