"""A server of TensorFlow, for ParameterServerStrategy: `python cluster_tf_server.py SETTINGS`.

The settings are JSON: cluster (addresses by job), job (`worker` or `ps`) and index. It does what the coordinator asks
for, in its working directory, and ends with its connection.
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
    server = tf.distribute.Server(cluster, job_name=given["job"], task_index=given["index"], protocol="grpc")
    print(json.dumps({"event": "ready"}), flush=True)
    server.join()


if __name__ == "__main__":
    main()
