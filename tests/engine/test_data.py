"""The clients' data: normalisation, division, augmentation."""

import numpy as np
import pytest
import torch

from pfl_benchmark.datasets.api import Dataset, Samples, Split
from pfl_benchmark.engine.data import FederatedData, draw_crops
from pfl_benchmark.engine.streams import Streams

COUNT, CHANNELS, SIDE = 60, 3, 6


@pytest.fixture(scope="module")
def dataset():
    """Random images without a black pixel, so that padding can be told from them."""
    rng = np.random.default_rng(0)
    samples = Samples(
        rng.integers(1, 256, (COUNT, CHANNELS, SIDE, SIDE)).astype(np.uint8), rng.integers(0, 4, COUNT)
    )
    names = ("a", "b", "c", "d")
    return Dataset("made", samples, samples, 4, names, mean=(0.5, 0.25, 0.1), std=(0.2, 0.5, 1.0), source="")


@pytest.fixture(scope="module")
def data(dataset):
    train = (np.arange(40), np.array([59, 41]))
    test = (np.array([3]), np.array([5, 4, 3]))
    return FederatedData(dataset, Split(train, test), torch.device("cpu"))


@pytest.fixture
def rng():
    return Streams(0).get("augment", 1, 2)


# Division and normalisation


def test_samples_and_labels_of_a_client(data, dataset):
    assert (data.clients, data.classes) == (2, 4)
    assert (data.train_sizes, data.test_sizes) == ([40, 2], [1, 3])
    for part, rows in (("train", [59, 41]), ("test", [5, 4, 3])):
        assert np.array_equal(data.raw(1, part), getattr(dataset, part).x[rows])
        assert np.array_equal(data.labels(1, part), getattr(dataset, part).y[rows])


def test_inputs_are_normalised_per_channel(data, dataset):
    x = torch.from_numpy(dataset.train.x[:40]).double() / 255
    mean, std = (torch.tensor(v, dtype=torch.float64).view(3, 1, 1) for v in (dataset.mean, dataset.std))
    inputs = data.inputs(0)
    assert inputs.dtype == torch.float32
    torch.testing.assert_close(inputs.double(), (x - mean) / std, rtol=1e-5, atol=1e-5)


def test_encoding_leaves_the_samples_alone(data):
    before = data.raw(0).clone()
    data.inputs(0)
    assert torch.equal(data.raw(0), before)


# Augmentation


def windows(image, padding):
    """Every crop of the padded image and of its mirror image: {content: (top, left, mirrored)}."""
    padded = np.pad(image, [(0, 0), (padding,) * 2, (padding,) * 2])
    found = {}
    for top in range(2 * padding + 1):
        for left in range(2 * padding + 1):
            crop = padded[:, top : top + SIDE, left : left + SIDE]
            found[crop.tobytes()] = (top, left, False)
            found[np.ascontiguousarray(crop[:, :, ::-1]).tobytes()] = (top, left, True)
    return found


@pytest.mark.parametrize("padding", [0, 1, 4])
def test_augmented_images_are_windows_of_the_padded_image(data, rng, padding):
    raw = data.raw(0)
    seen = []
    for _ in range(10):
        augmented = data.augment(raw, draw_crops(len(raw), rng, padding), padding)
        assert augmented.shape == raw.shape
        assert augmented.dtype == torch.uint8
        for before, after in zip(raw.numpy(), augmented.contiguous().numpy(), strict=True):
            seen.append(windows(before, padding)[after.tobytes()])  # KeyError: no window at all
    tops, lefts, mirrored = zip(*seen, strict=True)
    assert set(tops) == set(lefts) == set(range(2 * padding + 1))
    assert np.mean(mirrored) == pytest.approx(0.5, abs=0.1)
    if padding:
        assert np.corrcoef(tops, lefts)[0, 1] == pytest.approx(0, abs=0.15)


def test_augmentation_follows_from_its_stream(data):
    raw, streams = data.raw(0), Streams(0)
    first, again, other = (
        data.augment(raw, draw_crops(len(raw), streams.get("augment", 1, client), 4), 4)
        for client in (2, 2, 3)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(data.raw(0), raw)


def test_draws_are_uniform():
    top, left, mirrored = draw_crops(20_000, np.random.default_rng(0), 2).T
    for drawn, values in ((top, 5), (left, 5), (mirrored, 2)):
        shares = np.bincount(drawn, minlength=values) / 20_000
        assert shares.tolist() == pytest.approx([1 / values] * values, abs=0.02)
