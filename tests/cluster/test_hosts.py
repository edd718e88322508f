import os
from pathlib import Path

import pytest

from rudel.cluster.hosts import Host, parse_hosts, remote_python
from rudel.errors import HostError


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("raspi1", Host("raspi1")),
        ("pi@raspi1", Host("raspi1", "pi")),
        ("pi@raspi1.local:2222", Host("raspi1.local", "pi", 2222)),
        ("10.0.0.7:22", Host("10.0.0.7", None, 22)),
        ("first.last@raspi1", Host("raspi1", "first.last")),
        ("me@firm.example@raspi1", Host("raspi1", "me@firm.example")),
        ("[fe80::2%wlan0]", Host("fe80::2%wlan0")),
        ("pi@[2001:db8::1]:2222", Host("2001:db8::1", "pi", 2222)),
    ],
)
def test_a_host_is_read_and_written_alike(text: str, host: Host) -> None:
    assert parse_hosts(text) == (host,)
    assert str(host) == text


def test_a_list_keeps_its_order_and_may_have_spaces() -> None:
    assert [str(host) for host in parse_hosts(" b , pi@a:22,c")] == ["b", "pi@a:22", "c"]


def test_a_sequence_may_mix_texts_and_hosts() -> None:
    own = Host("a", python="/opt/python")
    assert parse_hosts([own, "b:2222"]) == (own, Host("b", port=2222))


def test_a_file_has_comments_empty_lines_and_pythons(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# the kitchen\nraspi1\n\npi@raspi2:2222   python=~/my env/bin/python # mine\n[fe80::1]\n")
    assert parse_hosts(str(file)) == (
        Host("raspi1"),
        Host("raspi2", "pi", 2222, "~/my env/bin/python"),
        Host("fe80::1"),
    )


def test_a_file_is_given_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("raspi1\n")
    assert parse_hosts(tmp_path / "hosts") == (Host("raspi1"),)
    with pytest.raises(HostError, match="The hosts file `nothing` cannot be read"):
        parse_hosts(Path("nothing"))


def test_a_file_may_be_a_pipe() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"raspi1\n")
    os.close(writing)
    assert parse_hosts(f"/dev/fd/{reading}") == (Host("raspi1"),)
    os.close(reading)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_bytes(b"\xef\xbb\xbfraspi1\r\nraspi2\r\n")
    assert parse_hosts(str(tmp_path / "hosts")) == (Host("raspi1"), Host("raspi2"))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("", "No host was given"),
        ([], "No host was given"),
        (3, "3 is not a host: write hosts as in `raspi1,pi@raspi2`"),
        (["a", None], "None is not a host"),
        ("a,,b", r"`` is not a host in `a,,b`"),
        ("a,b,a", "The host `a` is given twice"),
        ("fe80::1", r"write an IPv6 address in brackets, as in `\[fe80::1\]`"),
        ("a:", "`a:` is not a host"),
        ("a:0", "The port of `a:0` must be from 1 to 65535"),
        ("a:65536", "The port of `a:65536` must be"),
        (f"a:{'1' * 5000}", "The port of `a:1+` must be"),
        ("a b", "`a b` is not a host"),
        ("-oProxyCommand=evil", "is not a host"),
        ("@a", "`@a` is not a host"),
        ("./nothing/here", "There is no hosts file `./nothing/here`"),
        ("host.txt", "There is no hosts file `host.txt`"),
    ],
)
def test_what_is_no_host_is_refused(given: str | list[str], sentence: str) -> None:
    with pytest.raises(HostError, match=sentence):
        parse_hosts(given)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("# only this\n", "names no host"),
        ("a\nb:x\n", "`b:x` is not a host in line 2 of"),
        (
            "a pythn=/usr/bin/python3\n",
            "Only `python=PATH` may follow a host, not `pythn=/usr/bin/python3` in line 1 of",
        ),
        ("a\na\n", "The host `a` is given twice"),
    ],
)
def test_mistakes_in_a_file_are_told_with_their_line(tmp_path: Path, content: str, sentence: str) -> None:
    file = tmp_path / "hosts"
    file.write_text(content)
    with pytest.raises(HostError, match=sentence):
        parse_hosts(str(file))


def test_the_python_of_a_host_is_quoted_for_its_shell() -> None:
    assert remote_python(Host("a")) == ".rudel/env/bin/python"
    assert remote_python(Host("a", python="/opt/my python/bin/python3")) == "'/opt/my python/bin/python3'"


def test_a_file_in_a_closed_folder_is_refused(closed: Path) -> None:
    with pytest.raises(HostError, match=f"hosts file `{closed}/hosts`"):
        parse_hosts(str(closed / "hosts"))
