"""A Flower client that trains in NumPy, by `start_client`: `python cluster_flower_client.py PART`.

One process for the whole training; Adam remembers from round to round. No encryption. Flower has deprecated this way,
but it keeps nothing waiting between rounds.
"""

# pyright: reportMissingImports=false
# Flower is a rival that need not be installed.

import warnings
from typing import Any

import cluster_node as node
from cluster_numpy_net import Net


def main() -> None:
    """Serves until the server says that it is over."""
    warnings.simplefilter("ignore")
    from flwr.client import NumPyClient, start_client

    part = node.read()
    x, y = node.share(part)
    net, batches = Net(part, node.initial_weights(part.classes, part.seed)), node.Batches(len(y), part)

    class Client(NumPyClient):
        def get_parameters(self, config: Any) -> list[Any]:
            return net.weights

        def fit(self, parameters: list[Any], config: Any) -> tuple[list[Any], int, dict[str, Any]]:
            net.set(parameters)
            for _ in range(part.period):
                chosen = batches.next()
                net.step(x[chosen], y[chosen])
            return net.weights, part.period * part.batch_size, {}

    Net(part, net.weights).step(x[:32], y[:32])
    start_client(server_address=part.server, client=Client().to_client(), insecure=True)


if __name__ == "__main__":
    main()
