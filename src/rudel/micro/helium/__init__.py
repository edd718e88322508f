"""Kernels for cores with Helium, the vectors of Armv8.1-M: Cortex-M55, M85."""

from rudel.micro.helium.convolution import lower_convolution as helium_convolution
from rudel.micro.helium.dense import lower_dense as helium_dense
from rudel.micro.helium.depthwise import lower_depthwise as helium_depthwise
from rudel.micro.helium.sums import lower_sum as helium_sum

__all__ = ["helium_convolution", "helium_dense", "helium_depthwise", "helium_sum"]
