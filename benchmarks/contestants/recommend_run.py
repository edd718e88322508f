"""The recipe `recommend` on one device, or with its tables cut over several, and how much of them each device holds."""

import json
import sys
from typing import Any

import rudel
from rudel.backend import keras_on_jax


def main() -> None:
    """Trains, prints."""
    given = json.loads(sys.argv[1])
    devices = given["devices"]
    strategy: Any = "single" if devices == 1 else rudel.Mesh(axes={"model": devices}, devices=devices)
    keras = keras_on_jax(light=True)
    import jax

    class Tables(keras.callbacks.Callback):
        """Bytes of the tables and of the optimizer's arrays of their shapes, on each device, while it trains."""

        held: dict[str, list[int]]

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.held = {}
            shapes = {tuple(v.shape) for v in self.model.trainable_variables if "embeddings" in v.path}
            arrays = [a for a in jax.live_arrays() if a.shape in shapes and len(a.sharding.device_set) == devices]
            for shard in (shard for array in arrays for shard in array.addressable_shards):
                self.held.setdefault(str(shard.device), []).append(shard.data.nbytes)

    watch = Tables()
    run = rudel.train_recipe(
        "recommend", options=given["options"], steps=given["steps"], seed=given["seed"], run=given["run"],
        strategy=strategy, callbacks=[watch], verbose=False,
    )  # fmt: skip
    sizes = {max(held) for held in watch.held.values()}
    print(
        json.dumps(
            {
                "largest_table_bytes": max(sizes),
                "devices_that_hold_some": len(watch.held),
                "loss": run.summary["metrics"]["loss"],
                "recall": run.summary["metrics"]["val_recall_at_10"],
                "train_seconds": run.summary["train_seconds"],
                "steps": run.summary["steps"],
                "notes": list(run.notes),
            }
        )
    )


if __name__ == "__main__":
    main()
