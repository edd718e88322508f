"""The process that converts: Keras on TensorFlow, started by `rudel.export.process`.

Nothing here may be imported by the process that trains.
"""
