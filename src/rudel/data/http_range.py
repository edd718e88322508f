"""One HTTP request for a part of a file: the answer, or what its failure means."""

import contextlib
import http.client
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from rudel.errors import DownloadError, option

_TRANSIENT = {408, 425, 429, 500, 502, 503, 504}


def advice() -> str:
    """What helps against any failure, to end a sentence with."""
    return f"or give a local copy of the drawings with {option('data', 'DIR')}"


@dataclass(frozen=True)
class Version:
    """Which state of a remote file bytes are of, as the server tells it.

    Args:
        etag: the `ETag` header.
        last_modified: the `Last-Modified` header.
        size: bytes of the whole file.
    """

    etag: str | None = None
    last_modified: str | None = None
    size: int | None = None

    @property
    def condition(self) -> str | None:
        """The value for `If-Range`; None where the server gave nothing that would tell a change for certain."""
        strong = self.etag if self.etag and not self.etag.startswith("W/") else None
        value = strong or self.last_modified
        return value if value and value.isascii() and value.isprintable() else None

    def same_file(self, other: "Version") -> bool:
        """Whether bytes of both may be joined."""
        if self.condition is None or (None not in (self.size, other.size) and self.size != other.size):
            return False
        if self.etag and other.etag:
            return self.etag == other.etag
        return self.last_modified is not None and self.last_modified == other.last_modified


class TransientError(Exception):
    """A transient error, which another attempt may not meet; the message goes before what to do about it."""

    def __init__(self, message: str, requested_pause: float = 0.0) -> None:
        super().__init__(message)
        self.requested_pause = requested_pause


class ShorterError(TransientError):
    """The file became shorter than what is there of it."""


@dataclass(frozen=True)
class Answer:
    """Which part of which version of a file an answer brings.

    Args:
        start: place of its first byte in the file.
        end: place after its last byte; None where the server does not say.
        version: of the file.
    """

    start: int
    end: int | None
    version: Version


def request_part(url: str, begin: int, end: int, condition: str | None, timeout: float) -> http.client.HTTPResponse:
    """Asks for the bytes from `begin` up to, not including, `end`.

    Args:
        url: an http or https address, quoted.
        begin: 0 for the beginning of whatever the file is now.
        end: may lie beyond the end of the file.
        condition: `Version.condition` of the file that the part has to be of; otherwise the answer is the whole file.
        timeout: seconds without a byte after which the connection counts as stalled.

    Raises:
        TransientError: another attempt may succeed.
        ShorterError: the file ends before `begin`.
        DownloadError: something that it will not.
    """
    headers = {"User-Agent": "rudel", "Accept-Encoding": "identity", "Range": f"bytes={begin}-{end - 1}"}
    if begin and condition:
        headers["If-Range"] = condition
    request = urllib.request.Request(url, headers=headers)
    try:
        with translating_errors(url, timeout):
            return urllib.request.build_opener().open(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and begin:
            raise ShorterError(f"`{url}` became shorter while it was being fetched") from error
        raise _refusal(url, error) from error
    except urllib.error.URLError as error:
        raise _no_connection(url, error.reason) from error
    except (http.client.InvalidURL, UnicodeError) as error:
        raise DownloadError(f"`{url}` is not an address that can be fetched ({error}).") from error


def _refusal(url: str, error: urllib.error.HTTPError) -> Exception:
    """The error for a status that is not a success."""
    status = f"HTTP {error.code} {error.reason}"
    if error.code in _TRANSIENT:
        pause = retry_after(error.headers.get("Retry-After", ""))
        return TransientError(f"`{host(url)}` could not send `{url}` ({status})", pause)
    return DownloadError(
        f"`{url}` could not be fetched ({status}): check the address and the name of the class, {advice()}."
    )


def _no_connection(url: str, reason: str | BaseException) -> Exception:
    """The error for a connection that could not be made."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        return DownloadError(
            f"The certificate of `{host(url)}` was not accepted ({reason.verify_message}): "
            f"check the clock and the certificates of this computer, {advice()}."
        )
    message = (reason.strerror if isinstance(reason, OSError) else None) or str(reason)
    return TransientError(f"`{host(url)}` could not be reached ({message})")


def read_answer(response: http.client.HTTPResponse, url: str, begin: int) -> Answer:
    """Reads the headers of a response to a request for the bytes from `begin` on.

    Raises:
        DownloadError: they are not the bytes that were requested.
    """
    headers = response.headers
    etag, last_modified = headers.get("ETag"), headers.get("Last-Modified")
    if headers.get("Content-Encoding", "identity") != "identity":
        raise DownloadError(f"`{url}` comes compressed, though it was asked for as it is: use another source.")
    if response.status == 206:
        found = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+|\*)", headers.get("Content-Range", "").strip())
        if not found or int(found[1]) != begin:
            raise DownloadError(f"`{url}` was answered with another part than the one asked for: use another source.")
        size = None if found[3] == "*" else int(found[3])
        return Answer(begin, int(found[2]) + 1, Version(etag, last_modified, size))
    length = headers.get("Content-Length", "")
    size = int(length) if length.isdecimal() else None
    return Answer(0, size, Version(etag, last_modified, size))


def retry_after(value: str) -> float:
    """Seconds that a `Retry-After` header asks for, given in seconds or as a date; 0 for none."""
    if value.strip().isdecimal():
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
        return max(0.0, (moment - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return 0.0


@contextlib.contextmanager
def translating_errors(url: str, timeout: float) -> Iterator[None]:
    """Raises `TransientError` for a connection that breaks or stalls inside the block."""
    try:
        yield
    except (urllib.error.URLError, http.client.InvalidURL):
        raise
    except TimeoutError as error:
        raise TransientError(f"`{host(url)}` stopped answering for {timeout:g} s while asked for `{url}`") from error
    except (OSError, http.client.HTTPException) as error:
        raise TransientError(f"`{host(url)}` closed the connection while sending `{url}`") from error


def host(url: str) -> str:
    """The server of an address, with its port.

    >>> host("http://localhost:8000/cat.npy")
    'localhost:8000'
    """
    return urlsplit(url).netloc.rpartition("@")[2]
