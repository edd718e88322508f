"""Private parts of JAX, Dask, AsyncSSH, Pillow and uvicorn: releases that lack one are refused."""

import importlib
import inspect
import threading
from pathlib import Path
from typing import Any

import asyncssh
import pytest
import uvicorn
from distributed import Scheduler, Worker
from distributed.comm import registry, tcp
from distributed.core import rpc
from jax._src.lru_cache import LRUCache
from PIL import Image
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from rudel.errors import UnsupportedError
from rudel.internals import jax as internals_of_jax
from rudel.internals.pillow import decode_jpeg


@pytest.mark.parametrize(
    ("module", "library", "owner", "name"),
    [
        ("rudel.internals.dask", "distributed", rpc, "close_rpc"),
        ("rudel.internals.dask", "distributed", Worker, "start_http_server"),
        ("rudel.internals.dask", "distributed", Scheduler, "heartbeat_worker"),
        ("rudel.internals.dask", "distributed", registry, "backends"),
        ("rudel.internals.dask", "distributed", tcp, "read_bytes_rw"),
        ("rudel.internals.dask", "distributed", tcp, "convert_stream_closed_error"),
        ("rudel.internals.dask", "distributed", tcp.TLS, "_read_extra"),
        ("rudel.internals.dask", "distributed", tcp.TLSListener, "_prepare_stream"),
        ("rudel.internals.dask", "distributed", tcp.TLSListener, "_handle_stream"),
        ("rudel.internals.dask", "distributed", tcp.TLSBackend, "_connector_class"),
        ("rudel.internals.asyncssh", "asyncssh", asyncssh.SSHKnownHosts, "_match"),
        ("rudel.serve.web", "uvicorn", uvicorn.Server, "capture_signals"),
        ("rudel.serve.web", "uvicorn", HttpToolsProtocol, "send_400_response"),
    ],
)
def test_a_release_that_lacks_a_private_part_is_refused(
    module: str, library: str, owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = importlib.import_module(module)
    defined_by = (
        next(kind for kind in inspect.getmro(owner) if name in vars(kind)) if isinstance(owner, type) else owner
    )
    with monkeypatch.context() as lacking:
        lacking.delattr(defined_by, name)
        with pytest.raises(UnsupportedError, match=rf"{library} \S+ is not supported: Rudel relies on"):
            importlib.reload(loaded)
    importlib.reload(loaded)


def test_a_pillow_whose_decoder_takes_other_arguments_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = importlib.import_module("rudel.internals.pillow")

    def frombytes(mode: str, size: Any, data: Any, decoder: str) -> Any:
        raise TypeError("other arguments")

    with monkeypatch.context() as other:
        other.setattr(Image, "frombytes", frombytes)
        with pytest.raises(UnsupportedError, match=r"pillow \S+ is not supported"):
            importlib.reload(loaded)
    importlib.reload(loaded)


def test_a_jpeg_that_is_cut_short_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"truncated|broken|not enough"):
        decode_jpeg(b"\xff\xd8\xff", "L", 16, 16, 1)


def test_jax_that_cannot_say_whether_it_has_begun_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from jax._src import xla_bridge

    monkeypatch.delattr(xla_bridge, "backends_are_initialized")
    with pytest.raises(UnsupportedError, match=r"xla_bridge\.backends_are_initialized"):
        internals_of_jax.backend_has_started()


def test_a_compiled_program_is_never_read_in_part(tmp_path: Path) -> None:
    internals_of_jax.keep_programs_whole()
    cache = LRUCache(str(tmp_path), max_size=-1)
    program = bytes(100_000_000)
    writing = threading.Thread(target=cache.put, args=("key", program))
    writing.start()
    while (read := cache.get("key")) is None:
        pass
    writing.join()
    assert len(read) == len(program)


def test_a_compiled_program_that_was_cut_short_is_replaced(tmp_path: Path) -> None:
    internals_of_jax.keep_programs_whole()
    cache = LRUCache(str(tmp_path), max_size=-1)
    cache.put("key", b"whole")
    (file,) = tmp_path.iterdir()
    file.write_bytes(b"wh")
    cache.put("key", b"whole")
    assert cache.get("key") == b"whole"
    assert list(tmp_path.iterdir()) == [file]
