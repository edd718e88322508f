"""The coefficient of determination of a column of a table, as a Keras metric."""

from typing import Any

import keras

from rudel.aliases import Tensor


@keras.saving.register_keras_serializable("rudel")
class TableR2(keras.metrics.R2Score):
    """R2 of numbers far from zero: Keras' own is a difference of sums of squares, which float32 rounds away there.

    Args:
        centre: a number in the middle of the targets, which is subtracted from them and from the predictions.
        arguments: of `keras.metrics.R2Score`.
    """

    def __init__(self, centre: float = 0.0, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.centre = centre

    def update_state(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None) -> None:
        """Adds examples, (N, 1) each."""
        true: Any = keras.ops.cast(y_true, self.dtype)
        predicted: Any = keras.ops.cast(y_pred, self.dtype)
        super().update_state(true - self.centre, predicted - self.centre, sample_weight)

    def get_config(self) -> dict[str, Any]:
        """The configuration to make the metric from again."""
        return {**super().get_config(), "centre": self.centre}
