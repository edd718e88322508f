"""A two-tower recommender: a vector for each user, a vector for each item, and their products as the ranking.

The user's tower reads the user's number and a multi-hot history (padded lists of items, with weights); the items' is a
table with a vector and a bias for each, by which histories are read, too. Training compares each user's item with those
of the other users in the batch (sampled softmax), whose share in the batches is corrected for: Yi et al., "Sampling-
Bias-Corrected Neural Modeling for Large Corpus Item Recommendations", 2019. Evaluation ranks the whole catalogue.

All tables can be cut by rows over several devices; nothing here asks for a whole one at once, other than the scores of
a few users for every item.
"""

from typing import Any

import keras
import numpy as np
from keras import layers

from rudel.aliases import Tensor, Tree

ops: Any = keras.ops

_SCORES_AT_ONCE = 2**24
_NEVER = -1e9


@keras.saving.register_keras_serializable("rudel")
class RecallAt(keras.metrics.Mean):
    """The share of examples whose item is among the first k of the ranking.

    Args:
        k: how many items are recommended.
        name: of the metric; `recall_at_K` by default.
        dtype: of the sums.
    """

    def __init__(self, k: int = 10, name: str | None = None, dtype: str | None = None) -> None:
        super().__init__(name=name or f"recall_at_{k}", dtype=dtype)
        self.k = k

    def update_state(self, values: Tensor, sample_weight: Tensor | None = None) -> None:
        """Takes places in the ranking into account: 1 for the first, (n,)."""
        found = ops.logical_and(ops.greater_equal(values, 1), ops.less_equal(values, self.k))
        super().update_state(ops.cast(found, self.dtype), sample_weight)

    def get_config(self) -> dict[str, Any]:
        """The configuration to make the metric from again."""
        return {**super().get_config(), "k": self.k}


@keras.saving.register_keras_serializable("rudel")
class TwoTower(keras.Model):
    """The model. Its inputs are a dict; its outputs are the vectors of the users, (n, dims).

    | input | |
    | --- | --- |
    | user | numbers of users, int32 (n,) |
    | history | numbers of items, int32 (n, length) |
    | weights | of these items, float32 (n, length); 0 for padding |

    The targets are numbers of items, int32 (n,).

    Args:
        users: how many there are.
        items: how many there are.
        dims: length of a vector.
        dropout: share of what the user's tower reads to drop in training.
        k: the metric is the recall among so many.
        arguments: of `keras.Model`.
    """

    def __init__(self, users: int, items: int, dims: int, dropout: float = 0.0, k: int = 10, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._settings = {"users": users, "items": items, "dims": dims, "dropout": dropout, "k": k}
        self.user_table = layers.Embedding(users, dims, name="users")
        self.item_table = layers.Embedding(items, dims, name="items")
        self.item_bias = layers.Embedding(items, 1, "zeros", name="item_bias")
        self.dropout = layers.Dropout(dropout, name="dropout")
        self.hidden = layers.Dense(2 * dims, activation="relu", name="hidden")
        self.vector = layers.Dense(dims, name="vector")
        self.log_share = self.add_weight(
            (items,), "zeros", trainable=False, autocast=False, dtype="float32", name="log_share"
        )
        self.recall = RecallAt(k)
        self._evaluating = False

    def build(self, input_shape: Tree = None) -> None:
        """Makes the variables."""
        if self.built:
            return
        dims = self._settings["dims"]
        for table in (self.user_table, self.item_table, self.item_bias):
            table.build()
        self.hidden.build((None, 2 * dims))
        self.vector.build((None, 2 * dims))
        self.built = True

    def set_shares(self, counts: np.ndarray) -> None:
        """Says how often each item is a target, (items,); the ranking begins with the most frequent ones."""
        self.build()
        smoothed = np.log((counts + 0.5) / (counts + 0.5).sum()).astype(np.float32)
        variables: Any = (self.log_share, self.item_bias.embeddings)
        for variable in variables:
            variable.assign(smoothed.reshape(variable.shape))

    def call(self, inputs: Tree, training: bool = False) -> Tree:
        """The vectors of users, (n, dims)."""
        weights = ops.cast(inputs["weights"], self.compute_dtype)
        weights = weights / ops.maximum(ops.sum(weights, axis=1, keepdims=True), 1)
        history = ops.einsum("nl,nld->nd", weights, self.item_table(inputs["history"]))
        both = ops.concatenate([self.user_table(inputs["user"]), history], axis=1)
        return self.vector(self.hidden(self.dropout(both, training=training)))

    def compute_loss(
        self,
        x: Tree = None,
        y: Tree = None,
        y_pred: Tree = None,
        sample_weight: Tensor | None = None,
        training: bool = True,
    ) -> Tensor:
        """The cross-entropy of a user's item among the items of the batch; evaluation looks at the ranking, too."""
        items, vectors = ops.cast(ops.reshape(y, (-1,)), "int32"), ops.cast(y_pred, "float32")
        logits = ops.matmul(vectors, ops.transpose(ops.cast(self.item_table(items), "float32")))
        logits += ops.reshape(ops.cast(self.item_bias(items), "float32") - self._share_of(items), (1, -1))
        numbers = ops.arange(ops.shape(items)[0])
        again = ops.logical_and(items[:, None] == items[None, :], numbers[:, None] != numbers[None, :])
        losses = ops.sparse_categorical_crossentropy(numbers, ops.where(again, _NEVER, logits), from_logits=True)
        self._evaluating = not training
        if not training:
            self.recall.update_state(self._places(vectors, items), sample_weight)
        if sample_weight is None:
            return ops.mean(losses)
        weight = ops.cast(ops.reshape(sample_weight, (-1,)), losses.dtype)
        return ops.sum(losses * weight) / ops.maximum(ops.sum(weight), 1e-7)

    def compute_metrics(self, x: Tree, y: Tree, y_pred: Tree, sample_weight: Tensor | None = None) -> dict[str, Any]:
        """The loss; and in evaluation the recall, which training does not spend time on."""
        metrics = super().compute_metrics(x, y, y_pred, sample_weight)
        return {name: value for name, value in metrics.items() if self._evaluating or name != self.recall.name}

    def top_items(self, vectors: Tensor, count: int = 10) -> tuple[np.ndarray, np.ndarray]:
        """The items that rank first for some users.

        Args:
            vectors: of the users, (n, dims), as `rudel.predict` returns them.
            count: how many.

        Returns:
            Their numbers, int32 (n, count), best first; and logarithms of how likely they are beside each other.
        """
        rows = self._users_at_once()
        found = [
            ops.top_k(self._scores(ops.convert_to_tensor(vectors[i : i + rows])), count)
            for i in range(0, len(vectors), rows)
        ]
        items, scores = ([ops.convert_to_numpy(part[i]) for part in found] for i in (1, 0))
        return np.concatenate(items).astype(np.int32), np.concatenate(scores)

    def get_config(self) -> dict[str, Any]:
        """The configuration to make the model from again."""
        return {**self._settings, "name": self.name, "dtype": keras.dtype_policies.serialize(self.dtype_policy)}

    def _share_of(self, items: Tensor) -> Tensor:
        return ops.take(self.log_share, items, axis=0)[:, None]

    def _scores(self, vectors: Tensor) -> Tensor:
        """Of these users for all items, (n, items)."""
        table, bias = (ops.cast(t.embeddings, "float32") for t in (self.item_table, self.item_bias))
        return ops.matmul(ops.cast(vectors, "float32"), ops.transpose(table)) + ops.transpose(bias)

    def _places(self, vectors: Tensor, items: Tensor) -> Tensor:
        """The places of items in the rankings of users, 1 for the first, (n,); those who share one have the last."""
        count, rows = ops.shape(items)[0], self._users_at_once()
        if count <= rows:
            return self._places_at_once((vectors, items))
        pad = -count % rows
        vectors = ops.reshape(ops.pad(vectors, ((0, pad), (0, 0))), (-1, rows, vectors.shape[1]))
        items = ops.reshape(ops.pad(items, ((0, pad),)), (-1, rows))
        return ops.reshape(ops.map(self._places_at_once, (vectors, items)), (-1,))[:count]

    def _places_at_once(self, queries: tuple[Any, Any]) -> Tensor:
        vectors, items = queries
        scores = self._scores(vectors)
        own = ops.take_along_axis(scores, items[:, None], axis=1)
        return ops.sum(ops.cast(scores >= own, "int32"), axis=1)

    def _users_at_once(self) -> int:
        return max(1, _SCORES_AT_ONCE // self._settings["items"])
