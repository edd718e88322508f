"""Kernels for cores with the DSP instructions of Armv7E-M: Cortex-M4, M7, M33."""

from rudel.micro.dsp.convolution import lower_convolution as dsp_convolution
from rudel.micro.dsp.dense import lower_dense as dsp_dense
from rudel.micro.dsp.depthwise import lower_depthwise as dsp_depthwise
from rudel.micro.dsp.int16 import lower_convolution as dsp_convolution_int16
from rudel.micro.dsp.int16 import lower_dense as dsp_dense_int16
from rudel.micro.dsp.sums import lower_sum as dsp_sum

__all__ = ["dsp_convolution", "dsp_convolution_int16", "dsp_dense", "dsp_dense_int16", "dsp_depthwise", "dsp_sum"]
