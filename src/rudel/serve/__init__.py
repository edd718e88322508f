"""A server for trained models that speaks TensorFlow Serving's REST API and the Open Inference Protocol (KServe v2).

Requests become arrays (`protocols`, `values`), arrays of several requests become batches (`batcher`), and a runtime
answers them (`runtimes`). `models` knows which models and versions there are, and `watching`
keeps that up to date. `application` holds these together; `server` puts it on a socket.
"""
