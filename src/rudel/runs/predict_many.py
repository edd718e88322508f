"""Predictions for folders of files: batch by batch, on hosts too, into a table that an interruption does not cost.

Guarantee: what was answered stays answered. Answers are appended to `OUT.partial`, and the same command continues after
them; `OUT` appears whole, when all files have predictions. A host that is lost costs the batches that it worked on.
"""

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from rudel.data.file_names import SOUND
from rudel.data.table import is_table
from rudel.errors import DataError, option
from rudel.runs.file_model import (
    BATCH_SIZE,
    FileModel,
    Prediction,
    Unreadable,
    answers_to_contents,
    file_model,
    packed,
)
from rudel.runs.predictions_table import check_can_be_written, write_predictions, writing
from rudel.runs.run_directory import open_finished

Answer = Prediction | Unreadable


class Calls(Protocol):
    """Calls functions on hosts, several at the same time."""

    @property
    def threads(self) -> int:
        """The number of calls to make at the same time."""
        ...

    def __call__(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Calls a function on a host."""
        ...


def predict_many(
    run: str | Path,
    paths: Sequence[str | Path],
    out: str | Path | None = None,
    calls: Calls | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[Answer]:
    """Asks a finished run about files.

    Args:
        run: its directory.
        paths: files, and folders whose images, recordings, tables and `.npy` files are taken, those of folders in them
            too, by name.
        out: a `.csv` or `.parquet` file for the answers; None to keep none.
        calls: calls functions on hosts (`rudel.cluster.calls.Calls`); None to compute here.
        progress: called with (files done, files in all).

    Yields:
        What the model says of each input; of a file that it cannot take, why. In the order of the files, where they are
        predicted here.

    Raises:
        RunError: there is no such run, or it is unfinished.
        DataError: there is no file, the model has several outputs, `OUT.partial` is of another run, or `out` cannot be
            written.
        OptionError: `out` has another name.
        ClusterError: all hosts are lost.
    """
    files = files_at(paths)
    if out is not None:
        check_can_be_written(Path(out))
    directory = open_finished(Path(run))
    key = hashlib.sha256(directory.model.read_bytes()).hexdigest()[:16]
    journal = _Journal(Path(out), key) if out is not None else None
    batches = [files[first : first + BATCH_SIZE] for first in range(0, len(files), BATCH_SIZE)]
    with writing(Path(out or "")):
        known = journal.answered(batches) if journal else {}
    done = sum(len(batches[number]) for number in known)
    progress(done, len(files))
    for number in sorted(known):
        yield from known[number]
    rest = [number for number in range(len(batches)) if number not in known]
    model = file_model(run) if rest else None
    answered: Iterator[tuple[int, list[Answer]]] = iter(())
    if model:
        answered = _here(model, batches, rest) if calls is None else _on_hosts(model, key, batches, rest, calls)
    for number, answers in answered:
        if journal:
            with writing(Path(out or "")):
                journal.add(number, batches[number], answers)
            known[number] = answers
        done += len(batches[number])
        progress(done, len(files))
        yield from answers
    if journal:
        config = directory.read_config()
        target = config.get("options", {}).get("target", "") if config.get("recipe") == "table" else ""
        write_predictions(Path(out or ""), [each for number in sorted(known) for each in known[number]], target)
        journal.remove()


def files_at(paths: Sequence[str | Path]) -> list[Path]:
    """Files, and those in folders that a model may take, sorted by name in each folder.

    Raises:
        DataError: there is none.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        if not path.is_dir():
            found.append(path)
            continue
        inside = sorted(each for each in path.rglob("*") if _may_be_input(each))
        if not inside:
            raise DataError(f"The folder {path} has no image, recording, table or .npy file.")
        found += inside
    return found


def _may_be_input(path: Path) -> bool:
    from PIL import Image

    Image.init()
    hidden = path.name.startswith(".")
    kinds = (".npy", *SOUND)
    suffix = path.suffix.lower()
    return not hidden and (suffix in kinds or suffix in Image.EXTENSION or is_table(path)) and path.is_file()


def _here(model: FileModel, batches: list[list[Path]], rest: list[int]) -> Iterator[tuple[int, list[Answer]]]:
    for number in rest:
        yield number, model.answers([(str(path), path) for path in batches[number]])


def _on_hosts(
    model: FileModel, key: str, batches: list[list[Path]], rest: list[int], calls: Calls
) -> Iterator[tuple[int, list[Answer]]]:
    parcel = packed(model)

    def ask(number: int) -> tuple[int, list[Answer]]:
        contents, unread = [], []
        for path in batches[number]:
            try:
                contents.append((str(path), path.read_bytes()))
            except OSError as error:
                why = f"There is no file {path}." if not path.exists() else f"{path} cannot be read ({error.strerror})."
                unread.append(Unreadable(str(path), why))
        answers = calls(answers_to_contents, key, None, contents)
        if answers is None:  # that worker has not had the model yet
            answers = calls(answers_to_contents, key, parcel, contents)
        return number, [*answers, *unread]

    waiting = iter(rest)
    with ThreadPoolExecutor(calls.threads, "rudel-predict") as threads:
        running: set[Future[Any]] = {threads.submit(ask, n) for n in itertools.islice(waiting, calls.threads)}
        try:
            while running:
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    yield future.result()
                    running |= {threads.submit(ask, n) for n in itertools.islice(waiting, 1)}
        finally:
            threads.shutdown(wait=False, cancel_futures=True)


class _Journal:
    """Answers on their way into a table, a line of JSON for each batch.

    Args:
        out: the table.
        key: of the model.
    """

    def __init__(self, out: Path, key: str) -> None:
        self._path, self._key = out.with_name(f"{out.name}.partial"), key

    def answered(self, batches: list[list[Path]]) -> dict[int, list[Answer]]:
        """Answers that are there already, by number of the batch.

        Raises:
            DataError: they are of another model.
        """
        found: dict[int, list[Answer]] = {}
        if not self._path.exists():
            self._path.write_text(json.dumps({"model": self._key}) + "\n", encoding="utf-8")
            return found
        *lines, rest = self._path.read_text(encoding="utf-8").split("\n")
        whole = [json.loads(line) for line in lines]
        if not whole or whole[0] != {"model": self._key}:
            raise DataError(
                f"{self._path} has predictions of another model: delete it, or choose another {option('out')}."
            )
        marks = {json.dumps(_marks(batch)): number for number, batch in enumerate(batches)}
        for line in whole[1:]:
            number = marks.get(json.dumps(line["files"]))
            if number is not None:
                found[number] = [_answer(each) for each in line["answers"]]
        if rest:  # cut off in the middle of a line
            self._path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return found

    def add(self, number: int, batch: list[Path], answers: list[Answer]) -> None:
        """Keeps the answers of a batch."""
        line = {"batch": number, "files": _marks(batch), "answers": [asdict(each) for each in answers]}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def remove(self) -> None:
        """Deletes the journal."""
        self._path.unlink(missing_ok=True)


def _marks(batch: list[Path]) -> list[list[Any]]:
    """Names, sizes and times of files: of another one with the same name, there is no answer yet."""
    marks = []
    for path in batch:
        try:
            about = path.stat()
        except OSError:
            marks.append([str(path)])
        else:
            marks.append([str(path), about.st_size, about.st_mtime_ns])
    return marks


def _answer(document: dict[str, Any]) -> Answer:
    if "reason" in document:
        return Unreadable(**document)
    ranking = [(str(name), float(value)) for name, value in document["ranking"]]
    return Prediction(document["source"], document["outputs"], ranking, document.get("unknown", ()))
