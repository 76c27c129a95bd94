"""The generalisation bound: exact terms for known architectures, and how they change with K, n and ζ."""

import dataclasses
import json
import math

import pytest

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.cli import main
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import find_setting
from pfl_benchmark.errors import UserError
from pfl_benchmark.papers.ppfe.bound import bound_of, capacities_of, corollary, harmonic_mean, sizes_of
from pfl_benchmark.resolve.run import with_hyper

# Specification, section 2.1 and 2.2: shared and personal parameters of the four stages on CIFAR-100.
PPFE_CIFAR100 = [(1_075_044, 0), (1_062_144, 12_900), (901_248, 50_028), (209_792, 667_384)]

UNTOLD = {
    "apfl", "ditto", "fedah", "fedala", "fedavg-ft", "fedbabu", "fedcac", "feddbe", "feddwa", "feddyn",
    "fedselect", "per-fedavg", "pfedfda", "pfedme", "phn",
}  # fmt: skip


@pytest.fixture
def make(monkeypatch, tmp_path):
    """``make("ppfe", "cifar100-s5")``: a configuration, on a machine without data."""
    monkeypatch.setenv("PFL_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def go(algo, setting="cifar100-s5", ablation=None, **changes):
        config = RunConfig(**{**find_setting(setting).values, "algo": algo, **changes})
        return with_hyper(config, {}, ablation)

    return go


def test_ppfe_on_cifar100_exactly(make):
    config = make("ppfe")
    sizes = sizes_of(config, None)
    stages = capacities_of(config)
    assert stages == PPFE_CIFAR100
    bound = bound_of(stages, sizes.train, zeta=0.05)
    assert sum(bound.personal) == 730_312
    assert bound.sum == pytest.approx(4 + 32_482.28 + 730_312, rel=1e-12)
    assert bound.bracket == pytest.approx(math.sqrt(math.log(40_000) / 400) * math.sqrt(762_798.28))
    assert bound.confidence == pytest.approx(math.sqrt(math.log(40) / 80_000))


def test_baselines_on_cifar100_exactly(make):
    def sum_of(algo):
        config = make(algo)
        sizes = sizes_of(config, None)
        return bound_of(capacities_of(config), sizes.train, 0.05).sum

    assert sum_of("fedavg") == pytest.approx(10_750.44 + 1)
    assert sum_of("fedper") == pytest.approx(10_621.44 + 12_900 + 1)
    assert sum_of("local") == pytest.approx(1_075_044 + 1)


@pytest.mark.parametrize("algo", sorted({*ALGORITHMS} - UNTOLD))
def test_methods_have_positive_capacities_in_every_stage(make, algo):
    stages = capacities_of(make(algo, "digits-s2"))
    assert stages
    assert all(shared >= 0 and personal >= 0 and shared + personal > 0 for shared, personal in stages)


@pytest.mark.parametrize("algo", sorted(UNTOLD))
def test_methods_whose_evaluated_models_are_not_told_are_refused(make, algo):
    with pytest.raises(UserError, match="shared and personal layers do not tell"):
        capacities_of(make(algo, "digits-s2"))


def test_capacities_are_of_the_methods_own_network(make):
    """FedBN adds normalisations, which stay with the client: four vectors behind each convolution."""
    ((shared, personal),) = capacities_of(make("fedbn", "cifar10-s5"))
    ((plain, _),) = capacities_of(make("fedavg", "cifar10-s5"))
    assert (shared, personal) == (plain, 4 * (64 + 64))


@pytest.mark.parametrize("ablation", sorted(ALGORITHMS["ppfe"].ablations))
def test_every_ablation_has_its_own_stages(make, ablation):
    config = make("ppfe", "digits-s2", ablation)
    stages = capacities_of(config)
    assert len(stages) == config.hyper["T"]
    assert stages[0][1] == 0  # it begins with FedAvg


def test_harmonic_mean():
    assert harmonic_mean([100, 200, 300]) == pytest.approx(3 / (1 / 100 + 1 / 200 + 1 / 300))
    assert harmonic_mean([150] * 7) == 150  # exactly: equal sizes must not be rounded
    assert harmonic_mean([10, 1000]) < 505  # below the arithmetic mean
    with pytest.raises(UserError, match="client 1 has no training sample"):
        harmonic_mean([5, 0, 5])


def test_the_bound_falls_with_clients_samples_and_zeta_and_rises_with_parameters_and_stages():
    stages = [(1000, 0), (900, 100)]
    base = bound_of(stages, [100] * 10, 0.05)
    assert bound_of(stages, [100] * 20, 0.05).sum < base.sum
    assert bound_of(stages, [200] * 10, 0.05).bracket < base.bracket
    assert bound_of(stages, [100] * 10, 0.5).confidence < base.confidence
    assert bound_of(stages, [100] * 10, 0.5).bracket == base.bracket
    assert bound_of([*stages, (0, 0)], [100] * 10, 0.05).sum == base.sum + 1
    # A parameter costs K times as much when it is personal.
    assert bound_of([(1000, 1), (900, 100)], [100] * 10, 0.05).sum == pytest.approx(base.sum + 1)
    assert bound_of([(1010, 0), (900, 100)], [100] * 10, 0.05).sum == pytest.approx(base.sum + 1)


def test_unequal_sizes_of_one_sum_have_the_larger_bound():
    equal, unequal = bound_of([(10, 1)], [100, 100], 0.05), bound_of([(10, 1)], [10, 190], 0.05)
    assert unequal.samples < equal.samples
    assert unequal.bracket > equal.bracket


def test_sizes_come_from_the_real_split(make):
    config = make("fedavg", "digits-dir0.3")
    sizes = sizes_of(config, None)
    assert len(sizes.train) == config.clients
    assert len(set(sizes.train)) > 1
    assert "split" in sizes.source
    other = sizes_of(dataclasses.replace(config, seed=1), None)
    assert other.train != sizes.train


def test_absent_data_are_said_and_refused_where_sizes_depend_on_them(make):
    sizes = sizes_of(make("fedavg"), None)
    assert sizes.train == (400,) * 100
    assert "from the configuration" in sizes.source
    with pytest.raises(UserError, match="follow from the data"):
        sizes_of(make("fedavg", "cifar10-dir0.3"), None)


def test_corollary_rates():
    rates = corollary(depth=5, stages=4, clients=100, samples=400, alpha=0.25, zeta=0.05)
    assert rates.shared == pytest.approx(math.sqrt(20 / 40_000))
    assert rates.personal == pytest.approx(4**0.75 / 20)
    assert rates.boosting == pytest.approx(0.1)
    # From α = 1/2 on the boosting term decides: T^(1 − min(α, 1/2)).
    half, more = (corollary(5, 4, 100, 400, alpha, 0.05) for alpha in (0.5, 0.9))
    assert half.personal == pytest.approx(half.boosting)
    assert max(more.personal, more.boosting) == more.boosting


def test_the_command_agrees_with_the_function_and_compares_methods(make, capsys):
    make("ppfe")
    assert main(["bound", "--setting", "cifar100-s5", "--zeta", "0.1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [(stage["shared"], stage["personal"]) for stage in found["stages"]] == PPFE_CIFAR100
    assert found["harmonic_mean"] == 400
    assert set(found["methods"]) == {"ppfe", "fedavg", "fedper", "local"}
    assert found["methods"]["ppfe"]["sum"] == pytest.approx(762_798.28)
    assert sum(stage["share_of_sum"] for stage in found["stages"]) == pytest.approx(1)


def test_the_table_says_what_is_hidden(make, capsys):
    make("ppfe")
    assert main(["bound", "--setting", "cifar100-s5"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for words in (
        "1,062,144",
        "667,384",
        "730,312",
        "cifar100 was not found",
        "vacuous",
        "Hidden:",
        "In stage 4",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--zeta", "0"], "--zeta is 0"),
        (["--zeta", "x"], "--zeta is 'x'"),
        (["--alpha", "1"], "--alpha is 1"),
        (["--clients", "1"], "at least 2 clients"),
        (["--algo", "ppfee"], "did you mean 'ppfe'"),
        (["--rounds", "2"], "without a round"),
    ],
)
def test_bad_input_is_one_line(words, message, capsys):
    assert main(["bound", "--setting", "digits-s2", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
