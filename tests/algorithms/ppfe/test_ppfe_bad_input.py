"""Input that makes no sense is refused in one line, before anything is run."""

import json

import pytest
import torch

from pfl_benchmark.engine.rounds import Diverged
from pfl_benchmark.errors import UserError
from pfl_benchmark.resolve.run import resolve, with_hyper


@pytest.mark.parametrize(
    ("hyper", "message"),
    [
        ({"T": "5"}, "T=5: .* 3 fully connected layers .* at most 4"),
        ({"T": "0"}, "T=0: expected at least 1"),
        ({"T": "four"}, "T=four .* a whole number"),
        ({"heads": "4"}, "heads=4: .* 3 fully connected layers"),
        ({"heads": "-1"}, "heads=-1: expected at least 0"),
        ({"heads": "1", "T": "5"}, "stage_rounds has 4 entries for T=5 stages; give 5"),
        ({"heads": "1", "T": "5", "stage_rounds": "1,1,1,1,1"}, "body_rate has 4 entries for T=5 stages"),
        ({"stage_rounds": "30,50"}, "stage_rounds has 2 entries for T=4 stages; give 4"),
        ({"stage_rounds": "30,0,40,40"}, "stage_rounds=30,0,40,40: every stage needs at least 1 round"),
        ({"stage_rounds": "1,1,1,1000"}, "8 rounds leave stage 1 of 4 without a round"),
        ({"body_rate": "1"}, "body_rate has 1 entries for T=4"),
        ({"body_rate": "1,1,-1,1"}, "body_rate=.*: expected at least 0"),
        ({"ranks": "100,50,24"}, "ranks has 3 number.* expected 6: .* 3 fully connected layers .* 2 reduced"),
        ({"ranks": "1,2,3", "T": "2"}, "ranks has 3 number.* expected 0"),
        ({"ranks": "1,2,3,4,5,0"}, "ranks=1,2,3,4,5,0: expected at least 1"),
        ({"reduction": "sparse", "mask_rates": "0.3,0.4,1"}, "mask_rates=.*: expected less than 1"),
        ({"reduction": "sparse", "mask_rates": "-0.1,0.4,0.5"}, "mask_rates=.*: expected at least 0"),
        ({"reduction": "sparse", "mask_rates": "nan,0.4,0.5"}, "mask_rates=nan.*: expected"),
        ({"reduction": "sparse", "mask_rates": "0.3"}, "mask_rates has 1 rate.* 3 layers become personal"),
        ({"reduction": "svdd"}, "reduction=svdd: expected one of: .*did you mean 'svd'"),
        ({"width_alpha": "-1"}, "width_alpha=-1.0: expected at least 0"),
        ({"rw_loss": "mse"}, "rw_loss=mse: expected one of"),
        ({"rw_sign": "0"}, "rw_sign=0: expected 1 .* or -1"),
        ({"rw_sign": "3"}, "rw_sign=3: expected 1 .* or -1"),
        ({"reweight": "perhaps"}, "reweight=perhaps .* true or false"),
        ({"fc_init": "fedavgheads"}, "fc_init=fedavgheads: expected one of: .*did you mean 'fedavg_heads'"),
        (
            {"fc_init": "fedavg", "reduction": "none"},
            "fc_init=fedavg: reduction=none leaves the shapes .*svd",
        ),
        ({"fc_init": "fedavg_heads", "reduction": "sparse"}, "fc_init=fedavg_heads: reduction=sparse leaves"),
        (
            {"rw_apply": "resample", "reweight": "no"},
            "rw_apply=resample: reweight=false has no sample weights",
        ),
        ({"rw_apply": "resample", "T": "1"}, "rw_apply=resample: T=1 has no sample weights"),
        ({"ens_space": "vote", "ensemble": "last"}, "ens_space=vote: ensemble=last leaves nothing to sum"),
        ({"fc_init": "fedavg_all", "T": "2"}, "fc_init=fedavg_all: T=2 has no reduced stage"),
        ({"personal_start": "average", "full_last_only": "yes"}, "average: full_last_only=true ends stages"),
        ({"personal_start": "average", "T": "1"}, "personal_start=average: T=1 leaves no personal layers"),
        ({"rw_apply": "weights"}, "rw_apply=weights: expected one of: loss, resample"),
        ({"personal_start": "mean"}, "personal_start=mean: expected one of: initial, average"),
        ({"ens_space": "votes"}, "ens_space=votes: expected one of: .*did you mean 'vote'"),
        ({"stage_round": "1,1,1,1"}, "unknown hyper-parameter 'stage_round' of 'ppfe'.*'stage_rounds'"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_hyper_parameters_that_make_no_sense(hyper, message, staged):
    with pytest.raises(UserError, match=message) as caught:
        resolve(staged(hyper))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "hyper",
    [
        {"T": "5", "heads": "1", "stage_rounds": "1,1,1,1,1", "body_rate": "1,1,1,1,1"},
        {"T": "5", "heads": "2", "stage_rounds": "1,1,1,1,1", "body_rate": "1,1,1,1,1", "reduction": "width"},
        {"T": "3", "ranks": "9,8,7"},
        {"reduction": "sparse", "heads": "1", "mask_rates": "0.3"},
        {"factor_policy": "skip_if_not_smaller", "ranks": "20,10,5,64,32,10"},
    ],
    ids=str,
)
def test_unusual_hyper_parameters_that_do_make_sense(hyper, staged, play):
    config = staged(hyper)
    resolve(config)
    assert 0 <= play(config).summary["accuracy"] <= 1


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_too_few_rounds_for_the_stages(rounds, staged):
    with pytest.raises(
        UserError, match=f"{rounds} rounds leave stage . of 4 without a round; give more --rounds"
    ):
        resolve(staged(rounds=rounds))


@pytest.mark.parametrize(
    ("algo", "ablation", "message"),
    [
        ("fedavg", "no-reduction", "'no-reduction' belongs to ppfe, not to 'fedavg'; use --algo ppfe"),
        ("ditto", "sparse", "'sparse' belongs to ppfe, not to 'ditto'"),
        ("ppfe", "no-reducton", "unknown ablation 'no-reducton' of 'ppfe'.*'no-reduction'"),
    ],
)
def test_ablations_that_do_not_exist(algo, ablation, message, tiny):
    with pytest.raises(UserError, match=message) as caught:
        with_hyper(tiny(algo), {}, ablation)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("stage", [2, 3, 4])
def test_a_stage_that_diverges(stage, staged, launch, tmp_path):
    rates = ["1"] * 4
    rates[stage - 1] = "1e30"
    config = staged({"body_rate": ",".join(rates)})
    with pytest.raises(Diverged) as caught:
        launch(config, tmp_path)
    first = 2 * stage - 1
    message = str(caught.value)
    assert "\n" not in message
    assert f"in round {first} (stage {stage})" in message
    assert "the loss of client " in message
    assert "; it began with parameters up to " in message
    assert " and sample weights up to 1" in message
    assert "; try a smaller --lr or --set reweight=false or --set rw_batch=weighted_mean. " in message
    (folder,) = tmp_path.glob("ppfe-*")
    assert json.loads((folder / "failed.json").read_text())["reason"] == message
    assert len((folder / "rounds.jsonl").read_text().splitlines()) == first - 1
    # The checkpoint before it is whole: the run goes on from it (and fails there again).
    state = torch.load(folder / "checkpoint.pt", weights_only=True)
    assert [line["round"] for line in state["lines"]] == list(range(1, first))
    assert len(state["algorithm"]["finished"]) == stage - 1
    with pytest.raises(Diverged) as again:
        launch(config, tmp_path)
    assert str(again.value) == message
