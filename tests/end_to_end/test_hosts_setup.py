"""A host without a way to any package index gets everything that a worker needs, and nothing the second time.

`benchmarks` would be the place for four hosts at a tenth of this speed: 800 MB over the air take two minutes there.
"""

import time
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from homes import furnish

from rudel.cluster.foreground import wait_for
from rudel.cluster.hosts import REMOTE_PYTHON
from rudel.cluster.hosts_check import check_hosts
from rudel.cluster.setup import set_up_hosts
from rudel.cluster.ssh_cluster import Cluster
from rudel.errors import HostError
from rudel.lab import Lab


@pytest.fixture
def lab(tmp_path: Path, lab_machine: None) -> Iterator[Lab]:
    with Lab(nodes=1, cpu=2.0, rate=1000, latency=0.0, prefix="hsetup", subnet="10.97.0", state=tmp_path) as lab:
        yield lab


@pytest.fixture
def furnished(tmp_path: Path) -> None:
    """Lets the host begin with what a set-up has left."""
    furnish([tmp_path / "hsetup1" / "home"], "--minimal")


def has_what_is_here(lab: Lab) -> None:
    (report,) = wait_for(check_hosts(lab.hosts, lab.ssh_config))
    assert report.facts is not None
    for name in ("rudel", "jax", "jaxlib", "numpy", "distributed", "cryptography"):
        assert report.facts.installed[name] == metadata.version(name)


@pytest.mark.slow  # tests/cluster/test_setup.py shows the same of small packages
def test_a_host_without_an_index_is_set_up_once(lab: Lab) -> None:
    began = time.monotonic()
    (first,) = wait_for(set_up_hosts(lab.hosts, lab.ssh_config, offline=True, minimal=True))
    seconds = time.monotonic() - began
    assert first.problem is None
    assert first.how == "with wheels from here"
    has_what_is_here(lab)
    code = "import jax, distributed, rudel.cluster; print(jax.numpy.arange(4).sum())"
    assert lab.run(lab.hosts[0], REMOTE_PYTHON, "-c", code).stdout == "6\n"

    began = time.monotonic()
    (second,) = wait_for(set_up_hosts(lab.hosts, lab.ssh_config, minimal=True))
    assert (second.problem, second.how, second.sent) == (None, "nothing to do", 0)
    assert time.monotonic() - began < seconds / 2


def test_a_host_that_lacks_a_package_is_named_and_mended(furnished: None, lab: Lab) -> None:
    has_what_is_here(lab)
    host = lab.hosts[0]
    assert lab.run(host, "sh", "-c", "rm -r .rudel/env/lib/python*/site-packages/numpy").returncode == 0
    with pytest.raises(HostError, match=rf"incomplete one \(No module named 'numpy'\): run `rudel hosts setup {host}`"):
        Cluster(host, ssh_config=lab.ssh_config).start()
    (report,) = wait_for(check_hosts(host, lab.ssh_config))
    assert report.problem == f"Rudel on `{host}` is incomplete: numpy is damaged: run `rudel hosts setup {host}`."
    (mended,) = wait_for(set_up_hosts(host, lab.ssh_config, offline=True, minimal=True))
    assert (mended.problem, mended.packages) == (None, 2)
    (report,) = wait_for(check_hosts(host, lab.ssh_config))
    assert (report.problem, report.notes) == (None, ())
    with Cluster(host, ssh_config=lab.ssh_config) as cluster, warnings.catch_warnings():
        warnings.simplefilter("error")  # of Dask, which compares more of Python's version than matters
        assert cluster.client.submit(sum, [1, 2]).result() == 3
