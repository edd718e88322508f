"""fsspec, and the packages that it needs for an address."""

import functools
import re
from typing import Any
from urllib.parse import urlsplit

from rudel.errors import DataError

_PACKAGES = {
    **dict.fromkeys(("http", "https"), "aiohttp"),
    **dict.fromkeys(("s3", "s3a"), "s3fs"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("abfs", "az"), "adlfs"),
    **dict.fromkeys(("sftp", "ssh"), "paramiko"),
    "hf": "huggingface_hub",
    "smb": "smbprotocol",
}


@functools.cache
def filesystem(address: str) -> tuple[Any, str]:
    """The fsspec file system for an address, and the path there.

    Raises:
        DataError: there is none for such addresses, or a package is missing for it.
    """
    import fsspec

    protocol = urlsplit(address).scheme
    try:
        return fsspec.core.url_to_fs(address)
    except ImportError as error:
        package = _PACKAGES.get(protocol)
        advice = f"pip install {package}" if package else str(error)
        raise DataError(f"{address} cannot be read, because a package is missing: {advice}") from error
    except ValueError as error:
        raise DataError(f"{address} cannot be read: there is nothing that reads {protocol}:// ({error}).") from error


def is_remote(address: str) -> bool:
    """Whether this is an address for fsspec rather than a path.

    >>> is_remote("gs://bucket/photographs"), is_remote("photographs"), is_remote("C:/photographs")
    (True, False, False)
    """
    return re.match(r"[a-z][a-z0-9+.-]+(?:://|::)", address) is not None
