"""The parts of TensorFlow Lite's schema that the compiler reads, as tables of facts.

Slots are counted as in `schema.fbs` (version 3, https://github.com/google-ai-edge/LiteRT/blob/main/tflite/schema).
"""

from collections.abc import Sequence
from dataclasses import dataclass

IDENTIFIER = b"TFL3"
VERSION = 3

DTYPES = {
    0: "float32",
    1: "float16",
    2: "int32",
    3: "uint8",
    4: "int64",
    5: "string",
    6: "bool",
    7: "int16",
    8: "complex64",
    9: "int8",
    10: "float64",
    11: "complex128",
    12: "uint64",
    13: "resource",
    14: "variant",
    15: "uint32",
    16: "uint16",
    17: "int4",
    18: "bfloat16",
    19: "int2",
}

ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")
PADDINGS = ("SAME", "VALID")


@dataclass(frozen=True)
class Field:
    """An option: its slot, the `struct` format (or `padding`, `activation`, `integers`), and the default."""

    slot: int
    form: str
    default: int | float = 0


_WINDOW = {"padding": Field(0, "padding"), "stride_w": Field(1, "i"), "stride_h": Field(2, "i")}
_ACTIVATION = {"activation": Field(0, "activation")}

OPTIONS: dict[str, dict[str, Field]] = {
    "ADD": _ACTIVATION,
    "AVERAGE_POOL_2D": {
        **_WINDOW,
        "filter_w": Field(3, "i"),
        "filter_h": Field(4, "i"),
        "activation": Field(5, "activation"),
    },
    "CONCATENATION": {"axis": Field(0, "i"), "activation": Field(1, "activation")},
    "CONV_2D": {
        **_WINDOW,
        "activation": Field(3, "activation"),
        "dilation_w": Field(4, "i", 1),
        "dilation_h": Field(5, "i", 1),
    },
    "DEPTHWISE_CONV_2D": {
        **_WINDOW,
        "depth_multiplier": Field(3, "i"),
        "activation": Field(4, "activation"),
        "dilation_w": Field(5, "i", 1),
        "dilation_h": Field(6, "i", 1),
    },
    "FULLY_CONNECTED": {
        "activation": Field(0, "activation"),
        "weights_format": Field(1, "b"),
        "keep_num_dims": Field(2, "?"),
    },
    "LEAKY_RELU": {"alpha": Field(0, "f")},
    "MAX_POOL_2D": {
        **_WINDOW,
        "filter_w": Field(3, "i"),
        "filter_h": Field(4, "i"),
        "activation": Field(5, "activation"),
    },
    "MEAN": {"keep_dims": Field(0, "?")},
    "MUL": _ACTIVATION,
    "PACK": {"values_count": Field(0, "i"), "axis": Field(1, "i")},
    "RESHAPE": {"new_shape": Field(0, "integers")},
    "RESIZE_NEAREST_NEIGHBOR": {"align_corners": Field(0, "?"), "half_pixel_centers": Field(1, "?")},
    "SOFTMAX": {"beta": Field(0, "f")},
    "SQUEEZE": {"squeeze_dims": Field(0, "integers")},
    "STRIDED_SLICE": {
        "begin_mask": Field(0, "i"),
        "end_mask": Field(1, "i"),
        "ellipsis_mask": Field(2, "i"),
        "new_axis_mask": Field(3, "i"),
        "shrink_axis_mask": Field(4, "i"),
        "offset": Field(5, "?"),
    },
    "SUB": _ACTIVATION,
    "SVDF": {"rank": Field(0, "i"), "activation": Field(1, "activation"), "asymmetric": Field(2, "?")},
    "TRANSPOSE_CONV": {**_WINDOW, "activation": Field(3, "activation")},
    "UNIDIRECTIONAL_SEQUENCE_LSTM": {
        "activation": Field(0, "activation"),
        "cell_clip": Field(1, "f"),
        "projection_clip": Field(2, "f"),
        "time_major": Field(3, "?"),
    },
}

BUILTIN_OPERATORS: Sequence[str] = """
ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR
FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM
MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS
SKIP_GRAM CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND
SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE BIDIRECTIONAL_SEQUENCE_RNN
EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2
GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG
SUM SQRT RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT
UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR LEAKY_RELU
SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS WHERE RANK ELU REVERSE_SEQUENCE
MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5
SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO
RFFT2D CONV_3D IMAG REAL COMPLEX_ABS HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL
CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE
RANDOM_UNIFORM MULTINOMIAL GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX
UNSORTED_SEGMENT_SUM ATAN2 UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR RIGHT_SHIFT
""".split()  # noqa: SIM905
