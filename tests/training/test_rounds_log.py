"""What a training on several workers leaves in its run directory, and what is said of it."""

import json
import subprocess
from pathlib import Path

from rudel.report.rounds_file import read_rounds

ROOT = Path(__file__).parents[2]

_TRAIN = """
import sys
import rudel
from distributed import Client, LocalCluster

if __name__ == "__main__":
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        rudel.train_recipe("digits", epochs=5, run=sys.argv[1], client=client, verbose=False)
"""


def test_every_round_is_logged_described_and_reported(tmp_path, warm_python):
    run = tmp_path / "run"
    subprocess.run([warm_python, "-c", _TRAIN, str(run)], check=True, cwd=tmp_path, timeout=300)
    lines = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    config, summary = (json.loads((run / name).read_text()) for name in ("config.json", "summary.json"))
    rounds = read_rounds(run / "rounds.jsonl")
    assert rounds is not None
    assert rounds.count == summary["rounds"] == sum("round" in line for line in lines)
    assert rounds.steps * config["batch_size"] >= summary["samples"] > 0
    assert [host.name for host in rounds.hosts] == summary["hosts"]
    assert 0 < rounds.computing <= 1
    assert rounds.sent[-1] == summary["bytes_sent"] > 0
    text = (ROOT / "docs/runs.md").read_text(encoding="utf-8")
    keys = {key for line in lines for key in (*line, *(k for host in line.get("hosts", {}).values() for k in host))}
    names = {path.name for path in run.iterdir()} | {*config, *summary, *keys}
    assert sorted(name for name in names if f"`{name}" not in text) == []
    assert "Hosts" in (run / "report.html").read_text(encoding="utf-8")
