"""SavedModel: TensorFlow's own form, for any number of examples a call."""

from pathlib import Path

from rudel.export.converter.forward import Forward


def write(forward: Forward, made: Path) -> None:
    """Writes the folder of a SavedModel, whose bytes depend on the model alone."""
    forward.save(made)
    (made / "fingerprint.pb").unlink(missing_ok=True)  # it holds a random identifier; readers do without it
