"""A Flower app, for SuperLink and SuperNodes: FedAvg on the server, training in NumPy on the clients.

Flower starts a new process on a node for every message, so a client has to be light: it imports NumPy, reads its share
and trains. Adam starts anew each round. Before the clock runs, a round without steps lets Flower bring the app to all
nodes. The desktop and this app talk by files in the folder that the run's configuration names.
"""

# pyright: reportMissingImports=false
# Flower is a rival that need not be installed.

import importlib.metadata
import json
import os
import time
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

client = ClientApp()
server = ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    """A round of local steps on a node."""
    os.chdir(str(context.node_config["folder"]))
    import cluster_node as node
    from cluster_numpy_net import Net

    config: Any = message.content["config"]
    given = json.loads(str(config["part"])) | {"rank": int(str(context.node_config["rank"]))}
    part = node.Part(**given | {"seed": given["seed"] + 1000 * int(config["server-round"])})
    x, y = node.share(part)
    net = Net(part, message.content["arrays"].to_numpy_ndarrays())  # type: ignore[union-attr]
    batches = node.Batches(len(y), part)
    for _ in range(part.steps):
        chosen = batches.next()
        net.step(x[chosen], y[chosen])
    answer = {"arrays": ArrayRecord(net.weights), "metrics": MetricRecord({"num-examples": len(y)})}
    return Message(content=RecordDict(answer), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """All rounds, on the desktop."""
    import cluster_node as node

    folder = Path(str(context.run_config["folder"]))
    given = json.loads((folder / "part.json").read_text())
    part = node.Part(**given)
    while len(list(grid.get_node_ids())) < part.workers:
        time.sleep(0.1)
    every = {"min_train_nodes": part.workers, "min_available_nodes": part.workers}
    weights, kept = ArrayRecord(node.initial_weights(part.classes, part.seed)), node.Snapshots()

    def run(rounds: int, steps: int, look: Any = None) -> None:
        config = ConfigRecord({"part": json.dumps(given | {"steps": steps})})
        FedAvg(fraction_evaluate=0.0, **every).start(grid, weights, rounds, train_config=config, evaluate_fn=look)

    run(1, 0)
    (folder / "ready").touch()
    while not (folder / "go").exists():
        time.sleep(0.02)
    clock = node.Clock()

    def look(number: int, weights: ArrayRecord) -> None:
        if number:
            kept.keep(clock(), weights.to_numpy_ndarrays())

    run(part.steps // part.period, part.period, look)
    kept.save(str(folder / "snapshots.npz"))
    report = {"seconds": kept.seconds[-1], "versions": {"flwr": importlib.metadata.version("flwr")}}
    (folder / "done.tmp").write_text(json.dumps(report))
    (folder / "done.tmp").rename(folder / "done")
