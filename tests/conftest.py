import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with real data, too big to be part of the project; `RUDEL_SHARED` says where its parent is."""
    shared = os.environ.get("RUDEL_SHARED") or Path(__file__).parents[2] / "shared"
    folder = Path(shared) / "data"
    if not folder.is_dir():
        message = f"There is no real data in `{folder}`: set RUDEL_SHARED to the folder that holds `data`."
        if os.environ.get("CI", "").lower() in ("true", "1"):
            pytest.fail(message)
        pytest.skip(message)
    return folder
