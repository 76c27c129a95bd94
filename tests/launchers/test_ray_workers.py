"""One run over the machines of a Ray cluster, one of which is lost in the middle."""

from importlib.util import find_spec

import pytest

from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.runner import run_cell
from pfl_benchmark.experiment.unrecorded import Quiet
from pfl_benchmark.resolve.run import resolve

pytestmark = pytest.mark.skipif(not find_spec("ray"), reason="the optional package ray is not installed")


@pytest.fixture
def cluster(monkeypatch):
    """Two nodes on this machine, each with a core, as far as Ray knows."""
    from ray.cluster_utils import Cluster

    from pfl_benchmark.experiment.ray import SETTINGS

    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    found.second = found.add_node(num_cpus=1)
    found.wait_for_nodes(timeout=300)
    monkeypatch.setenv("RAY_ADDRESS", found.address)
    yield found
    found.shutdown()


def on_the_cluster(config, folder, observer):
    execution = Execution(device="cpu", executor="ray", results_dir=folder, checkpoint_seconds=0)
    return run_cell(resolve(config), execution, observer)


def test_a_run_on_two_machines_outlives_one(cluster, tiny, unbroken, tmp_path, capsys):
    expected = unbroken("ditto", "stacked")

    class Killer(Quiet):
        def round(self, line):
            if line["round"] == 2:
                cluster.remove_node(cluster.second)

    summary = on_the_cluster(tiny("ditto"), tmp_path, Killer())
    environment = summary["environment"]
    assert (environment["workers"], environment["executor"], environment["device"]) == (2, "stacked", "cpu")
    found = type(expected)(tmp_path / summary["record"], summary)
    for ours, theirs in zip(found.lines, expected.lines, strict=True):
        assert ours.pop("evaluated", "") == theirs.pop("evaluated", "")
        assert ours == pytest.approx(theirs, rel=1e-3)  # stacks of other sizes
    assert "is lost" in capsys.readouterr().err
