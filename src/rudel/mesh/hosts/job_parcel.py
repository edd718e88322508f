"""A job as it travels to hosts: the model's description, the user's code, and which pieces the data is in.

Arrays travel as the pieces of `diloco` do: compressed, with a checksum, once to every host, which keeps them in its
cache. A stream is read by every host itself, so its files have to be there, at the same place.
"""

import json
import pickle
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from rudel.aliases import Tree
from rudel.backend import keras_on_jax, without_tensorflow
from rudel.data.dataset import Examples, aligned_empty
from rudel.data.stream import Stream
from rudel.errors import ClusterError, DataError
from rudel.replicas.members import Piece
from rudel.runs.model_file import check_can_be_saved
from rudel.session.job import Job
from rudel.shipping import pieces
from rudel.shipping.host_examples import cut, rows_of
from rudel.shipping.model_parcel import understandable
from rudel.shipping.user_code import dumped, own_objects

if TYPE_CHECKING:
    import keras


@dataclass(frozen=True)
class Arrays:
    """Examples in pieces.

    Args:
        tree: (x, y, sample_weight) with the number of an array in its place.
        forms: shape and dtype of every array.
        names: of the pieces, with their first and last (exclusive) rows.
    """

    tree: Tree
    forms: tuple[tuple[tuple[int, ...], str], ...]
    names: tuple[tuple[str, tuple[int, int]], ...]


@dataclass(frozen=True)
class Read:
    """A stream, to be read on the host.

    Args:
        stream: the stream.
        fingerprint: what it has to be there.
    """

    stream: Stream
    fingerprint: str


@dataclass(frozen=True)
class Parcel:
    """A job without what belongs to the driver.

    Args:
        model: the description of the model.
        settings: Keras' own, by name.
        job: the job, without model, examples and callbacks.
        train, validation: the examples, or None.
        options: of the strategy.
    """

    model: "keras.Model"
    settings: dict[str, Any]
    job: Job
    train: Arrays | Read
    validation: Arrays | Read | None
    options: Any


def pack(job: Job, options: Any) -> tuple[bytes, list[Piece]]:
    """Makes a parcel of a job.

    Returns:
        The parcel, and the pieces of the data that every host has to have.

    Raises:
        ModelError: the model, or something that it is made of, cannot be sent.
        DataError: the examples are more than hosts keep.
    """
    keras = keras_on_jax()
    check_can_be_saved(job.model)
    with without_tensorflow(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras warns of lambdas, which are the user's own here
        description = keras.saving.serialize_keras_object(job.model)
    train, ours = _packed(job.train)
    validation, others = (None, []) if job.validation is None else _packed(job.validation)
    check_size(sum(len(piece.content()) for piece in {*ours, *others}))
    bare = replace(job, model=None, train=None, validation=None, callbacks=())  # type: ignore[arg-type]  # see Parcel
    settings = {"floatx": keras.config.floatx(), "image_data_format": keras.config.image_data_format()}
    parcel = Parcel(description, settings, bare, train, validation, options)
    objects = own_objects(job.model, json.dumps(description, default=str))
    return dumped((dumped(objects), parcel)), [*ours, *others]


def check_size(count: int) -> None:
    """Refuses data of which a host would drop the beginning before it has the end.

    Raises:
        DataError: it is more than a host keeps.

    >>> check_size(2 * pieces.LARGEST_CACHE)
    Traceback (most recent call last):
    rudel.errors.DataError: The examples are 8.6 GB when they are sent, and hosts keep 4.3 GB: ...
    """
    if count > pieces.LARGEST_CACHE:
        raise DataError(
            f"The examples are {count / 1e9:.1f} GB when they are sent, and hosts keep "
            f"{pieces.LARGEST_CACHE / 1e9:.1f} GB: give them as a stream, such as rudel.Records, of files that are at "
            "the same place on all hosts."
        )


def unpack(content: bytes) -> tuple[Job, Any]:
    """The job, with its model and its examples, and the options of the strategy.

    Raises:
        ModelError: the model cannot be made here.
        DataError: a stream cannot be read here, or is another one.
        ClusterError: a piece of the data is not here.
    """
    keras = keras_on_jax(light=True)
    with understandable():
        code, parcel = pickle.loads(content)
        objects = pickle.loads(code)
    for name, value in parcel.settings.items():
        getattr(keras.config, f"set_{name}")(value)
    with without_tensorflow(), understandable():
        model = keras.saving.deserialize_keras_object(parcel.model, custom_objects=objects, safe_mode=False)
    train = _unpacked(parcel.train)
    validation = None if parcel.validation is None else _unpacked(parcel.validation)
    return replace(parcel.job, model=model, train=train, validation=validation), parcel.options


def _packed(examples: Examples | Stream) -> tuple[Arrays | Read, list[Piece]]:
    if isinstance(examples, Stream):
        return Read(examples, examples.fingerprint()), []
    parts = (examples.x, examples.y, examples.sample_weight)
    leaves, form = jax.tree.flatten(parts)
    arrays = [np.asarray(leaf) for leaf in leaves]
    forms = tuple((array.shape, str(array.dtype)) for array in arrays)
    row_bytes = sum(array.nbytes // max(1, len(array)) for array in arrays)
    everything = np.arange(len(examples))
    found = []
    for span in cut(len(examples), row_bytes, 1):
        name, content = pieces.encode(rows_of(arrays, span, everything))
        found.append(Piece(name, span, lambda content=content: content))
    names = tuple((piece.name, piece.span) for piece in found)
    return Arrays(jax.tree.unflatten(form, range(len(leaves))), forms, names), found


def _unpacked(packed: Arrays | Read) -> Examples | Stream:
    if isinstance(packed, Read):
        try:
            found = packed.stream.fingerprint()
        except Exception as error:
            raise DataError(
                f"This host cannot read the data ({error}): with the strategy mesh, files have to be at the same place "
                "on all hosts, as on a shared disk or at an address."
            ) from error
        if found != packed.fingerprint:
            raise DataError("This host sees other data than the driver: the files there differ.")
        return packed.stream
    arrays = [aligned_empty(shape, np.dtype(dtype)) for shape, dtype in packed.forms]
    for name, (first, last) in packed.names:
        try:
            rows = pieces.read(name)
        except (OSError, ValueError) as error:
            raise ClusterError(f"A piece of the data is not in this host's cache ({error}).") from error
        for array, part in zip(arrays, rows, strict=True):
            array[first:last] = part
    x, y, weight = jax.tree.map(lambda number: arrays[number], packed.tree)
    return Examples(x, y, weight)
