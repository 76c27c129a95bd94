"""Reductions: factors, masks and narrower layers, as tensors."""

import dataclasses
import math

import pytest
import torch

from pfl_benchmark.algorithms.ppfe import PPFE
from pfl_benchmark.algorithms.ppfe.hyper import PPFEHyper
from pfl_benchmark.algorithms.ppfe.reduction import REDUCTIONS, Step, factor
from pfl_benchmark.engine.streams import Streams
from pfl_benchmark.models import NETWORKS, LowRank, cnn

PERSONAL = {1: (), 2: ("fc3",), 3: ("fc2", "fc3"), 4: ("fc1", "fc2", "fc3")}
SMALL = cnn((1, 8, 8), 6, (4, 4), (12, 8), kernel=3, padding=1)  # fc1 16→12, fc2 12→8, fc3 8→6


def reduction(network, **hyper):
    hyper = PPFEHyper(**hyper)
    return REDUCTIONS[hyper.reduction](network, hyper, Streams(0))


def models(network, count=3):
    """Stacked models of `count` clients with different values."""
    generator = torch.Generator().manual_seed(0)
    return {
        key: torch.randn((count, *shape), generator=generator) / 3 for key, shape in network.shapes().items()
    }


def run(network, params, client, x):
    return network.apply({name: tensor[client] for name, tensor in params.items()}, x)


@pytest.fixture(scope="module")
def images():
    return torch.rand(7, 1, 8, 8, generator=torch.Generator().manual_seed(1))


# factor()

MATRICES = [(10, 10), (12, 5), (5, 12), (64, 10), (120, 64)]


@pytest.fixture(params=MATRICES, ids=str)
def matrices(request):
    """Three matrices with entries as large as those of a layer of that size."""
    values = torch.randn(3, *request.param, generator=torch.Generator().manual_seed(2))
    return values / request.param[1] ** 0.5


def test_full_rank_is_the_same_layer(matrices):
    rank = min(matrices.shape[1:])
    first, second = factor(matrices, rank)
    assert first.shape == (3, rank, matrices.shape[2])
    assert second.shape == (3, matrices.shape[1], rank)
    assert first.dtype == second.dtype == torch.float32
    x = torch.randn(3, matrices.shape[2], 4, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(second @ (first @ x), matrices @ x, rtol=0, atol=1e-5)


@pytest.mark.parametrize("rank", [1, 3, 5])
def test_the_error_is_what_was_dropped(matrices, rank):
    first, second = factor(matrices.double(), rank)
    error = torch.linalg.matrix_norm(second @ first - matrices.double())
    dropped = torch.linalg.svdvals(matrices.double())[:, rank:]
    torch.testing.assert_close(error, dropped.square().sum(1).sqrt(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("rank", [1, 3, 5])
def test_truncation_is_idempotent(matrices, rank):
    first, second = factor(matrices, rank)
    again = factor(second @ first, rank)
    torch.testing.assert_close(again[0], first, rtol=0, atol=1e-4)
    torch.testing.assert_close(again[1], second, rtol=0, atol=1e-4)


def test_lower_rank_is_the_beginning_of_higher_rank(matrices):
    (a, b), (c, d) = factor(matrices, 2), factor(matrices, 4)
    assert torch.equal(a, c[:, :2])
    assert torch.equal(b, d[:, :, :2])


def test_signs_and_scales_are_fixed(matrices):
    first, second = factor(matrices.double(), 4)
    largest = second.abs().argmax(dim=1, keepdim=True)
    assert bool((second.gather(1, largest) > 0).all())
    values = torch.linalg.svdvals(matrices.double())[:, :4]
    torch.testing.assert_close(first.norm(dim=2), values.sqrt())
    torch.testing.assert_close(second.norm(dim=1), values.sqrt())
    flipped = factor(-matrices.double(), 4)
    torch.testing.assert_close(flipped[1], second), torch.testing.assert_close(flipped[0], -first)


def test_ranks_above_the_possible_are_padded_with_zeros(matrices):
    full = min(matrices.shape[1:])
    first, second = factor(matrices, full + 3)
    assert not first[:, full:].any()
    assert not second[:, :, full:].any()
    assert torch.equal(first[:, :full], factor(matrices, full)[0])


def test_views_of_one_matrix_are_factored_like_copies(matrices):
    views = matrices[:1].expand(3, -1, -1)
    for a, b in zip(factor(views, 3), factor(views.clone(), 3), strict=True):
        assert torch.equal(a, b)


# Sizes


@pytest.mark.parametrize(
    ("name", "totals", "shared"),
    [
        ("cifar10", (307_842, 307_842, 289_462, 253_222), (307_842, 307_192, 279_448, 107_328)),
        ("cifar100", (1_075_044, 1_075_044, 951_276, 877_176), (1_075_044, 1_062_144, 901_248, 209_792)),
        ("emnist", (245_274, 245_274, 231_306, 205_626), (245_274, 243_584, 219_456, 104_128)),
    ],
)
def test_parameter_counts_of_the_papers_nets(name, totals, shared):
    made = reduction(NETWORKS[name])
    for stage, (total, sent) in enumerate(zip(totals, shared, strict=True), start=1):
        network = made.network(stage, PERSONAL[stage])
        assert network.count() == total
        assert network.count() - network.count(PERSONAL[stage]) == sent


@pytest.mark.parametrize(
    ("policy", "fewer"),
    [
        ("clamp", (5.97, 17.74)),
        ("literal", (5.63, 17.60)),
        ("skip_last", (6.00, 17.78)),
        ("skip_if_not_smaller", (6.497, 17.78)),
    ],
)
def test_every_factor_policy_saves_what_the_specification_says(policy, fewer):
    made, whole = reduction(NETWORKS["cifar10"], factor_policy=policy), 307_842
    for stage, percent in zip((3, 4), fewer, strict=True):
        saved = 100 * (1 - made.network(stage, PERSONAL[stage]).count() / whole)
        assert saved == pytest.approx(percent, abs=0.005)


def test_other_ranks_of_the_specification():
    made = reduction(NETWORKS["cifar100"], ranks=(200, 100, 50, 160, 80, 40))
    assert 100 * (1 - made.network(4, PERSONAL[4]).count() / 1_075_044) == pytest.approx(25.30, abs=0.005)


@pytest.mark.parametrize("name", ["digits", "fmnist"])
def test_ranks_that_nobody_states_shrink_the_net_as_the_paper_does(name):
    made, whole = reduction(NETWORKS[name]), NETWORKS[name].count()
    for stage, least in ((3, 0.06), (4, 0.18)):
        network = made.network(stage, PERSONAL[stage])
        assert all(isinstance(network.layer(layer), LowRank) for layer in ("fc1", "fc2", "fc3"))
        assert least <= 1 - network.count() / whole < least + 0.02
    ranks = [[made.network(s, ()).layer(n).rank for n in ("fc1", "fc2", "fc3")] for s in (3, 4)]
    assert all(a > b for a, b in zip(*ranks, strict=True))


def test_stages_beyond_the_stated_ranks_get_a_net_too():
    made = reduction(NETWORKS["cifar10"], T=6, heads=1)
    counts = [made.network(stage, ("fc3",)).count() for stage in range(2, 7)]
    assert counts == sorted(counts, reverse=True)
    assert len(set(counts)) == 5


@pytest.mark.parametrize("policy", ["clamp", "literal", "skip_last", "skip_if_not_smaller"])
@pytest.mark.parametrize("ranks", [(), (9, 6, 4, 7, 5, 2), (2, 2, 2, 12, 8, 6)])
def test_values_have_the_shapes_of_the_net(policy, ranks):
    made = reduction(SMALL, factor_policy=policy, ranks=ranks)
    values, network = models(SMALL), SMALL
    for stage in (3, 4):
        target = made.network(stage, PERSONAL[stage])
        values = made.convert(values, Step(network, target, PERSONAL[stage]), target.names)
        assert {key: tuple(v.shape[1:]) for key, v in values.items()} == target.shapes()
        network = target


# Masks


def test_masks_have_the_stated_zeros_and_are_nested():
    network = NETWORKS["cifar10"]
    made = reduction(network, reduction="sparse")
    assert made.masks(network, ()) in (None, {})
    found = {stage: made.masks(network, PERSONAL[stage]) for stage in (2, 3, 4)}
    rates = {"fc3": 0.3, "fc2": 0.4, "fc1": 0.5}
    for stage, masks in found.items():
        assert set(masks) == {f"{name}.weight" for name in PERSONAL[stage]}
        for key, mask in masks.items():
            assert set(mask.unique().tolist()) == {0.0, 1.0}
            assert int((mask == 0).sum()) == math.floor(rates[key[:3]] * mask.numel())
            assert torch.equal(mask, found[4][key])


def test_masks_follow_the_seed_only():
    network = NETWORKS["digits"]
    masks = [
        REDUCTIONS["sparse"](network, PPFEHyper(reduction="sparse"), Streams(seed)).masks(
            network, PERSONAL[4]
        )
        for seed in (0, 0, 1)
    ]
    for key in masks[0]:
        assert torch.equal(masks[0][key], masks[1][key])
        assert not torch.equal(masks[0][key], masks[2][key])


@pytest.mark.parametrize("rate", [0.0, 0.07, 0.29, 0.35, 0.999])
def test_number_of_masked_entries_is_exact(rate):
    made = reduction(cnn((1, 8, 8), 10, (4, 4), (10, 10), 3, 1), reduction="sparse", mask_rates=(rate,))
    mask = made.masks(made.dense, ("fc3",))["fc3.weight"]
    assert int((mask == 0).sum()) == math.floor(round(rate * 1000) * mask.numel() / 1000)


def test_conversion_zeroes_the_masked_entries_and_keeps_the_others():
    made, values = reduction(SMALL, reduction="sparse"), models(SMALL)
    masks = made.masks(SMALL, PERSONAL[3])
    after = made.convert(values, Step(SMALL, SMALL, PERSONAL[3]), SMALL.names)
    for key, before in values.items():
        kept = masks[key].bool().expand_as(before) if key in masks else torch.ones_like(before, dtype=bool)
        assert torch.equal(after[key][kept], before[kept])
        assert not after[key][~kept].any()


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_masked_entries_stay_zero_in_training(weight_decay, staged, play):
    config = staged({}, "sparse", momentum=0.9, weight_decay=weight_decay, rounds=4)
    played = play(config)
    hyper = PPFEHyper(reduction="sparse")
    masks = REDUCTIONS["sparse"](NETWORKS["digits"], hyper, Streams(0)).masks(NETWORKS["digits"], PERSONAL[4])
    members = played.algorithm.members(range(6))
    for stage in (2, 3, 4):
        params = members[stage - 1].params
        for name in ("fc1", "fc2", "fc3"):
            weight, zero = params[f"{name}.weight"], masks[f"{name}.weight"] == 0
            assert bool((weight[:, ~zero] != 0).all())
            assert bool((weight[:, zero] == 0).all()) == (name in PERSONAL[stage])
            assert bool((params[f"{name}.bias"] != 0).all())


# Width


@pytest.mark.parametrize("alpha", [0.0, 0.25, 0.5, 1.0])
def test_widths_follow_the_power_law(alpha):
    made = reduction(NETWORKS["cifar10"], reduction="width", width_alpha=alpha)

    def widths(stage):
        network = made.network(stage, PERSONAL[stage])
        return [(network.layer(n).inputs, network.layer(n).outputs) for n in ("fc1", "fc2", "fc3")]

    def kept(width, stage):
        return round(width * stage**-alpha)

    assert widths(2) == [(1600, 120), (120, 64), (64, 10)]
    assert widths(3) == [(1600, 120), (120, kept(64, 3)), (kept(64, 3), 10)]
    assert widths(4) == [(1600, kept(120, 4)), (kept(120, 4), kept(64, 4)), (kept(64, 4), 10)]


def test_narrowing_equals_slicing_by_hand(images):
    made, before = reduction(SMALL, reduction="width", width_alpha=0.5), models(SMALL)
    target = made.network(4, PERSONAL[4])
    assert [target.layer(n).outputs for n in ("fc1", "fc2")] == [6, 4]
    after = made.convert(before, Step(SMALL, target, PERSONAL[4]), target.names)
    for k in range(3):
        w = {name: tensor[k] for name, tensor in before.items()}
        one = sorted(w["fc1.weight"].norm(dim=1).argsort(descending=True)[:6].tolist())
        incoming = w["fc2.weight"][:, one]
        two = sorted(incoming.norm(dim=1).argsort(descending=True)[:4].tolist())
        expected = {
            **{name: w[name] for name in ("conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias")},
            "fc1.weight": w["fc1.weight"][one],
            "fc1.bias": w["fc1.bias"][one],
            "fc2.weight": incoming[two],
            "fc2.bias": w["fc2.bias"][two],
            "fc3.weight": w["fc3.weight"][:, two],
            "fc3.bias": w["fc3.bias"],
        }
        assert set(after) == set(expected)
        for name, tensor in expected.items():
            assert torch.equal(after[name][k], tensor), name
        assert run(target, after, k, images).shape == (7, 6)


def test_narrowing_keeps_the_strongest_units_of_every_client(images):
    made, before = reduction(SMALL, reduction="width", width_alpha=0.5), models(SMALL)
    strong = [[0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9, 11], [0, 1, 2, 3, 4, 5]]
    for k, units in enumerate(strong):
        weak = [unit for unit in range(12) if unit not in units]
        before["fc1.weight"][k, weak] *= 1e-9
        before["fc1.bias"][k, weak] = 0
    target = made.network(4, PERSONAL[4])
    after = made.convert(before, Step(SMALL, target, PERSONAL[4]), target.names)
    for k, units in enumerate(strong):
        assert torch.equal(after["fc1.weight"][k], before["fc1.weight"][k, units])


def test_dropping_dead_units_changes_no_prediction(images):
    made, before = reduction(SMALL, reduction="width", width_alpha=0.5), models(SMALL)
    for name, dead in (("fc1", [1, 2, 3, 7, 8, 9]), ("fc2", [0, 3, 5, 6])):
        before[f"{name}.weight"][:, dead] = 0
        before[f"{name}.bias"][:, dead] = 0
    target = made.network(4, PERSONAL[4])
    after = made.convert(before, Step(SMALL, target, PERSONAL[4]), target.names)
    for k in range(3):
        torch.testing.assert_close(run(target, after, k, images), run(SMALL, before, k, images))


def test_stage_by_stage_narrowing_of_parts_has_the_shapes_of_the_net():
    """The server converts its part, every client its own, as between stages 3 and 4."""
    made = reduction(SMALL, reduction="width", width_alpha=0.3)
    third, fourth = made.network(3, PERSONAL[3]), made.network(4, PERSONAL[4])
    whole = models(third)
    shared = {k: v[:1] for k, v in whole.items() if k.split(".")[0] not in PERSONAL[3]}
    server = made.convert(shared, Step(third, fourth, PERSONAL[4]), ["conv1", "conv2"])
    own = made.convert(whole, Step(third, fourth, PERSONAL[4]), PERSONAL[4])
    assert {k: tuple(v.shape[1:]) for k, v in {**server, **own}.items()} == fourth.shapes()


def test_reductions_are_what_the_hyper_parameter_offers():
    (spec,) = [spec for spec in dataclasses.fields(PPFE.Hyper) if spec.name == "reduction"]
    assert set(spec.metadata["choices"]) == set(REDUCTIONS)


EVEN = cnn((1, 8, 8), 10, (4, 4), (16, 16), 3, 1)  # fc1 and fc2 are 16→16


def test_layers_of_one_shape_have_masks_of_their_own():
    masks = reduction(EVEN, reduction="sparse", mask_rates=(0.3, 0.3, 0.3)).masks(EVEN, PERSONAL[4])
    assert not torch.equal(masks["fc1.weight"], masks["fc2.weight"])


def test_factors_of_the_same_size_are_not_smaller():
    policy = {"factor_policy": "skip_if_not_smaller", "T": 3}
    networks = [reduction(EVEN, ranks=(rank, rank, 1), **policy).network(3, PERSONAL[3]) for rank in (7, 8)]
    assert [isinstance(network.layer("fc1"), LowRank) for network in networks] == [True, False]
