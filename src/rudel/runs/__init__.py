"""The run directory: its documents, checkpoints, logs and model files, and reading them back."""
