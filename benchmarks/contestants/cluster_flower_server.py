"""The server for `cluster_flower_client.py`, by `start_server`: `python cluster_flower_server.py PART`.

FedAvg without evaluation on the clients. When all clients are there, it says so and waits; the clock runs from the
first round to the last average. Runs on the desktop and writes `snapshots.npz` where it is started.
"""

# pyright: reportMissingImports=false
# Flower is a rival that need not be installed.

import importlib.metadata
import time
import warnings
from typing import Any

import cluster_node as node


def main() -> None:
    """Trains, tells, keeps what was learned."""
    warnings.simplefilter("ignore")
    from flwr.server import ServerConfig, SimpleClientManager, start_server
    from flwr.server.strategy import FedAvg

    part = node.read()
    rounds = part.steps // part.period
    manager, kept = SimpleClientManager(), node.Snapshots()
    clock = node.Clock()

    def looked_at(number: int, weights: list[Any], config: Any) -> None:
        nonlocal clock
        if number:
            kept.keep(clock(), weights)
        else:
            while manager.num_available() < part.workers:
                time.sleep(0.05)
            node.when_told()
            clock = node.Clock()

    strategy = FedAvg(
        fraction_evaluate=0.0,
        min_fit_clients=part.workers,
        min_available_clients=part.workers,
        min_evaluate_clients=0,
        evaluate_fn=looked_at,
    )
    config = ServerConfig(num_rounds=rounds)
    start_server(server_address=part.server, config=config, strategy=strategy, client_manager=manager)
    node.tell("done", seconds=kept.seconds[-1], versions={"flwr": importlib.metadata.version("flwr")})
    kept.save()
    node.tell("saved")


if __name__ == "__main__":
    main()
