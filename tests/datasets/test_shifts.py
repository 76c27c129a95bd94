"""Shifts: what every one of the registry promises, what each does, and what is refused."""

import dataclasses
import json
import re
from collections import Counter

import numpy as np
import pytest
from matplotlib.colors import hsv_to_rgb, rgb_to_hsv

import pfl_benchmark.datasets.shifts.base as base
from pfl_benchmark.cli import main
from pfl_benchmark.config.fields import as_words
from pfl_benchmark.config.flags import config_from, config_of
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.datasets.api import SHIFTS, load
from pfl_benchmark.datasets.shifts.base import read_shifts
from pfl_benchmark.datasets.shifts.corruption import STRENGTHS, corrupt, kinds_of
from pfl_benchmark.datasets.shifts.samples import HALVES
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.prepare import shifted, split_of
from pfl_benchmark.resolve.run import resolve
from tests.cli.test_flags import parse

EVERY = [shift.usage() for shift in SHIFTS.values()]


@pytest.fixture(scope="module")
def digits():
    return load("digits")


def config_under(shift, **changes):
    known = {"clients": 12, "samples_per_client": 30, "test_samples_per_client": 60, "rounds": 30}
    return config_from({"dataset": "digits", "shift": shift, **known, **changes})[1]


def under(digits, shift, **changes):
    """Data and split under a shift, and without it."""
    config = config_under(shift, **changes)
    split = split_of(config, digits)
    return shifted(config, digits, split), split


def pairs(data, split, half):
    samples = getattr(data, half)
    return [(samples.x[rows], samples.y[rows]) for rows in getattr(split, half)]


@pytest.mark.parametrize("text", EVERY)
def test_promises_of_every_shift(digits, text):
    before = digits.checksum
    made, plain = under(digits, text)
    again, _ = under(digits, text)
    other, _ = under(digits, text, seed=1)
    assert made.split.checksum == again.split.checksum not in (plain.checksum, other.split.checksum)
    assert made.dataset.checksum == again.dataset.checksum
    assert digits.checksum == before
    assert json.loads(json.dumps(made.facts)).keys() <= {config_under(text).shift}
    assert made.split.clients == plain.clients
    assert (made.split.test_sizes == plain.test_sizes).all()
    resizes = SHIFTS[text.partition(":")[0] if "drift" not in text else "drift="].resizes
    assert resizes != (made.split.train_sizes == plain.train_sizes).all()
    assert min(made.split.train_sizes) >= 1


@pytest.mark.parametrize("text", EVERY)
def test_texts_flags_and_identities(text):
    config = config_under(text)
    assert config.shifts[0].describe()
    assert config.hash != config_under("none").hash
    assert config_under(config.shift) == config
    assert RunConfig.from_dict(json.loads(json.dumps(config.to_dict()))).identity == config.identity
    words = as_words("shift", config.shift)
    assert config_of(parse(" ".join(["--dataset digits --rounds 30", *words])))[1].shift == config.shift
    assert "shift" not in config_under("none").to_dict()


def test_order_spelling_and_separators_make_no_other_run():
    texts = ("feature=corruption+labels=noise:.20", "labels=noise:0.2+feature=corruption:3")
    flags = "--dataset digits --shift feature=corruption:3 --shift labels=noise:0.2"
    found = {config_under(text).shift for text in texts} | {config_of(parse(flags))[1].shift}
    assert found == {"labels=noise:0.2+feature=corruption:3"}


@pytest.mark.parametrize(
    ("text", "new"),
    # others are not given what new clients train on, so that they draw from fewer samples of other classes
    [
        (text, new)
        for text in EVERY
        for new in (0.0, 0.25)
        if "drift" not in text and not (new and "other" in text)
    ],
)
def test_a_client_is_changed_alike_whether_it_trains_or_not(digits, text, new):
    """New clients come last in a split, and draw as if they were in their old places."""
    from pfl_benchmark.engine.streams import Streams
    from pfl_benchmark.experiment.prepare import _divided, new_clients

    plain, _ = under(digits, text)
    config = config_under(text, new_clients=new)
    made = shifted(config, *_divided(config, digits))
    drawn = new_clients(config, Streams(config.seed))
    order = [*(client for client in range(12) if client not in drawn), *drawn]
    ours, theirs = (pairs(one.dataset, one.split, "train") for one in (made, plain))
    for client, number in enumerate(order):
        assert all((a == b).all() for a, b in zip(ours[client], theirs[number], strict=True))


@pytest.mark.parametrize(
    ("channels", "kind"), [(count, kind) for count in (1, 3) for kind in kinds_of(count)]
)
def test_corruptions_grow_with_their_strength(kind, channels):
    x = load("digits").train.x[:8]
    x = np.concatenate([x, x[::-1], x // 2], 1) if channels == 3 else x
    made = [corrupt(x, kind, strength, np.random.default_rng(0)) for strength in range(1, 6)]
    assert all(one.dtype == np.uint8 and one.shape == x.shape for one in made)
    far = [np.abs(one.astype(float) - x).mean() for one in made]
    assert min(far) > 0
    assert kind == "saturate" or far == sorted(far)
    assert kind == "jpeg_compression" or far[-1] > 5


def grey(*rows):
    """One image of one channel, its values from 0 to 255."""
    return np.array(rows, np.uint8)[None, None]


def test_contrast_is_of_each_image_and_colour():
    x = np.concatenate([grey([0, 100], [100, 200]), grey([0, 20], [20, 40])])
    made = corrupt(x, "contrast", 2, np.random.default_rng(0))
    assert made.tolist() == [grey([50, 100], [100, 150])[0].tolist(), grey([10, 20], [20, 30])[0].tolist()]


@pytest.mark.parametrize("strength", range(1, 6))
def test_noise_is_normal_with_the_deviation_of_its_strength(strength):
    x = np.full((50, 1, 32, 32), 128, np.uint8)
    noise = corrupt(x, "gaussian_noise", strength, np.random.default_rng(0)) / 255.0 - 128 / 255
    amount = STRENGTHS["gaussian_noise"][strength - 1]
    assert noise.std() == pytest.approx(amount, rel=0.02)
    assert (np.abs(noise) > 2 * amount).mean() == pytest.approx(0.0455, abs=0.008)


@pytest.mark.parametrize("strength", range(1, 6))
def test_a_blurred_point_is_a_bell_of_that_width(strength):
    x = np.zeros((1, 1, 15, 15), np.uint8)
    x[0, 0, 7, 7] = 255
    made = corrupt(x, "gaussian_blur", strength, np.random.default_rng(0))[0, 0]
    squares = (np.arange(15) - 7) ** 2
    bell = np.exp(-squares / 2 / STRENGTHS["gaussian_blur"][strength - 1] ** 2)
    expected = 255 * np.outer(bell, bell) / bell.sum() ** 2
    assert np.abs(made - expected).max() < 1


def test_the_strongest_rotation_is_a_right_angle():
    x = load("digits").train.x[:5]
    made = corrupt(x, "rotation", 5, np.random.default_rng(0))
    assert (made == np.rot90(x, axes=(2, 3))).all()


@pytest.mark.parametrize("strength", range(1, 6))
@pytest.mark.parametrize("kind", ["brightness", "saturate"])
def test_colours_change_as_in_hsv_of_matplotlib(kind, strength):
    x = np.random.default_rng(strength).integers(0, 256, (50, 3, 8, 8)).astype(np.uint8)
    x[:3] = np.array([0, 77, 255])[:, None, None, None]  # grey
    x[3, 0] = 0
    amount = STRENGTHS[kind][strength - 1]
    factor, more = (1, amount) if kind == "brightness" else amount
    colours = rgb_to_hsv(x.transpose(0, 2, 3, 1) / 255)
    place = 2 if kind == "brightness" else 1
    colours[..., place] = np.clip(colours[..., place] * factor + more, 0, 1)
    expected = 255 * hsv_to_rgb(colours).transpose(0, 3, 1, 2)
    made = corrupt(x, kind, strength, np.random.default_rng(0))
    assert np.abs(made - expected).max() < 0.5 + 1e-9


def test_a_corruption_is_the_clients_own_also_of_images_that_clients_share(digits):
    made, plain = under(digits, "feature=corruption:5")
    kinds = made.facts["feature=corruption:5"]["corruptions"]
    assert len({*kinds}) > 2
    shared = np.concatenate(plain.test)
    assert len(np.unique(shared)) < len(shared)
    for half in HALVES:
        for (x, y), (old, right) in zip(
            pairs(made.dataset, made.split, half), pairs(digits, plain, half), strict=True
        ):
            assert (x != old).any()
            assert (y == right).all()


@pytest.mark.parametrize("name", ["permute", "merge"])
def test_groups_rename_labels_alike_in_training_and_testing(digits, name):
    made, plain = under(digits, f"concept={name}:4")
    facts = made.facts[f"concept={name}:4"]
    assert np.bincount(facts["groups"]).tolist() == [3] * 4
    assert len({tuple(names) for names in facts["labels"]}) == 4
    for half in HALVES:
        ours, theirs = pairs(made.dataset, made.split, half), pairs(digits, plain, half)
        for group, (x, y), (old, right) in zip(facts["groups"], ours, theirs, strict=True):
            assert (x == old).all()
            assert (y == np.array(facts["labels"][group])[right]).all()
    assert {len({*names}) for names in facts["labels"]} == {10 if name == "permute" else 5}


@pytest.mark.parametrize(("text", "share"), [("labels=noise:0.3", 0.3), ("labels=pairwise:1", 1.0)])
def test_noise_is_in_training_data_alone(digits, text, share):
    made, plain = under(digits, text)
    assert made.dataset.test is digits.test
    for (x, y), (old, right) in zip(
        pairs(made.dataset, made.split, "train"), pairs(digits, plain, "train"), strict=True
    ):
        assert (x == old).all()
        assert (y != right).sum() == round(share * len(y))
        assert "pairwise" not in text or (y == (right + 1) % 10).all()


def test_a_wrong_label_is_any_other_class(digits):
    made, plain = under(digits, "labels=noise:1")
    ours, right = (pairs(*one, "train") for one in ((made.dataset, made.split), (digits, plain)))
    steps = np.concatenate([(y - old) % 10 for (_, y), (_, old) in zip(ours, right, strict=True)])
    assert {*steps.tolist()} == {*range(1, 10)}
    assert max(np.bincount(steps)) < 0.25 * len(steps)


@pytest.mark.parametrize("text", ["quantity=lognormal:1.5", "quantity=power:1"])
def test_sizes_are_parts_of_what_clients_had(digits, text):
    made, plain = under(digits, text)
    assert made.dataset is digits
    assert max(made.split.train_sizes) == 30 > np.median(made.split.train_sizes)
    assert all({*rows} <= {*old} for rows, old in zip(made.split.train, plain.train, strict=True))
    if "power" in text:
        assert sorted(made.split.train_sizes)[::-1] == [max(1, round(30 / k)) for k in range(1, 13)]


@pytest.mark.parametrize("sigma", [0.5, 2.0])
def test_the_logarithms_of_shares_have_the_deviation_sigma(sigma):
    (shift,) = read_shifts(f"quantity=lognormal:{sigma}")
    shares = shift.shares(range(2000), lambda _, client: np.random.default_rng([3, client]))
    assert max(shares) == 1
    assert np.log(shares).std() == pytest.approx(sigma, rel=0.1)


@pytest.mark.parametrize("inner", ["feature=corruption:5", "concept=permute:2", "classes=other"])
def test_drift_is_another_version_of_some_clients(digits, inner):
    made, plain = under(digits, f"drift=7:0.25:{inner}")
    facts = made.facts[f"drift=7:0.25:{inner}"]
    assert made.split.turn == 7
    assert [*made.split.later] == facts["drifting"]
    assert len(facts["drifting"]) == 3
    for half in HALVES:
        for (x, y), (old, right) in zip(
            pairs(made.dataset, made.split, half), pairs(digits, plain, half), strict=True
        ):
            assert (x == old).all()
            assert (y == right).all()
    for place, (client, rows) in enumerate(made.split.later.items()):
        assert [len(own) for own in rows] == [30, 60]
        if inner == "classes=other":
            had = {*digits.train.y[plain.train[client]]}
            assert not had & {*made.dataset.train.y[rows[0]]}
            assert {*made.dataset.test.y[rows[1]]} <= {*made.dataset.train.y[rows[0]]}
            continue
        for half, own in zip(HALVES, rows, strict=True):
            samples, (old, right) = getattr(made.dataset, half), pairs(digits, plain, half)[client]
            same = (samples.x[own] == old).all((1, 2, 3))
            if inner == "feature=corruption:5":
                assert not same.all()
                assert (samples.y[own] == right).all()
            else:
                assert same.all()
                assert (samples.y[own] == np.array(facts["labels"][facts["groups"][place]])[right]).all()


@pytest.mark.parametrize("inner", ["labels=noise:0.5", "feature=corruption", "concept=permute:2"])
def test_what_is_on_record_of_a_drift_is_of_those_who_drift(digits, inner):
    made, _ = under(digits, f"drift=7:0.25:{inner}")
    (facts,) = made.facts.values()
    (own,) = (value for name, value in facts.items() if name in ("wrong_labels", "corruptions", "groups"))
    assert len(own) == len(facts["drifting"]) == 3


@pytest.mark.parametrize(
    "changes", [{"validation": 0.3}, {"partition": "pooled", "test_share": 0.25, "new_clients": 0.25}]
)
def test_other_classes_keep_training_and_test_samples_apart(digits, changes):
    from pfl_benchmark.experiment.prepare import _divided

    known = {"clients": 6, "samples_per_client": 20, "test_samples_per_client": 10, "dirichlet": 0.1}
    if "partition" in changes:
        known = {"clients": 6, "dirichlet": 0.1}
    _, config = config_from(
        {"dataset": "digits", "shift": "drift=3:1:classes=other", "rounds": 5, **known, **changes}
    )
    arranged = config.partitioner.arranged(digits)
    made = shifted(config, *_divided(config, arranged))
    images = {
        half: {
            getattr(made.dataset, half).x[row].tobytes()
            for client, rows in enumerate(getattr(made.split, half))
            for row in (*rows, *made.split.later[client][HALVES.index(half)])
        }
        for half in HALVES
    }
    plain = {image for image, count in Counter(x.tobytes() for x in arranged.train.x).items() if count == 1}
    assert len(images["test"] & plain) > 20
    assert not images["train"] & images["test"] & plain


@pytest.mark.parametrize("text", ["classes=other", "drift=7:classes=other"])
def test_other_classes_where_there_are_none_are_refused(text):
    _, config = config_from({"dataset": "synth-tweets", "shift": text})
    tweets = load("synth-tweets")
    with pytest.raises(UserError, match="have all classes"):
        shifted(config, tweets, split_of(config, tweets))


def test_new_clients_training_samples_are_theirs(digits):
    from pfl_benchmark.experiment.prepare import _divided

    config = config_under("drift=7:1:classes=other", new_clients=0.25)
    made = shifted(config, *_divided(config, digits))
    own = {x.tobytes() for rows in made.split.train[-3:] for x in made.dataset.train.x[rows]}
    later = {x.tobytes() for rows, _ in made.split.later.values() for x in made.dataset.train.x[rows]}
    alike = Counter(x.tobytes() for x in digits.train.x)
    assert not [image for image in own & later if alike[image] == 1]


@pytest.mark.parametrize("share", [0.25, 0.5])
@pytest.mark.parametrize("seed", range(3))
def test_groups_of_those_that_drift_are_of_equal_size(digits, share, seed):
    made, _ = under(digits, f"drift=7:{share}:concept=permute:2", seed=seed)
    (facts,) = made.facts.values()
    zeros = facts["groups"].count(0)
    assert abs(2 * zeros - len(facts["groups"])) <= 1


def test_data_that_drift_to_other_numbers_of_samples_are_refused(digits):
    split = split_of(config_under("none"), digits)
    samples = base.ClientSamples(digits, split, range(12))
    with pytest.raises(ValueError, match="resizes"):
        samples.later(3, [1], lambda later: later.keep(0, "train", np.arange(2)))


def test_numbers_keep_their_digits():
    (shift,) = read_shifts("labels=noise:0.1234567891")
    assert shift.text == "labels=noise:0.1234567891"
    with pytest.raises(UserError, match="GROUPS is 1000001;"):
        read_shifts("concept=permute:1000001")


REFUSED = {
    "feature=corruption:6": "STRENGTH is 6; expected a whole number in [1, 5]",
    "feature=corruption:x": "expected a whole number, such as feature=corruption:3",
    "feature=corruption:3:4": "too many options",
    "feature=blur:3": "known of this kind: feature=corruption:3",
    "features=corruption": "did you mean 'feature'?",
    "corruption": "unknown shift",
    "concept=permute:13": "at most one group a client",
    "concept=permute:1": "GROUPS is 1;",
    "labels=noise:0": "RATE is 0;",
    "labels=noise:nan": "expected a number",
    "labels=noise+labels=pairwise": "of one kind",
    "quantity=power:-1": "EXPONENT is -1;",
    "drift=31:feature=corruption": "the run has 30 rounds",
    "drift=1:feature=corruption": "rounds 2 to 30",
    "drift=feature=corruption": "expected a round and a shift",
    "drift=5": "expected a shift behind the round",
    "drift=5:2:concept=permute": "SHARE is 2; expected a number in (0, 1]",
    "drift=5:quantity=power": "another kind",
    "drift=5:drift=6:concept=permute": "another kind",
    "drift=5:concept=permute:99": "at most one group a client",
    "drift=5:0.25:concept=permute:4": "4 groups for 3 clients",
    "labels=noise+drift=5:labels=pairwise": "labels cannot change twice",
    "labels=noise+drift=5:classes=other": "are not under labels=noise:0.2",
    "none+labels=noise": "--shift none stands alone",
}


@pytest.mark.parametrize(("text", "words"), REFUSED.items())
def test_bad_input_is_one_line(text, words, capsys):
    flags = "--dataset digits --clients 12 --samples-per-client 30 --test-samples-per-client 60 --rounds 30"
    for command in ("run --algo fedavg", "data"):
        said = flags.removesuffix(" --rounds 30") if command == "data" else flags
        if command == "data" and "30" in words:
            continue
        assert main([*command.split(), *said.split(), "--shift", text]) == 2
        err = capsys.readouterr().err
        assert words in err
        assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("text", ["feature=corruption:3", "drift=5:feature=corruption:3"])
def test_corruption_of_text_is_refused(text):
    _, config = config_from({"dataset": "synth-tweets", "shift": text})
    with pytest.raises(UserError, match="is for images, and 'synth-tweets' holds tweets"):
        resolve(dataclasses.replace(config, algo="fedavg"))


@pytest.mark.parametrize("name", ["noise", "pairwise"])
def test_clients_may_have_shares_of_wrong_labels_of_their_own(digits, name):
    made, plain = under(digits, f"labels={name}:0.3:0.2")
    wrong = np.array(made.facts[f"labels={name}:0.3:0.2"]["wrong_labels"])
    sizes = np.array([len(y) for _, y in pairs(digits, plain, "train")])
    assert len({*wrong}) > 2
    assert ((wrong >= np.floor(0.1 * sizes)) & (wrong <= np.ceil(0.5 * sizes))).all()
    assert [shift.text for shift in read_shifts(f"labels={name}:0.30:0")] == [f"labels={name}:0.3"]


@pytest.mark.parametrize("text", ["labels=noise", "labels=pairwise", "concept=permute", "concept=merge"])
def test_labels_of_a_single_class_are_refused(text):
    about = base.About("one", "images", "images", (1, 8, 8), 1, 12, 30)
    (shift,) = base.read_shifts(text)
    with pytest.raises(UserError, match=r"one class|1 class"):
        shift.check(about)


@pytest.mark.parametrize("text", [text for text in EVERY if not re.search("feature|merge|other", text)])
def test_text_under_shifts(text):
    _, config = config_from({"dataset": "synth-tweets", "shift": text})
    tweets = load("synth-tweets")
    made = shifted(config, tweets, split_of(config, tweets))
    assert made.split.clients == config.clients


def test_data_shows_images_under_shifts(tmp_path, capsys):
    words = "data --dataset digits --clients 4 --json --shift feature=corruption:2"
    words += " --shift drift=3:concept=permute"
    assert main([*words.split(), "--out", str(tmp_path / "split.png")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["shifts"]["feature=corruption:2"]["corruptions"]) == 4
    assert (tmp_path / "split-images.png").stat().st_size > 1000


def test_a_shift_is_registered_once_and_has_a_name():
    for changes in (
        {},
        {"kind": "labels", "name": "noise", "place": 1},
        {"kind": "A", "name": "b", "place": 1},
    ):
        with pytest.raises(ValueError, match=r"has no `kind`|two shifts|small letters"):
            base.register(type("Mine", (base.Shift,), changes))
