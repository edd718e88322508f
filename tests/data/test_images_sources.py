"""Which pictures there are and what they show; and every way to get that wrong."""

import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rudel.data.images.image_sources import MISSING, NO_LABEL, NOT_READ, Source, find_labelled_files
from rudel.data.images.shard_plan import Options, place, plan_shards
from rudel.data.images.stores import open_store
from rudel.errors import DataError


@pytest.fixture
def lay_out(tmp_path: Path) -> Callable[..., Path]:
    """Makes files in a folder; what is in them does not matter here."""

    def make(*names: str, **contents: str) -> Path:
        root = tmp_path / "pictures"
        root.mkdir()
        for name in names:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(b"x")
        for name, content in contents.items():
            (root / name.replace("__", ".")).write_text(content, encoding="utf-8")
        return root

    return make


def shown(source: Source) -> dict[str, str]:
    """What each picture shows, by its name."""
    return {one.file.name: source.classes[one.label] for one in source.files}


def test_each_folder_is_a_class(lay_out: Callable[..., Path]) -> None:
    root = lay_out("cat/1.jpg", "cat/more/2.png", "dog/1.jpg", "dog/.hidden", ".git/x", "read.me", "dog/é.webp")
    (root / "empty").mkdir()
    source = find_labelled_files(str(root))
    assert source.classes == ("cat", "dog")
    assert shown(source) == {"cat/1.jpg": "cat", "cat/more/2.png": "cat", "dog/1.jpg": "dog", "dog/é.webp": "dog"}
    assert source.passed_over == (("read.me", NO_LABEL),)


def test_classes_that_are_numbers_are_in_the_order_of_their_values(lay_out: Callable[..., Path]) -> None:
    assert find_labelled_files(str(lay_out("10/a", "9/a", "0/a"))).classes == ("0", "9", "10")


def test_links_are_followed_but_not_in_circles(lay_out: Callable[..., Path], tmp_path: Path) -> None:
    root = lay_out("cat/1.jpg", "dog/1.jpg")
    (root / "cow").symlink_to(root / "dog", target_is_directory=True)
    (root / "dog" / "again").symlink_to(root, target_is_directory=True)
    assert "cow/1.jpg" in shown(find_labelled_files(str(root)))


def test_names_of_classes_can_be_given(lay_out: Callable[..., Path]) -> None:
    root = lay_out("cat/1.jpg", "dog/1.jpg")
    names = root.parent / "names"
    names.write_text("dog\nemu\ncat\n\n")
    source = find_labelled_files(str(root), classes=str(names))
    assert source.classes == ("dog", "emu", "cat")
    assert [one.label for one in source.files] == [2, 0]


def test_names_of_classes_may_be_decomposed_as_on_macos(lay_out: Callable[..., Path]) -> None:
    root = lay_out("\u00d6l/1.jpg", "dog/1.jpg")
    (root.parent / "names").write_text("O\u0308l\ndog\n")
    assert find_labelled_files(str(root), classes=str(root.parent / "names")).classes == ("\u00d6l", "dog")


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_paths_in_a_table_may_be_in_another_form_of_unicode(lay_out: Callable[..., Path], form: Any) -> None:
    names = [unicodedata.normalize(other, "\u00d6l.jpg") for other in ("NFC", "NFD")]
    root = lay_out("1.jpg", names[form == "NFC"])
    table = root / "t.csv"
    table.write_text(f"1.jpg,cat\n{names[form == 'NFD']},dog\n")
    labels = {"1.jpg": "cat", names[form == "NFC"]: "dog"}
    for source in (find_labelled_files(str(table)), find_labelled_files(str(root), labels=str(table))):
        assert shown(source) == labels
    table.write_text(f"1,cat\n{names[form == 'NFD'].removesuffix('.jpg')},dog\n")
    assert shown(find_labelled_files(str(root), labels=str(table))) == labels


@pytest.mark.parametrize(
    "table",
    [
        "1.jpg,cat\nsub/2.jpg,dog\n",
        "path,label\n1.jpg,cat\nsub/2.jpg,dog",
        "\ufeffwidth,Label,Filename\r\n100,cat,1.jpg\r\n\r\n100,dog,sub/2.jpg\r\n",
        '"1.jpg","cat"\n"sub/2.jpg","dog"\n',
        "1.jpg;cat\nsub/2.jpg;dog\n",
        f"path,label,caption\n1.jpg,cat,{'a' * 150_000}\nsub/2.jpg,dog,b\n",
    ],
    ids=["two columns", "headings", "other columns", "quoted", "semicolons", "a long field"],
)
def test_a_table_names_pictures_relative_to_itself(lay_out: Callable[..., Path], table: str) -> None:
    root = lay_out("1.jpg", "sub/2.jpg", "sub/3.jpg", table__csv=table)
    assert shown(find_labelled_files(str(root / "table.csv"))) == {"1.jpg": "cat", "sub/2.jpg": "dog"}


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("labels.csv", "id,breed\n1,cat\n2,big dog\n"),
        ("labels.csv", "1.jpg,cat\n2.jpg,big dog\n"),
        ("labels.txt", "1.jpg\tcat\n2.jpg\tbig dog\n"),
        ("labels.txt", '1.jpg  cat\n2.jpg  "big dog"\n'),
    ],
)
def test_a_flat_folder_with_a_labels_file(lay_out: Callable[..., Path], name: str, table: str) -> None:
    root = lay_out("1.jpg", "2.jpg", "3.jpg")
    (root / name).write_text(table)
    source = find_labelled_files(str(root))
    assert shown(source) == {"1.jpg": "cat", "2.jpg": "big dog"}
    assert source.passed_over == (("3.jpg", NO_LABEL),)
    elsewhere = root.parent / "elsewhere.list"
    (root / name).rename(elsewhere)
    assert shown(find_labelled_files(str(root), labels=str(elsewhere))) == shown(source)


@pytest.mark.parametrize(
    ("name", "table"), [("labels.csv", "cat/1.jpg,old\ndog/1.jpg,new\n"), ("labels.txt", "cat\ndog\n")]
)
def test_folders_name_the_classes_whatever_labels_file_is_beside_them(
    lay_out: Callable[..., Path], name: str, table: str
) -> None:
    root = lay_out("cat/1.jpg", "dog/1.jpg", "dog/2.jpg")
    (root / name).write_text(table)
    source = find_labelled_files(str(root))
    assert shown(source) == {"cat/1.jpg": "cat", "dog/1.jpg": "dog", "dog/2.jpg": "dog"}
    assert source.passed_over == ((name, NOT_READ),)


@pytest.mark.parametrize(
    ("images", "others"),
    [
        (("00/1.jpg", "01/2.jpg"), ()),
        (("speaker1/yes.wav", "speaker2/no.wav"), ("speaker1/yes.txt",)),
        (("1.jpg", "2.jpg"), ("thumbs/1.jpg", "masks/1.jpg")),
        (("images/1.jpg", "images/2.jpg"), ("annotations/1.xml", "annotations/2.xml")),
        (("images/1.jpg", "images/2.jpg"), ("images/1.json", "__MACOSX/1.jpg")),
        (("train/1.jpg", "train/2.jpg"), ("test/3.jpg",)),
    ],
    ids=lambda names: " ".join(names),
)
def test_folders_are_no_classes_where_a_labels_file_names_the_images(
    lay_out: Callable[..., Path], images: tuple[str, str], others: tuple[str, ...]
) -> None:
    root = lay_out(*images, *others, labels__csv=f"{images[0]},cat\n{images[1]},dog\n")
    source = find_labelled_files(str(root))
    assert shown(source) == dict(zip(images, ("cat", "dog"), strict=True))
    assert dict(source.passed_over) == dict.fromkeys(others, NO_LABEL)


def test_images_that_a_labels_file_leaves_out_decide_whether_folders_are_classes(lay_out: Callable[..., Path]) -> None:
    names = [f"{folder}/{number}.jpg" for folder in ("00", "01") for number in range(10)]
    root = lay_out(*names)
    for count, classes in ((18, ("cat", "dog")), (17, ("00", "01"))):
        (root / "labels.csv").write_text(
            "".join(f"{name},{'cat' if name < '01' else 'dog'}\n" for name in names[:count])
        )
        assert find_labelled_files(str(root)).classes == classes


def test_a_labels_file_counts_beside_one_folder_and_where_it_is_named(lay_out: Callable[..., Path]) -> None:
    root = lay_out("all/1.jpg", "all/2.jpg", labels__csv="all/1.jpg,cat\nall/2.jpg,dog\n")
    assert shown(find_labelled_files(str(root))) == {"all/1.jpg": "cat", "all/2.jpg": "dog"}
    (root / "more").mkdir()
    (root / "more/3.jpg").write_bytes(b"x")
    found = find_labelled_files(str(root), labels=str(root / "labels.csv"))
    assert shown(found) == {"all/1.jpg": "cat", "all/2.jpg": "dog"}


def test_pictures_of_a_table_that_are_not_there_are_named(lay_out: Callable[..., Path]) -> None:
    root = lay_out("1.jpg", "2.jpg", t__csv="1.jpg,a\n2.jpg,b\n3.jpg,b\n")
    source = find_labelled_files(str(root / "t.csv"))
    assert source.passed_over == (("3.jpg", MISSING),)
    assert len(source.files) == 2


@pytest.mark.parametrize("table", ["photo,sign\n1.jpg,a\n2.jpg,b\n", "\ufeffphoto;sign\r\n1.jpg;a\r\n2.jpg;b\r\n"])
@pytest.mark.parametrize("name", ["t.csv", "labels.csv"])
def test_headings_of_ones_own_are_no_class(lay_out: Callable[..., Path], table: str, name: str) -> None:
    root = lay_out("1.jpg", "2.jpg")
    (root / name).write_text(table, encoding="utf-8")
    source = find_labelled_files(str(root / name if name == "t.csv" else root))
    assert (source.classes, source.passed_over) == (("a", "b"), ())


@pytest.mark.parametrize("first", ["3.jpg,c", "three,a"])
def test_an_image_of_the_first_line_that_is_not_there_is_named(lay_out: Callable[..., Path], first: str) -> None:
    root = lay_out("1.jpg", "2.jpg", t__csv=f"{first}\n1.jpg,a\n2.jpg,b\n")
    assert find_labelled_files(str(root / "t.csv")).passed_over == ((first.partition(",")[0], MISSING),)


def test_labels_can_be_numbers_of_classes(lay_out: Callable[..., Path]) -> None:
    root = lay_out("1.jpg", "2.jpg", labels__txt="1.jpg 1\n2.jpg 0\n", names="cat\ndog\n")
    assert shown(find_labelled_files(str(root), classes=str(root / "names"))) == {"1.jpg": "dog", "2.jpg": "cat"}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("", "t.csv is empty"),
        ("1.jpg\n", "has 1 field in line 1, not 2"),
        ("1.jpg,a\n2.jpg,b,c\n", "has 3 fields in line 2, not 2"),
        (
            "filename,red,blue\n1.jpg,1,0\n",
            "has 3 fields in line 1, not 2: give PATH,LABEL, .*; with other columns, name two `path` and `label` in",
        ),
        (
            "path,label,width\n1.jpg,a,b,3\n",
            "has 4 fields in line 2, not 3: give one for each heading, in quotation marks where they hold commas.$",
        ),
        (
            "path,label\n1.jpg,a\n2.jpg,b,c\n",
            "has 3 fields in line 3, not 2: give one for each heading, in quotation marks where they hold commas.$",
        ),
        ("1.jpg,a\n2.jpg,\n", "has no label in line 2"),
        ("path,label\n,a\n", "has no path in line 2"),
        ("1.jpg,a\n2.jpg,b\n1.jpg,b\n", "names 1.jpg in line 1 and in line 3"),
        ('1.jpg,a\n"2.jpg,b\n', "cannot be read in line 2"),
        ("1.jpg,a\n2.jpg,a\n", "pictures of one class only, `a`"),
        ("8.jpg,a\n9.jpg,b\n", "None of the 2 pictures that"),
        ("1.jpg,a\n2.jpg,caf\u0065\u0301\n3.jpg,caf\u00e9\n", "in two encodings of the same letters"),
    ],
)
def test_tables_that_cannot_be_read(lay_out: Callable[..., Path], table: str, words: str) -> None:
    root = lay_out("1.jpg", "2.jpg", "3.jpg", t__csv=table)
    with pytest.raises(DataError, match=words):
        find_labelled_files(str(root / "t.csv"))


def test_a_table_that_is_not_utf8(lay_out: Callable[..., Path]) -> None:
    root = lay_out("1.jpg")
    (root / "t.csv").write_bytes(b"1.jpg,a\n2.jpg,caf\xe9\n")
    with pytest.raises(DataError, match="not UTF-8 in line 2"):
        find_labelled_files(str(root / "t.csv"))


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("2", "Label 2 in line 2 of .* is out of range: there are 2 classes, and labels go from 0 to 1"),
        ("-1", "Label -1 in line 2"),
        ("emu", "`emu` in line 2 of .* is none of the 2 classes"),
    ],
)
def test_labels_that_are_none(lay_out: Callable[..., Path], label: str, words: str) -> None:
    root = lay_out("1.jpg", "2.jpg", t__csv=f"1.jpg,cat\n2.jpg,{label}\n", names="cat\ndog\n")
    with pytest.raises(DataError, match=words):
        find_labelled_files(str(root / "t.csv"), classes=str(root / "names"))


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("cat\n", "names 1 class: two are the least"),
        ("cat\ndog\ncat\n", "the class `cat` in line 1 and in line 3"),
        ("cat\n\ndog\n", "nothing in line 2"),
        ("cat\nemu\n", "`dog` in .* is none of the 2 classes"),
    ],
)
def test_names_that_do_not_do(lay_out: Callable[..., Path], names: str, words: str) -> None:
    root = lay_out("cat/1.jpg", "dog/1.jpg")
    (root.parent / "names").write_text(names)
    with pytest.raises(DataError, match=words):
        find_labelled_files(str(root), classes=str(root.parent / "names"))


def test_folders_that_do_not_do(lay_out: Callable[..., Path]) -> None:
    root = lay_out()
    with pytest.raises(DataError, match="is empty"):
        find_labelled_files(str(root))
    (root / "1.jpg").write_bytes(b"")
    with pytest.raises(DataError, match="no folders of classes"):
        find_labelled_files(str(root))
    with pytest.raises(DataError, match=r"is a file: give a folder, or a table whose name ends in .csv"):
        find_labelled_files(str(root / "1.jpg"))
    with pytest.raises(DataError, match="There is no folder"):
        find_labelled_files(str(root / "2"))
    with pytest.raises(DataError, match=r"labels.txt cannot be read: No such file"):
        find_labelled_files(str(root), labels=str(root / "labels.txt"))


def test_a_table_without_a_name_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "1.jpg").write_bytes(b"")
    with pytest.raises(DataError, match="'' cannot be read: not a regular file"):
        find_labelled_files(str(tmp_path), labels="")
    with pytest.raises(DataError, match="'' cannot be read: not a regular file"):
        find_labelled_files(str(tmp_path), classes="")


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("cat/1.jpg", "cat/2.jpg"), "one class only, `cat`"),
        (("train/cat/1.jpg", "train/dog/1.jpg", "test/cat/1.jpg"), "split already, into test and train"),
        (("cat /1.jpg", "dog/1.jpg"), "the folder `cat ` in .* cannot name a class|The folder `cat `"),
        (("c\nat/1.jpg", "dog/1.jpg"), "cannot name a class"),
        (("c\udcffat/1.jpg", "dog/1.jpg"), "is not UTF-8"),
        (("caf\u00e9/1.jpg", "cafe\u0301/1.jpg"), "in two encodings of the same letters"),
    ],
    ids=ascii,
)
def test_folders_of_classes_that_do_not_do(lay_out: Callable[..., Path], names: tuple[str, ...], words: str) -> None:
    with pytest.raises(DataError, match=words):
        find_labelled_files(str(lay_out(*names)))


@pytest.mark.parametrize(
    ("splits", "command"),
    [
        (("test", "train"), "rudel data images {0}/train --validation {0}/test --out DIR"),
        (("Test", "Training", "valid"), "rudel data images {0}/Training --validation {0}/valid --out DIR"),
    ],
)
def test_a_data_set_that_is_split_already_has_a_command(
    lay_out: Callable[..., Path], splits: tuple[str, ...], command: str
) -> None:
    root = lay_out(*(f"{split}/cat/1.jpg" for split in splits))
    with pytest.raises(DataError, match=f"convert it by `{re.escape(command.format(root))}`"):
        find_labelled_files(str(root))


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("nothing://bucket/folder", "nothing that reads nothing://"),
        ("memory://not/there", "is empty|cannot be read"),
    ],
)
def test_addresses_that_do_not_do(address: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        find_labelled_files(address)


def test_an_address_without_its_package() -> None:
    pytest.importorskip("fsspec")
    try:
        import gcsfs  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError:
        with pytest.raises(DataError, match="pip install gcsfs"):
            open_store("gs://bucket/folder")


def test_a_picture_stays_in_its_split_when_others_come() -> None:
    names = [f"cat/{number}.jpg" for number in range(2000)]
    assert 150 < sum(place(name) < 0.1 for name in names) < 250
    assert all(0 <= place(name) < 1 for name in names)
    assert place("caf\u00e9/1.jpg") == place("cafe\u0301/1.jpg")


def test_shards_have_every_picture_once_and_all_classes(lay_out: Callable[..., Path]) -> None:
    source = find_labelled_files(str(lay_out(*(f"{label}/{number}" for label in "abc" for number in range(60)))))
    shards = plan_shards(source.files, source.classes, Options(validation=0.25, shards=3))
    assert [shard.file for shard in shards] == [
        *(f"train-0000{number}-of-00003.tfrecord" for number in range(3)),
        "validation-00000-of-00001.tfrecord",
    ]
    names = [one.file.name for shard in shards for one in shard.files]
    assert sorted(names) == [one.file.name for one in source.files]
    assert all({one.label for one in shard.files} == {0, 1, 2} for shard in shards)
    assert max(len(shard.files) for shard in shards[:3]) - min(len(shard.files) for shard in shards[:3]) <= 1
    assert len({shard.made_of for shard in shards}) == 4
