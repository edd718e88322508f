"""Requirements of Dask's dashboard."""

import importlib.util

from rudel.errors import OptionError


def check_dashboard() -> None:
    """Looks for the package that draws it, without importing it.

    Raises:
        OptionError: it is not installed.
    """
    if importlib.util.find_spec("bokeh") is None:
        raise OptionError("Dask's dashboard needs Bokeh, which is not installed: pip install 'rudel[dashboard]'.")
