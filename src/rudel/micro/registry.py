"""All operators: one entry each, which feeds whatever has to know them.

The reader takes options from here, the lowering functions, and the message about what is supported its names. To add an
operator, write the function that lowers it in a module of `rudel.micro.operators`, and its entry here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rudel.micro.dsp import (
    dsp_convolution,
    dsp_convolution_int16,
    dsp_dense,
    dsp_dense_int16,
    dsp_depthwise,
    dsp_sum,
)
from rudel.micro.emit import Lowering
from rudel.micro.helium import helium_convolution, helium_dense, helium_depthwise, helium_sum
from rudel.micro.operators import floats, int16_elements, int16_softmax
from rudel.micro.operators.binary import lower_binary, lower_prelu
from rudel.micro.operators.cast import lower_cast
from rudel.micro.operators.convolution import lower_convolution, lower_dense
from rudel.micro.operators.depthwise import lower_depthwise
from rudel.micro.operators.floats import lower_dequantise
from rudel.micro.operators.lookup import lower_lookup
from rudel.micro.operators.lstm import lower_lstm, lower_lstm_float
from rudel.micro.operators.mean import lower_mean
from rudel.micro.operators.movement import (
    lower_concatenation,
    lower_pack,
    lower_pad,
    lower_resize_nearest,
    lower_strided_slice,
    lower_transpose,
)
from rudel.micro.operators.pool import lower_pool
from rudel.micro.operators.reshape import lower_reshape
from rudel.micro.operators.softmax import lower_softmax
from rudel.micro.operators.svdf import lower_svdf
from rudel.micro.operators.transposed import lower_transposed
from rudel.micro.operators.unary import lower_unary
from rudel.micro.schema import Field


@dataclass(frozen=True)
class Entry:
    """The entry of a kind of operator.

    Args:
        kind: its name in TensorFlow Lite's schema.
        lower: makes the step of one in int8, in plain C; None where a pass removes all of them.
        options: the slots of its options table.
        floats: the same for one whose input is float32; None where `lower` takes these, too, or nothing does.
        int16: the same for one whose input or output is int16; None where interpreters have no kernel for that.
        dsp_int16: the same for cores with the DSP instructions of Armv7E-M; it returns None where `int16` has to do.
        dsp: the same for cores with the DSP instructions of Armv7E-M; it returns None where `lower` has to do.
        helium: the same for cores with Helium, tried first.
        main: place of the input whose type counts.
        is_made_up: whether passes make it, and files do not have it.
    """

    kind: str
    lower: Lowering | None
    options: Mapping[str, Field] = field(default_factory=dict)
    floats: Lowering | None = None
    int16: Lowering | None = None
    dsp_int16: Lowering | None = None
    dsp: Lowering | None = None
    helium: Lowering | None = None
    main: int = 0
    is_made_up: bool = False


_WINDOW = {"padding": Field(0, "padding"), "stride_w": Field(1, "i"), "stride_h": Field(2, "i")}
_POOL = _WINDOW | {"filter_w": Field(3, "i"), "filter_h": Field(4, "i"), "activation": Field(5, "activation")}
_ACTIVATION = {"activation": Field(0, "activation")}
_SUM = {**_ACTIVATION, "by_shifts": Field(1, "?", 1)}

_ENTRIES = (
    *(
        Entry(
            kind,
            lower_binary,
            options=_SUM,
            floats=floats.lower_binary,
            int16=int16_elements.lower_binary,
            dsp=dsp_sum,
            helium=helium_sum,
        )
        for kind in ("ADD", "SUB")
    ),
    Entry("AVERAGE_POOL_2D", lower_pool, options=_POOL, floats=floats.lower_pool, int16=lower_pool),
    Entry("CAST", lower_cast, int16=lower_cast),
    Entry(
        "CONCATENATION",
        lower_concatenation,
        options={"axis": Field(0, "i"), "activation": Field(1, "activation")},
        int16=lower_concatenation,
    ),
    Entry(
        "CONV_2D",
        lower_convolution,
        options={
            **_WINDOW,
            "activation": Field(3, "activation"),
            "dilation_w": Field(4, "i", 1),
            "dilation_h": Field(5, "i", 1),
            "bias_type": Field(6, "b"),
        },
        floats=floats.lower_convolution,
        int16=lower_convolution,
        dsp_int16=dsp_convolution_int16,
        dsp=dsp_convolution,
        helium=helium_convolution,
    ),
    Entry(
        "DEPTHWISE_CONV_2D",
        lower_depthwise,
        options={
            **_WINDOW,
            "depth_multiplier": Field(3, "i"),
            "activation": Field(4, "activation"),
            "dilation_w": Field(5, "i", 1),
            "dilation_h": Field(6, "i", 1),
        },
        floats=floats.lower_convolution,
        int16=lower_depthwise,
        dsp=dsp_depthwise,
        helium=helium_depthwise,
    ),
    Entry("DEQUANTIZE", lower_dequantise, int16=lower_dequantise),
    Entry("ELU", floats.lower_unary),
    Entry("EXPAND_DIMS", lower_reshape, int16=lower_reshape),
    Entry(
        "FULLY_CONNECTED",
        lower_dense,
        options={
            "activation": Field(0, "activation"),
            "weights_format": Field(1, "b"),
            "keep_num_dims": Field(2, "?"),
            "bias_type": Field(4, "b"),
        },
        floats=floats.lower_convolution,
        int16=lower_dense,
        dsp_int16=dsp_dense_int16,
        dsp=dsp_dense,
        helium=helium_dense,
    ),
    Entry("GELU", lower_unary, options={"approximate": Field(0, "?")}),
    Entry("HARD_SWISH", lower_unary, floats=floats.lower_unary),
    Entry(
        "LEAKY_RELU",
        lower_unary,
        options={"alpha": Field(0, "f")},
        floats=floats.lower_unary,
        int16=int16_elements.lower_rescale,
    ),
    Entry("LOGISTIC", lower_unary, floats=floats.lower_unary, int16=int16_elements.lower_curve),
    Entry("LOOKUP", lower_lookup, is_made_up=True),
    Entry("MAX_POOL_2D", lower_pool, options=_POOL, floats=floats.lower_pool, int16=lower_pool),
    Entry("MEAN", lower_mean, options={"keep_dims": Field(0, "?")}, floats=floats.lower_mean, int16=lower_mean),
    Entry("MUL", lower_binary, options=_ACTIVATION, floats=floats.lower_binary, int16=int16_elements.lower_binary),
    Entry("NEG", floats.lower_unary),
    Entry("PACK", lower_pack, options={"values_count": Field(0, "i"), "axis": Field(1, "i")}, int16=lower_pack),
    Entry("PAD", lower_pad, int16=lower_pad),
    Entry("PRELU", lower_prelu),
    Entry("QUANTIZE", lower_unary, floats=floats.lower_quantise, int16=int16_elements.lower_rescale),
    Entry("RELU", lower_unary, floats=floats.lower_unary, int16=int16_elements.lower_rescale),
    Entry("RELU6", lower_unary, floats=floats.lower_unary, int16=int16_elements.lower_rescale),
    Entry("RELU_N1_TO_1", lower_unary, floats=floats.lower_unary),
    Entry("RESHAPE", lower_reshape, options={"new_shape": Field(0, "integers")}, int16=lower_reshape),
    Entry(
        "RESIZE_NEAREST_NEIGHBOR",
        lower_resize_nearest,
        options={"align_corners": Field(0, "?"), "half_pixel_centers": Field(1, "?")},
        int16=lower_resize_nearest,
    ),
    Entry("RSQRT", lower_unary),
    Entry(
        "SOFTMAX",
        lower_softmax,
        options={"beta": Field(0, "f")},
        floats=floats.lower_softmax,
        int16=int16_softmax.lower_softmax,
    ),
    Entry("SPLIT", None, options={"num_splits": Field(0, "i")}),
    Entry("SPLIT_V", None, options={"num_splits": Field(0, "i")}),
    Entry("SQUARED_DIFFERENCE", lower_binary),
    Entry("SQUEEZE", lower_reshape, options={"squeeze_dims": Field(0, "integers")}, int16=lower_reshape),
    Entry(
        "STRIDED_SLICE",
        lower_strided_slice,
        options={
            "begin_mask": Field(0, "i"),
            "end_mask": Field(1, "i"),
            "ellipsis_mask": Field(2, "i"),
            "new_axis_mask": Field(3, "i"),
            "shrink_axis_mask": Field(4, "i"),
            "offset": Field(5, "?"),
        },
        int16=lower_strided_slice,
    ),
    Entry(
        "SVDF",
        lower_svdf,
        options={"rank": Field(0, "i"), "activation": Field(1, "activation"), "asymmetric": Field(2, "?")},
    ),
    Entry("TANH", lower_unary, floats=floats.lower_unary, int16=int16_elements.lower_curve),
    Entry("TRANSPOSE", lower_transpose, int16=lower_transpose),
    Entry(
        "TRANSPOSE_CONV",
        lower_transposed,
        options={**_WINDOW, "activation": Field(3, "activation"), "bias_type": Field(4, "b")},
        floats=floats.lower_transposed,
        int16=lower_transposed,
        main=2,
    ),
    Entry("UNPACK", None, options={"num": Field(0, "i"), "axis": Field(1, "i")}),
    Entry(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        lower_lstm,
        options={
            "activation": Field(0, "activation"),
            "cell_clip": Field(1, "f"),
            "projection_clip": Field(2, "f"),
            "time_major": Field(3, "?"),
        },
        floats=lower_lstm_float,
        int16=lower_lstm,
    ),
)

OPERATORS: Mapping[str, Entry] = {entry.kind: entry for entry in _ENTRIES}
"""By kind."""
