"""Photographs become records: whole, once, the same however often it is interrupted."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from processes import started

from rudel.data.images.convert import convert
from rudel.data.images.dataset_file import Converted
from rudel.data.images.examined_image import ExaminedImage, Refused, examine_all
from rudel.data.images.inspect import inspect
from rudel.data.images.record import example_of
from rudel.data.images.stores import open_store
from rudel.data.records.byte_sources import open_source
from rudel.data.records.example import encode_example, parse_example
from rudel.data.records.index import walk
from rudel.errors import DataError, OptionError
from rudel.export.process import ENVIRONMENT


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes with 40 pictures each, and files that are not what they seem."""
    root = tmp_path_factory.mktemp("drawn")
    random = np.random.default_rng(0)
    for name in ("ant", "bee", "cow"):
        (root / name).mkdir()
        for number in range(40):
            coarse = Image.fromarray(random.integers(0, 255, (4, 5, 3), dtype=np.uint8))
            coarse.resize((50, 40)).save(root / name / f"{number:02}.{'png' if number % 3 else 'jpg'}")
    (root / "bee" / "cut.jpg").write_bytes((root / "bee" / "00.jpg").read_bytes()[:-200])
    (root / "bee" / "empty.png").write_bytes(b"")
    (root / "cow" / "notes.txt").write_text("moo")
    (root / "cow" / "gone.jpg").symlink_to("nowhere")
    return root


@pytest.fixture
def pictures(drawn: Path, tmp_path: Path) -> Path:
    """A copy of them, to change."""
    return shutil.copytree(drawn, tmp_path / "pictures", symlinks=True)


@pytest.fixture(scope="module")
def converted(drawn: Path, tmp_path_factory: pytest.TempPathFactory) -> Converted:
    return convert(drawn, tmp_path_factory.mktemp("out") / "records", shards=3)


def records_of(folder: Path) -> dict[str, dict[str, Any]]:
    """The features of all records, by the name of the file, with the shard that they are in."""
    found = {}
    for path in sorted(folder.glob("*.tfrecord")):
        source = open_source(str(path))
        index = walk(source)
        for content in (source.read(*span) for span in zip(index.begins.tolist(), index.lengths.tolist(), strict=True)):
            features = parse_example(content)
            name = features["image/filename"][0].decode()
            assert name not in found
            found[name] = {**features, "shard": path.name}
    return found


def contents_of(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.tfrecord")}


def test_every_picture_becomes_a_record_with_its_bytes(drawn: Path, converted: Converted) -> None:
    records = records_of(converted.path)
    assert len(records) == converted.records == 120
    for name, features in records.items():
        label, text = int(features["image/class/label"][0]), features["image/class/text"][0].decode()
        assert features["image/encoded"] == [(drawn / name).read_bytes()]
        assert text == name.partition("/")[0] == ("ant", "bee", "cow")[label]
        assert (features["image/height"], features["image/width"]) == ([40], [50])
        assert features["image/class/label"].dtype == np.int64


def test_the_folder_describes_itself(converted: Converted) -> None:
    folder = converted.path
    assert (folder / "labels.txt").read_text() == "ant\nbee\ncow\n"
    document = json.loads((folder / "dataset.json").read_text())
    assert document["classes"] == ["ant", "bee", "cow"]
    for split in ("train", "validation"):
        assert document["splits"][split]["classes"] == dict(
            zip(converted.classes, converted.counts(split), strict=True)
        )
        shards = [shard for shard in document["shards"] if shard["split"] == split]
        assert sum(shard["records"] for shard in shards) == document["splits"][split]["records"]
    for shard in document["shards"]:
        assert (folder / shard["file"]).stat().st_size == shard["bytes"]
    assert sorted(path.name for path in folder.iterdir() if path.name != ".lock") == sorted(
        ["dataset.json", "labels.txt", "left-out.txt", *(shard.file for shard in converted.shards)]
    )


def test_what_is_left_out_is_named(converted: Converted) -> None:
    lines = (converted.path / "left-out.txt").read_text().splitlines()
    reasons = {one.name: one.reason for one in converted.left_out}
    assert reasons == {
        "bee/cut.jpg": "unreadable",
        "bee/empty.png": "not an image",
        "cow/gone.jpg": "unreadable",
        "cow/notes.txt": "not an image",
    }
    assert [line.partition("\t")[0] for line in lines] == sorted(reasons)


def test_tensorflow_reads_what_is_written(drawn: Path, converted: Converted, warm_python: str) -> None:
    program = f"""
import tensorflow as tf
form = {{
    "image/encoded": tf.io.FixedLenFeature([], tf.string), "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    "image/class/text": tf.io.FixedLenFeature([], tf.string), "image/filename": tf.io.FixedLenFeature([], tf.string),
    "image/height": tf.io.FixedLenFeature([], tf.int64), "image/width": tf.io.FixedLenFeature([], tf.int64),
}}
count = 0
for serialized in tf.data.TFRecordDataset(sorted(tf.io.gfile.glob({str(converted.path)!r} + "/*.tfrecord"))):
    one = tf.io.parse_single_example(serialized, form)
    name = one["image/filename"].numpy().decode()
    assert one["image/encoded"].numpy() == open({str(drawn)!r} + "/" + name, "rb").read()
    assert one["image/class/text"].numpy().decode() == name[:3] == ["ant", "bee", "cow"][one["image/class/label"]]
    pixels = tf.io.decode_image(one["image/encoded"], channels=3)
    assert pixels.shape == (one["image/height"], one["image/width"], 3) == (40, 50, 3)
    count += 1
print(count)
"""
    environment = {name: value for name, value in os.environ.items() if name != "RUDEL_CACHE"} | ENVIRONMENT
    done = subprocess.run([warm_python, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "120"


@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 16_300, 16_384, 2_100_000])
def test_a_record_is_what_the_encoder_makes_of_its_features(size: int) -> None:
    content = bytes(size)
    features = {
        "image/encoded": content,
        "image/class/label": size,
        "image/class/text": "café".encode(),
        "image/height": size + 1,
        "image/width": 300,
        "image/filename": "café/1.jpg".encode(),
    }
    made = example_of(ExaminedImage(size + 1, 300), content, "café/1.jpg", size, "café")
    assert made == encode_example(features)
    assert example_of(ExaminedImage(size + 1, 300, content), b"old", "café/1.jpg", size, "café") == made


def test_what_is_done_is_not_done_again(pictures: Path, tmp_path: Path) -> None:
    first = convert(pictures, tmp_path / "records", shards=2)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "records").iterdir()}

    def unwanted(contents: list[bytes], max_side: int | None) -> list[ExaminedImage | Refused]:
        raise AssertionError

    unwanted.threads = 1  # type: ignore[attr-defined]
    again = convert(pictures, tmp_path / "records", shards=2, spread=unwanted)  # type: ignore[arg-type]
    assert again.made == 0
    assert (again.shards, again.classes, again.left_out) == (first.shards, first.classes, first.left_out)
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "records").iterdir()}


def test_only_the_beginning_is_read_of_what_is_not_a_picture(pictures: Path, tmp_path: Path) -> None:
    """Pipes, devices and a film of a terabyte cost neither time nor memory."""
    os.mkfifo(pictures / "ant" / "pipe.jpg")
    (pictures / "ant" / "zeros.jpg").symlink_to("/dev/zero")
    for name, beginning in (("film.mp4", b"\0\0\0\x18ftyp"), ("huge.jpg", b"\xff\xd8\xff\xe0")):
        with (pictures / "bee" / name).open("wb") as file:
            file.write(beginning)
            file.truncate(2**28 if name == "film.mp4" else 2**40)
    script = (
        "import re, sys\n"
        "from rudel.data.images.convert import convert\n"
        "from rudel.data.images.dataset_file import describe\n"
        "for one in convert(*sys.argv[1:]).left_out: print(one.name, describe(one), sep=': ')\n"
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
    )
    words = [sys.executable, "-c", script, str(pictures), str(tmp_path / "records")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    *left_out, most_kilobytes = done.stdout.splitlines()
    assert left_out == [
        "ant/pipe.jpg: unreadable (not a regular file)",
        "ant/zeros.jpg: unreadable (not a regular file)",
        "bee/cut.jpg: unreadable (not enough image data)",
        "bee/empty.png: not an image (an empty file)",
        "bee/film.mp4: not an image",
        "bee/huge.jpg: too large (1,099,511,627,776 bytes, more than 268,435,456)",
        "cow/gone.jpg: unreadable (No such file or directory)",
        "cow/notes.txt: not an image",
    ]
    assert int(most_kilobytes) < 200_000


@pytest.mark.parametrize("size", [0, 1, 2**17 - 1, 2**17, 2**17 + 1, 300_000])
@pytest.mark.parametrize("kind", ["local", "remote"])
def test_files_are_read_whole(kind: str, size: int, tmp_path: Path) -> None:
    content = np.random.default_rng(size).bytes(size)
    (tmp_path / "file").write_bytes(content)
    if kind == "local":
        store = open_store(str(tmp_path))
    else:
        pytest.importorskip("fsspec").filesystem("memory").pipe("/stores/file", content)
        store = open_store("memory://stores")
    began = []
    assert store.read("file", began.append) == content
    assert began == [content[: 2**17]]


def test_new_pictures_move_no_other(pictures: Path, tmp_path: Path) -> None:
    folder = tmp_path / "records"
    convert(pictures, folder, shards=2)
    splits = {name: record["shard"].partition("-")[0] for name, record in records_of(folder).items()}
    for number in range(20):
        shutil.copy(pictures / "ant/01.png", pictures / f"ant/new{number}.png")
    convert(pictures, folder, shards=3)
    after = {name: record["shard"].partition("-")[0] for name, record in records_of(folder).items()}
    assert len(after) == 140
    assert after.items() >= splits.items()
    assert not inspect(str(folder)).problems


def test_another_folder_is_the_validation_set(drawn: Path, pictures: Path, tmp_path: Path) -> None:
    folder = tmp_path / "records"
    shutil.rmtree(pictures / "ant")
    for path in (*pictures.glob("bee/*"), *pictures.glob("cow/[1-3]*")):
        path.unlink()
    made = convert(drawn, folder, validation=pictures, shards=2)
    assert made.classes == ("ant", "bee", "cow")
    assert (made.counts("train"), made.counts("validation")) == ((40, 40, 40), (0, 0, 10))
    assert not inspect(str(folder)).problems
    assert convert(drawn, folder, validation=str(pictures), shards=2).made == 0
    Image.new("RGB", (9, 9)).save(pictures / "cow/new.png")
    assert convert(drawn, folder, validation=pictures, shards=2).made == 1, "the shard of the validation set"
    (pictures / "dog").mkdir()
    (pictures / "cow/new.png").rename(pictures / "dog/new.png")
    with pytest.raises(DataError, match=f"The folder `dog` in {pictures} is none of the 3 classes"):
        convert(drawn, folder, validation=pictures)
    with pytest.raises(DataError, match="put the records elsewhere"):
        convert(drawn, pictures / "records", validation=pictures)


def test_only_what_a_change_concerns_is_made_again(pictures: Path, tmp_path: Path) -> None:
    folder = tmp_path / "records"
    first = convert(pictures, folder, shards=4)
    changed = first.shards[2].file
    name = next(name for name, record in records_of(folder).items() if record["shard"] == changed)
    Image.new("RGB", (9, 9)).save(pictures / name)
    before = contents_of(folder)
    assert convert(pictures, folder, shards=4).made == 1
    assert {file for file, content in contents_of(folder).items() if content != before[file]} == {changed}
    (folder / first.shards[0].file).unlink()
    assert convert(pictures, folder, shards=4).made == 1


@pytest.mark.parametrize("shard", [0, 2])
def test_a_killed_conversion_goes_on(drawn: Path, converted: Converted, tmp_path: Path, shard: int) -> None:
    """SIGKILL while a shard is written: nothing partial is under its name, and finished shards are kept."""
    folder = tmp_path / "records"
    program = f"""
import os, signal
from rudel.data.images.convert import convert

def progress(done, total):
    names = [name for name in os.listdir({str(folder)!r}) if name[0] != "."]
    if len(names) == {shard} and any(name.endswith(".tmp") for name in os.listdir({str(folder)!r})):
        os.kill(os.getpid(), signal.SIGKILL)

convert({str(drawn)!r}, {str(folder)!r}, shards=3, progress=progress)
"""
    killed = subprocess.run([sys.executable, "-c", program], check=False)
    assert killed.returncode == -signal.SIGKILL
    names = [path.name for path in folder.iterdir() if not path.name.startswith(".")]
    assert len(names) == shard
    resumed = convert(drawn, folder, shards=3)
    assert resumed.made == 4 - shard
    assert contents_of(folder) == contents_of(converted.path)
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in converted.path.iterdir())


@pytest.mark.parametrize("renamed", [1, 2, 3])
def test_a_conversion_that_was_killed_between_two_files_goes_on(
    drawn: Path, converted: Converted, tmp_path: Path, renamed: int
) -> None:
    folder = tmp_path / "records"
    program = f"""
import os, signal, sys
from rudel.data.images.convert import convert

left = [{renamed}]

def hook(event, arguments):
    if event == "os.rename":
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(hook)
convert({str(drawn)!r}, {str(folder)!r}, shards=3)
"""
    killed = subprocess.run([sys.executable, "-c", program], check=False)
    assert killed.returncode == -signal.SIGKILL
    convert(drawn, folder, shards=3)
    assert contents_of(folder) == contents_of(converted.path)
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in converted.path.iterdir())


def test_ctrl_c_says_how_far_it_came(drawn: Path, tmp_path: Path) -> None:
    def progress(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="1 of 4 shards are done"):
        convert(drawn, tmp_path / "records", shards=3, progress=progress)
    assert not list((tmp_path / "records").glob(".*.tmp"))
    assert convert(drawn, tmp_path / "records", shards=3).made == 3


def test_two_conversions_at_the_same_time(drawn: Path, converted: Converted, tmp_path: Path) -> None:
    program = "import sys; from rudel.data.images.convert import convert; print(convert(*sys.argv[1:], shards=3).made)"
    command = [sys.executable, "-c", program, str(drawn), str(tmp_path / "records")]
    with started(command, stdout=subprocess.PIPE) as one, started(command, stdout=subprocess.PIPE) as other:
        made = sorted(int(each.communicate()[0]) for each in (one, other))
    assert made == [0, 4]
    assert contents_of(tmp_path / "records") == contents_of(converted.path)


def test_max_side_makes_pictures_smaller(drawn: Path, tmp_path: Path) -> None:
    made = convert(drawn, tmp_path / "records", max_side=25, validation=0)
    assert made.changes == {"scaled down": 120}
    assert all(record["image/width"] == [25] for record in records_of(made.path).values())
    assert len(made.shards) == 1
    assert not any(made.counts("validation"))


def test_pictures_from_an_address(drawn: Path, converted: Converted, tmp_path: Path) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    files = MemoryFileSystem()
    files.put(str(drawn / "ant"), "/drawn/ant", recursive=True)
    files.put(str(drawn / "bee"), "/drawn/bee", recursive=True)
    try:
        made = convert("memory://drawn", tmp_path / "records")
        assert made.counts("train") == converted.counts("train")[:2]
        assert {one.name for one in made.left_out} == {"bee/cut.jpg", "bee/empty.png"}
        assert convert("memory://drawn", tmp_path / "records").made == 0
        files.pipe_file("/drawn/some.csv", b"path,label\nant/00.jpg,a\nbee/00.jpg,b\n")
        some = convert("memory://drawn/some.csv", tmp_path / "some", validation=0)
        assert sorted(records_of(some.path)) == ["ant/00.jpg", "bee/00.jpg"]
    finally:
        files.rm("/drawn", recursive=True)


def test_a_folder_with_something_else_is_left_alone(drawn: Path, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(DataError, match=r"holds something else, such as `letter.txt`"):
        convert(drawn, tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.name != ".lock"] == ["letter.txt"]
    with pytest.raises(DataError, match="is a file"):
        convert(drawn, tmp_path / "letter.txt")


def test_records_of_others_are_not_written_over(drawn: Path, tmp_path: Path) -> None:
    (tmp_path / "train-00000-of-00001.tfrecord").write_bytes(b"mine")
    with pytest.raises(DataError, match="holds something else, such as `train-00000"):
        convert(drawn, tmp_path)
    assert (tmp_path / "train-00000-of-00001.tfrecord").read_bytes() == b"mine"


def test_records_of_another_folder_are_not_written_over(drawn: Path, pictures: Path, tmp_path: Path) -> None:
    convert(pictures, tmp_path / "records")
    with pytest.raises(DataError, match=f"holds the records of {pictures}"):
        convert(drawn, tmp_path / "records")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda root: [shutil.rmtree(root / name) for name in ("ant", "bee")], "one class only, `cow`"),
        (lambda root: [path.write_bytes(b"?") for path in root.glob("[ab]*/*")], "of one class only, `cow`, are left"),
        (lambda root: [path.write_bytes(b"?") for path in root.glob("*/*.*g")], "no image is left, and 124 were"),
    ],
)
def test_what_nobody_could_train_on_is_refused(
    pictures: Path, tmp_path: Path, change: Callable[[Path], Any], words: str
) -> None:
    (pictures / "cow" / "gone.jpg").unlink()
    (pictures / "cow" / "gone.jpg").write_bytes(b"")
    change(pictures)
    with pytest.raises(DataError, match=words):
        convert(pictures, tmp_path / "records")
    assert not (tmp_path / "records").exists()


def test_records_do_not_go_among_the_pictures(pictures: Path) -> None:
    for out in (pictures, pictures / "records", pictures / "ant" / "x"):
        with pytest.raises(DataError, match="put the records elsewhere"):
            convert(pictures, out)


@pytest.mark.parametrize("options", [{"validation": 1}, {"validation": -0.1}, {"max_side": 0}, {"shards": 0}])
def test_options_out_of_range(drawn: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=f"`{next(iter(options))}`"):
        convert(drawn, tmp_path / "records", **options)
    assert not (tmp_path / "records").exists()


def test_the_other_computers_of_a_cluster_do_the_same(drawn: Path, converted: Converted, tmp_path: Path) -> None:
    class Elsewhere:
        threads = 3
        seen = 0

        def __call__(self, contents: list[bytes], max_side: int | None) -> list[ExaminedImage | Refused]:
            self.seen += len(contents)
            return examine_all(contents, max_side)

    elsewhere = Elsewhere()
    made = convert(drawn, tmp_path / "records", shards=3, spread=elsewhere)
    assert elsewhere.seen == 121  # what is not there, or does not begin as a picture does, is not sent
    assert contents_of(made.path) == contents_of(converted.path)


def test_the_photographs(shared_data: Path, tmp_path: Path) -> None:
    made = convert(shared_data / "sign-digits", tmp_path / "records")
    assert made.classes == tuple("0123456789")
    assert made.records == 1862
    assert made.changes == {"rotated upright": 3}
    assert not made.left_out
    assert 150 < sum(made.counts("validation")) < 220
    assert min(made.counts("validation")) > 5
