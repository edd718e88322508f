import asyncio
import os
import pwd
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from processes import answers, until

from rudel.cluster import ssh
from rudel.cluster.hosts import Host, parse_hosts
from rudel.cluster.ssh_config import read_settings
from rudel.errors import HostError
from rudel.lab import Lab

Configured = Callable[..., Path]


def hostname(host: str, ssh_config: Path, **options: bool) -> str:
    """The name that a computer gives itself, asked over SSH."""

    async def ask() -> str:
        async with ssh.connected(parse_hosts(host)[0], ssh_config, 5.0, **options) as connection:
            return (await ssh.run(connection, "hostname")).stdout.decode().strip()

    return asyncio.run(ask())


def keys_of(lab: Lab) -> dict[str, str]:
    """The public host keys by the names of the computers."""
    lines = [line.split(None, 1) for line in lab.known_hosts.read_text().splitlines()]
    return {names.split(",")[0]: key for names, key in lines}


@pytest.fixture
def known(tmp_path: Path) -> Path:
    return tmp_path / "known_hosts"


def test_a_command_runs_in_the_home_folder_with_its_input(lab: Lab) -> None:
    async def run() -> ssh.Completed:
        async with ssh.connected(Host(lab.hosts[0]), lab.ssh_config) as connection:
            return await ssh.run(connection, "cat; pwd; echo oh >&2; exit 3", input=b"\x00\xff\n")

    assert asyncio.run(run()) == ssh.Completed(b"\x00\xff\n/home/pi\n", b"oh\n", 3)


def test_a_command_without_input_reads_nothing_and_may_end_at_once(lab: Lab) -> None:
    async def run() -> list[ssh.Completed]:
        async with ssh.connected(Host(lab.hosts[0]), lab.ssh_config) as connection:
            large = bytes(10_000_000)
            return [await ssh.run(connection, "cat"), await ssh.run(connection, "exit 5", input=large)]

    read, ended = asyncio.run(run())
    assert (read.stdout, read.exit_status, ended.exit_status) == (b"", 0, 5)


def test_a_command_that_is_killed_has_the_number_of_its_signal(lab: Lab) -> None:
    async def run() -> ssh.Completed:
        async with ssh.connected(Host(lab.hosts[0]), lab.ssh_config) as connection:
            return await ssh.run(connection, "kill -KILL $$")

    assert asyncio.run(run()).exit_status == -9


def test_a_command_that_takes_too_long_is_told(lab: Lab) -> None:
    async def run() -> None:
        async with ssh.connected(Host(lab.hosts[0]), lab.ssh_config) as connection:
            await ssh.run(connection, "sleep 100", timeout=0.1)

    with pytest.raises(HostError, match=f"`sleep 100` did not end within 0.1 s on `{lab.hosts[0]}`"):
        asyncio.run(run())
    while lab.run(lab.hosts[0], "pgrep", "-x", "sleep").stdout:
        pass


def test_a_crash_while_a_command_runs_is_told(lab: Lab) -> None:
    async def run() -> None:
        async with ssh.connected(Host(lab.hosts[0]), lab.ssh_config) as connection:
            waiting = asyncio.create_task(ssh.run(connection, "sleep 100"))
            await ssh.run(connection, "until pgrep -x sleep; do :; done")
            lab.crash(lab.hosts[0])
            await waiting

    with pytest.raises(HostError, match=f"The connection to `{lab.hosts[0]}` was lost while `sleep 100` ran"):
        asyncio.run(run())
    until(lambda: answers(lab.settings.nodes[0].address, 22))


def test_an_unknown_key_is_refused_with_the_way_to_accept_it(lab: Lab, configured: Configured, known: Path) -> None:
    known.write_text("")
    config = configured(UserKnownHostsFile=str(known))
    with pytest.raises(HostError) as refused:
        hostname(lab.hosts[0], config)
    (fingerprint,) = re.findall(r"SHA256:\S+(?=\))", str(refused.value))
    (lab.settings.state / "key.pub").write_text(keys_of(lab)[lab.hosts[0]])
    shown = subprocess.run(["ssh-keygen", "-lf", lab.settings.state / "key.pub"], capture_output=True, text=True)
    assert fingerprint in shown.stdout
    assert f"`ssh -F {config} {lab.hosts[0]}`" in str(refused.value)
    assert f"`rudel hosts check {lab.hosts[0]} --accept-new --ssh-config {config}`" in str(refused.value)
    assert known.read_text() == ""


def test_a_new_key_is_accepted_only_where_that_is_asked_for(lab: Lab, configured: Configured, known: Path) -> None:
    known = known.parent / "ssh" / "known_hosts"
    config = configured(UserKnownHostsFile=str(known))
    assert hostname(lab.hosts[0], config, accept_new=True) == lab.hosts[0]
    assert known.read_text().split()[:3] == [lab.hosts[0], *keys_of(lab)[lab.hosts[0]].split()[:2]]
    assert known.stat().st_mode & 0o777 == 0o600
    assert hostname(lab.hosts[0], config) == lab.hosts[0]


def test_a_changed_key_is_never_accepted(lab: Lab, configured: Configured, known: Path) -> None:
    first, second = lab.hosts
    known.write_text(f"{first} {keys_of(lab)[second]}\n")
    config = configured(UserKnownHostsFile=str(known))
    for accept_new in (False, True):
        with pytest.raises(HostError, match=f"has CHANGED.*ssh-keygen -f {known} -R {first}`"):
            hostname(first, config, accept_new=accept_new)
    assert known.read_text().count("\n") == 1


def test_a_key_that_changed_its_kind_is_not_accepted(lab: Lab, configured: Configured, known: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", known.with_name("other")], check=True)
    known.write_text(f"{lab.hosts[0]} {known.with_name('other.pub').read_text()}")
    with pytest.raises(HostError, match=r"has CHANGED \(it shows ssh-ed25519 SHA256:"):
        hostname(lab.hosts[0], configured(UserKnownHostsFile=str(known)), accept_new=True)


def test_a_key_that_is_known_for_the_address_alone_is_not_enough(lab: Lab, configured: Configured, known: Path) -> None:
    known.write_text(f"{lab.settings.nodes[0].address} {keys_of(lab)[lab.hosts[0]]}\n")
    with pytest.raises(HostError, match="is not known"):
        hostname(lab.hosts[0], configured(UserKnownHostsFile=str(known)))


def test_no_file_of_known_hosts_means_that_no_host_is_known(lab: Lab, configured: Configured) -> None:
    config = configured(UserKnownHostsFile="none", GlobalKnownHostsFile="none")
    with pytest.raises(HostError, match="is not known"):
        hostname(lab.hosts[0], config)
    with pytest.raises(HostError, match="names no file for it"):
        hostname(lab.hosts[0], config, accept_new=True)


def test_a_revoked_key_is_refused(lab: Lab, configured: Configured, known: Path) -> None:
    line = f"{lab.hosts[0]} {keys_of(lab)[lab.hosts[0]]}\n"
    known.write_text(f"{line}@revoked * {keys_of(lab)[lab.hosts[0]]}\n")
    with pytest.raises(HostError, match="cannot be trusted"):
        hostname(lab.hosts[0], configured(UserKnownHostsFile=str(known)))


def test_hashed_and_unreadable_lines_are_as_for_openssh(lab: Lab, configured: Configured, known: Path) -> None:
    known.write_text(f"{lab.hosts[0]} {keys_of(lab)[lab.hosts[0]]}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", known], check=True, capture_output=True)
    assert lab.hosts[0] not in known.read_text()
    known.write_text(f"rubbish\n|1|no|\xff\n@what is this\n{known.read_text()}")
    assert hostname(lab.hosts[0], configured(UserKnownHostsFile=str(known))) == lab.hosts[0]


def test_the_file_of_known_hosts_may_be_made_of_tokens(lab: Lab, configured: Configured, known: Path) -> None:
    (known.parent / lab.hosts[0]).write_text(f"{lab.hosts[0]} {keys_of(lab)[lab.hosts[0]]}\n")
    assert hostname(lab.hosts[0], configured(UserKnownHostsFile=f"{known.parent}/%k")) == lab.hosts[0]


TOKENS = """\
Match exec "echo %n.%h.%p.%k.%r | grep -qx plain.plain.2222.plain.pi"
  HostName by-%h.local
Host raspi?
  HostName %h.local
Host percent
  HostName a%%b
Host alias
  HostName %h.local
  HostKeyAlias key-of-it
Host *
  User pi
  Port 2222
  IdentityAgent ~/agents/%C-%d-%h-%i-%k-%L-%l-%n-%p-%r-%u-%%
  UserKnownHostsFile ~/.ssh/%r@%h:%p ${RUDEL_TEST_KEYS}/%k-%n-%C /keys/%i-%L-%l-%u-%%
"""


@pytest.mark.parametrize("host", ["raspi1", "percent", "alias", "plain"])
def test_tokens_are_expanded_as_by_openssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("RUDEL_TEST_KEYS", "/kept")
    monkeypatch.setenv("HOME", pwd.getpwuid(os.getuid()).pw_dir)  # OpenSSH asks the system, whatever HOME says
    config = tmp_path / "config"
    config.write_text(f"Host plain\n  Port 2222\n  User pi\n{TOKENS}")
    output = subprocess.run(["ssh", "-G", "-F", config, host], check=True, capture_output=True, text=True).stdout
    openssh = dict(line.split(" ", 1) for line in output.splitlines() if " " in line)
    settings = read_settings(Host(host), config)
    assert (settings.address, settings.user, str(settings.port)) == tuple(
        openssh[k] for k in ("hostname", "user", "port")
    )
    assert [str(path) for path in settings.known_hosts] == [
        os.path.normpath(path) for path in openssh["userknownhostsfile"].replace("//", "/").split()
    ]
    assert str(Path(str(settings.options.config.get("IdentityAgent"))).expanduser()) == openssh[
        "identityagent"
    ].replace("//", "/")


@pytest.mark.parametrize(
    "condition",
    [
        'exec "[ 1 = 1 ]"',
        'exec "[ 1 = 2 ]"',
        'originalhost raspi1 exec "test a = a"',
        '=host=raspi1 user = pi exec ="test a = a"',
        "!host=raspi1",
        "host raspi1 # the first",
        "all",
    ],
)
def test_conditions_with_equals_signs_are_understood_as_by_openssh(tmp_path: Path, condition: str) -> None:
    config = tmp_path / "config"
    config.write_text(f"User pi\nMatch {condition}\n  Port 77\n")
    output = subprocess.run(["ssh", "-G", "-F", config, "raspi1"], check=True, capture_output=True, text=True).stdout
    assert f"port {read_settings(Host('raspi1'), config).port}" in output.splitlines()


def test_values_that_only_openssh_knows_are_understood(lab: Lab, configured: Configured, tmp_path: Path) -> None:
    certificate = str(tmp_path / "nothing-cert.pub")
    config = configured(ConnectTimeout="none", PubkeyAuthentication="unbound", CertificateFile=certificate)
    assert hostname(lab.hosts[0], config) == lab.hosts[0]


def test_a_key_and_a_jump_may_be_made_of_tokens(lab: Lab, configured: Configured, tmp_path: Path) -> None:
    first, second = lab.hosts
    (tmp_path / f"key-of-{first}").write_bytes(lab.key.read_bytes())
    (tmp_path / f"key-of-{first}").chmod(0o600)
    config = configured(ProxyJump="gate-to-%n", IdentityFile=f"{tmp_path}/key-of-%k")
    gate = next(node for node in lab.settings.nodes if node.name == second)
    config.write_text(
        f"Host gate-to-{first}\n  HostName {gate.address}\n  User pi\n  IdentityFile {lab.key}\n"
        f"  UserKnownHostsFile {lab.known_hosts}\n  HostKeyAlias {second}\n{config.read_text()}"
    )

    async def ask() -> str:
        async with ssh.connected(Host(first), config, 5.0) as connection:
            return (await ssh.run(connection, "hostname; echo $SSH_CLIENT")).stdout.decode()

    assert asyncio.run(ask()).split()[:2] == [first, gate.address]


def test_a_jump_goes_through_another_host_and_checks_its_key(lab: Lab, configured: Configured, known: Path) -> None:
    first, second = lab.hosts
    assert hostname(first, configured(ProxyJump=f"pi@{second}:22")) == first
    assert hostname(first, configured(ProxyJump=first)) == first
    with pytest.raises(HostError, match=f"`pi@{second}:77`.* refuses connections at port 77"):
        hostname(first, configured(ProxyJump=f"pi@{second}:77"))
    known.write_text(f"{second} {keys_of(lab)[first]}\n")
    config = configured(ProxyJump=second)
    config.write_text(config.read_text().replace(str(lab.known_hosts), str(known)))
    with pytest.raises(HostError, match=f"The key of `{second}`.* has CHANGED"):
        hostname(first, config)


def test_a_host_on_the_way_that_cannot_connect_is_named(lab: Lab, configured: Configured) -> None:
    first, second = lab.hosts
    with pytest.raises(HostError, match=f"`{second}` cannot connect to `pi@127.0.0.1:1` at port 1"):
        hostname(first, configured(ProxyJump=f"{second},pi@127.0.0.1:1"))


def test_who_is_not_let_in_learns_as_whom_and_what_helps(lab: Lab, configured: Configured, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    config = configured(IdentityFile=str(tmp_path / "key"))
    with pytest.raises(HostError, match=rf"does not let the user `pi` in: .*`ssh-copy-id -F {config} {lab.hosts[0]}`"):
        hostname(lab.hosts[0], config)


def test_a_key_that_is_not_there_is_passed_over(lab: Lab, configured: Configured, tmp_path: Path) -> None:
    config = configured(IdentityFile=f"{tmp_path / 'nothing'}\n  IdentityFile {lab.key}")
    assert hostname(lab.hosts[0], config) == lab.hosts[0]


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    output = subprocess.run(["ssh-agent", "-a", tmp_path / "agent"], check=True, capture_output=True, text=True).stdout
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    (process,) = re.findall(r"SSH_AGENT_PID=(\d+)", output)
    monkeypatch.setenv("SSH_AGENT_PID", process)
    yield
    subprocess.run(["ssh-agent", "-k"], check=True, capture_output=True)


def test_a_key_with_a_passphrase_needs_the_agent(lab: Lab, configured: Configured, tmp_path: Path, agent: None) -> None:
    key = tmp_path / "key"
    key.write_bytes(lab.key.read_bytes())
    key.chmod(0o600)
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", key], check=True, capture_output=True)
    config = configured(IdentityFile=str(key))
    with pytest.raises(HostError, match=rf"`{key}`, which has a passphrase: .*`ssh-add {key}`"):
        hostname(lab.hosts[0], config)
    asked = tmp_path / "askpass"
    asked.write_text("#!/bin/sh\necho secret\n")
    asked.chmod(0o700)
    environment = os.environ | {"SSH_ASKPASS": str(asked), "SSH_ASKPASS_REQUIRE": "force"}
    subprocess.run(["ssh-add", "-q", key], check=True, env=environment, capture_output=True)
    assert hostname(lab.hosts[0], config) == lab.hosts[0]


def test_a_name_that_does_not_resolve_is_told(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host alias\n  HostName nothing.invalid\n")
    with pytest.raises(HostError, match=r"The name of `alias` \(`nothing.invalid`\) does not resolve"):
        hostname("alias", config)


def test_refused_connections_are_told_with_the_port(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("")
    for name in ("127.0.0.1", "localhost"):
        with pytest.raises(HostError, match=f"`{name}:1` refuses connections at port 1: start its SSH server"):
            hostname(f"{name}:1", tmp_path / "config")


def test_a_host_that_is_cut_off_is_told_within_the_time(lab: Lab) -> None:
    async def attempt() -> None:
        await ssh.connect(Host(lab.hosts[0]), lab.ssh_config, 0.5)

    lab.cut(lab.hosts[0])
    try:
        with pytest.raises(HostError, match=r"did not answer within 0.5 s|There is no route to"):
            asyncio.run(attempt())
    finally:
        lab.heal(lab.hosts[0])


@pytest.mark.parametrize(("hangs_up", "sentence"), [(True, "could not be made"), (False, "no SSH server at port")])
def test_what_is_no_ssh_server_is_told(tmp_path: Path, hangs_up: bool, sentence: str) -> None:
    (tmp_path / "config").write_text("")

    async def attempt() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"220 this is for mail\r\n")
            if not hangs_up:
                await reader.read()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            await ssh.connect(Host("127.0.0.1", port=port), tmp_path / "config", 0.5)

    with pytest.raises(HostError, match=sentence):
        asyncio.run(attempt())


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("Host a\n  Port many\n", "cannot be understood: .* line 2: .*many"),
        ('Match ""\n', "cannot be understood: .* line 1: Missing Match value"),
        ('"Match" host "a"\n', "cannot be understood: .* line 1: No closing quotation"),
        ("IdentityFile ~nobody-here/key\n", "The SSH settings for `a` cannot be used: There is no home folder"),
        (None, "There is no SSH configuration"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_told(tmp_path: Path, content: str | None, sentence: str) -> None:
    if content is not None:
        (tmp_path / "config").write_text(content)
    with pytest.raises(HostError, match=sentence):
        hostname("a", tmp_path / "config")


def test_a_user_without_a_name_reads_the_configuration(tmp_path: Path, lacking: Callable[[str], NoReturn]) -> None:
    """As in a container that was started with the number of a user."""
    alone = ["unshare", "--user", "--map-user=12345"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode:
        lacking("This system allows no user namespaces to whoever runs the tests.")
    (tmp_path / "config").write_text("")
    code = (
        "import sys; from pathlib import Path; from rudel.cluster.hosts import Host\n"
        "from rudel.cluster.ssh_config import read_settings\n"
        "print(*(read_settings(Host('raspi1', user), Path(sys.argv[1])).user for user in ('root', None)))\n"
    )
    names = ("LOGNAME", "USER", "LNAME", "USERNAME")
    environment = {key: value for key, value in os.environ.items() if key not in names}
    done = subprocess.run(
        [*alone, sys.executable, "-c", code, tmp_path / "config"], env=environment, capture_output=True, text=True
    )
    assert done.stdout == "root 12345\n", done.stderr
