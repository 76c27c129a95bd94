"""Stages that variants have in common are trained once, and nobody's result shows it."""

import shutil

import pytest

from pfl_benchmark.algorithms.ppfe.hyper import STARTS, PPFEHyper

FROM_STAGE_3 = [  # variants that stages 1 and 2 do not tell from the default
    ("no-reduction", {}),
    ("no-progression", {}),
    ("width", {}),
    *((None, {"fc_init": start}) for start in STARTS if start != PPFEHyper().fc_init),
    (None, {"body_rate": (1.0, 1.0, 1.0, 1.0)}),
    (None, {"ensemble": "last"}),
    (None, {"ens_space": "vote"}),
    (None, {"ranks": (6, 6, 6, 3, 3, 3)}),
    (None, {"factor_policy": "skip_last"}),
]
FROM_STAGE_2 = [  # variants that stage 1 does not tell from the default
    ("no-reweighting", {}),
    ("no-progression-no-reweighting", {}),
    ("sparse", {}),
    ("fixed-head-2", {}),
    (None, {"heads": 2}),
    (None, {"body_rate": (1.0, 0.1, 0.1, 0.1)}),
    (None, {"rw_loss": "zero_one"}),
    (None, {"rw_target": "ensemble"}),
    (None, {"rw_sign": -1}),
    (None, {"rw_double": True}),
    (None, {"beta_neg": True}),
    (None, {"samme": True}),
    (None, {"rw_apply": "resample"}),
    (None, {"personal_start": "average"}),
    (None, {"stage_rounds": (2, 1, 3, 2)}),
]


def name(variant):
    ablation, hyper = variant
    return ablation or "-".join(map(str, hyper.items()))


@pytest.fixture
def shared_with_default(staged, ready):
    """The rounds up to which a variant may start from what the default has left."""
    kept = ready(staged()).algorithm.shared_rounds()
    return lambda ablation, hyper: [
        shared.round for shared in ready(staged(hyper, ablation)).algorithm.shared_rounds() if shared in kept
    ]


@pytest.fixture(scope="module")
def left_by_default(staged, launch, tmp_path_factory):
    """A folder with the beginnings that the default has left."""
    root = tmp_path_factory.mktemp("default")
    launch(staged(learning=True, local_epochs=2, rounds=4), root)
    return root / ".cache"


@pytest.mark.parametrize("variant", FROM_STAGE_3, ids=name)
def test_a_variant_goes_on_where_it_differs(
    variant, shared_with_default, staged, launch, left_by_default, trained_rounds, tmp_path
):
    assert shared_with_default(*variant) == [2, 4]
    config = staged(variant[1], variant[0], learning=True, local_epochs=2, rounds=4)
    alone = launch(config, tmp_path / "alone").content()
    shutil.copytree(left_by_default, tmp_path / "after" / ".cache")
    trained_rounds.clear()
    assert launch(config, tmp_path / "after").content() == alone
    assert trained_rounds == [3, 4]


@pytest.mark.parametrize("variant", FROM_STAGE_2, ids=name)
def test_stages_that_differ_are_not_shared(variant, shared_with_default):
    assert shared_with_default(*variant) == [2]


def test_weights_from_an_ensemble_depend_on_its_space(staged, ready):
    logits, probabilities = (
        ready(staged({"rw_target": "ensemble", "ens_space": space})).algorithm.shared_rounds()
        for space in ("logit", "probability")
    )
    assert [shared.round for shared in logits if shared in probabilities] == [2]


def test_the_default_goes_on_after_a_variant(staged, launch, trained_rounds, tmp_path):
    alone = launch(staged(), tmp_path / "alone").content()
    launch(staged(ablation="no-progression"), tmp_path / "after")
    trained_rounds.clear()
    assert launch(staged(), tmp_path / "after").content() == alone
    assert trained_rounds == [5, 6, 7, 8]


def test_without_the_longer_beginning_the_shorter_one_serves(staged, launch, trained_rounds, tmp_path):
    launch(staged(), tmp_path)
    longer = max((tmp_path / ".cache").glob("shared-*.pt"), key=lambda path: path.stat().st_mtime_ns)
    longer.write_bytes(b"no tensors in here")
    trained_rounds.clear()
    launch(staged(ablation="no-reduction"), tmp_path)
    assert trained_rounds == [3, 4, 5, 6, 7, 8]
