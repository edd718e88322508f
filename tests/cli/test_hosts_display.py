"""The progress of hosts on the terminal."""

import pytest

from rudel.cli.hosts_display import live_display
from rudel.cluster.hosts import parse_hosts
from rudel.cluster.installation import Stage


def test_every_host_is_shown_by_its_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    hosts = parse_hosts("[fe80::1%eth0],raspi1")
    with live_display(hosts) as (on_stage, _):
        on_stage(hosts[0], Stage("[bold] is sent", 1_000_000, 5_000_000))
    shown = capsys.readouterr().err
    assert "fe80::1%eth0" in shown
    assert "[bold] is sent, 1 of 5 MB" in shown
    assert "raspi1" in shown
