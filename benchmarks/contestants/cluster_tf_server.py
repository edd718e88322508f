"""A server of TensorFlow, for ParameterServerStrategy: `python cluster_tf_server.py SETTINGS`.

The settings are JSON: cluster (addresses by job), job (`worker` or `ps`) and index. It does what the coordinator asks
for, in its working directory, and ends with its connection. It has more threads than there are tasks: with as few as a
small computer has cores, all of them wait for each other, as TensorFlow's guide says.
"""

# pyright: reportMissingImports=false
# TensorFlow is a rival that need not be installed.

import json
import os
import sys


def main() -> None:
    """Serves."""
    given = json.loads(sys.argv[1])
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    import tensorflow as tf

    cluster = tf.train.ClusterSpec(given["cluster"])
    threads = 1 + sum(len(addresses) for addresses in given["cluster"].values())
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=max(threads, os.cpu_count() or 1))
    task = {"job_name": given["job"], "task_index": given["index"]}
    server = tf.distribute.Server(cluster, **task, protocol="grpc", config=config)
    print(json.dumps({"event": "ready"}), flush=True)
    server.join()


if __name__ == "__main__":
    main()
