"""Forms that a model of a table cannot be exported to."""

from typing import TYPE_CHECKING

from rudel.errors import ExportError
from rudel.export.forms import Form

if TYPE_CHECKING:
    import keras


def check_table(form: Form, model: "keras.Model") -> None:
    """Refuses forms that lack what the columns of a table need; models of other inputs pass.

    Raises:
        ExportError: the form is C, whose operators do not include those of the columns; or of integers, which have no
            NaN for a number that is missing; or of int16, to which the converter brings no categories.
    """
    from rudel.features.table_layer import columns_of

    columns = columns_of(model)
    gaps = [column.name for column in columns if column.gaps and not column.categories]
    if columns and form.maker and form.name != "c-array":
        reason = f"The model takes the columns of a table, and `{form.name}` has no operators for them"
    elif gaps and form.integers:
        reason = f"Numbers may be missing in `{gaps[0]}`, and the integers of `{form.name}` have no NaN to say so"
    elif form.name == "litert-int16" and any(column.categories for column in columns):
        reason = f"The model takes categories, and the converter to `{form.name}` does not"
    else:
        return
    raise ExportError(f"{reason}: export to litert, litert-f16, litert-dynamic, savedmodel or onnx.")
