"""A corruption a client: its images, of training and of testing, all look alike in one way."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pfl_benchmark.datasets.shifts.base import Draw, Shift, option, register
from pfl_benchmark.datasets.shifts.samples import HALVES, ClientSamples

# By strength, 1 to 5. All but rotation (degrees) are ImageNet-C's, as computed for small images (Hendrycks
# and Dietterich, ICLR 2019; hendrycks/robustness, ImageNet-C/create_c/make_cifar_c.py): what is added to the
# value of a colour, the factor of the distance from the mean, the deviation in pixels, that of the noise, the
# quality, and the factor of the saturation with what is added to it.
STRENGTHS: Mapping[str, tuple[float, ...] | tuple[tuple[float, float], ...]] = {
    "brightness": (0.05, 0.1, 0.15, 0.2, 0.3),
    "contrast": (0.75, 0.5, 0.4, 0.3, 0.15),
    "gaussian_blur": (0.4, 0.6, 0.7, 0.8, 1.0),
    "gaussian_noise": (0.04, 0.06, 0.08, 0.09, 0.10),
    "jpeg_compression": (80, 65, 58, 50, 40),
    "rotation": (15, 30, 45, 60, 90),
    "saturate": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
}


@register
@dataclass(frozen=True)
class Corruption(Shift):
    """Each client draws one corruption, the same for its training and its test images."""

    kind: ClassVar[str] = "feature"
    name: ClassVar[str] = "corruption"
    place: ClassVar[int] = 40
    images_only: ClassVar[bool] = True
    strength: int = option(3, "1 to 5", "[1, 5]")

    def describe(self) -> str:
        return f"a corruption of strength {self.strength} each"

    def apply(self, samples: ClientSamples, draw: Draw) -> Mapping[str, Any]:
        kinds = kinds_of(samples.dataset.train.x.shape[1])
        drawn = []
        for client, number in enumerate(samples.numbers):
            drawn.append(kinds[draw("corruption", number).integers(len(kinds))])
            for half in HALVES:
                x, _ = samples.get(client, half)
                samples.put(
                    client, half, x=corrupt(x, drawn[-1], self.strength, draw(f"noise-{half}", number))
                )
        return {"corruptions": drawn}


def corrupt(x: np.ndarray, kind: str, strength: int, rng: np.random.Generator) -> np.ndarray:
    """Images uint8 [n, C, H, W] under a corruption, a new array."""
    amount = STRENGTHS[kind][strength - 1]
    changed = _CHANGES[kind](x.astype(np.float64) / 255, amount, rng)
    return np.rint(255 * np.clip(changed, 0, 1)).astype(np.uint8)


def _brightness(x: np.ndarray, amount: float, rng: np.random.Generator) -> np.ndarray:
    value = x.max(1, keepdims=True)
    brighter = np.minimum(value + amount, 1)
    return np.where(value > 0, x * brighter / np.where(value > 0, value, 1), brighter)


def _contrast(x: np.ndarray, amount: float, rng: np.random.Generator) -> np.ndarray:
    mean = x.mean((2, 3), keepdims=True)
    return (x - mean) * amount + mean


def _blur(x: np.ndarray, amount: float, rng: np.random.Generator) -> np.ndarray:
    from scipy.ndimage import gaussian_filter  # takes a while to import

    return gaussian_filter(x, amount, mode="nearest", axes=(2, 3))


def _noise(x: np.ndarray, amount: float, rng: np.random.Generator) -> np.ndarray:
    return x + amount * rng.standard_normal(x.shape)


def _jpeg(x: np.ndarray, amount: float, rng: np.random.Generator) -> np.ndarray:
    from PIL import Image

    found = []
    for image in np.rint(255 * x).astype(np.uint8).transpose(0, 2, 3, 1):
        stream = io.BytesIO()
        Image.fromarray(image.squeeze(-1) if image.shape[-1] == 1 else image).save(
            stream, "JPEG", quality=amount
        )
        found.append(np.asarray(Image.open(stream)).reshape(image.shape))
    return np.stack(found).transpose(0, 3, 1, 2) / 255


def _rotation(x: np.ndarray, amount: float, rng: np.random.Generator) -> np.ndarray:
    from scipy.ndimage import rotate

    return rotate(x, amount, axes=(2, 3), reshape=False, order=1)


def _saturate(x: np.ndarray, amount: tuple[float, float], rng: np.random.Generator) -> np.ndarray:
    value, below = x.max(1, keepdims=True), x.max(1, keepdims=True) - x
    saturation = below.max(1, keepdims=True) / np.where(value > 0, value, 1)
    new = np.clip(saturation * amount[0] + amount[1], 0, 1)
    red = value * np.array([0.0, 1.0, 1.0])[:, None, None]  # grey has the hue 0
    colour = saturation > 0
    return value - np.where(colour, below / np.where(colour, saturation, 1), red) * new


_CHANGES: Mapping[str, Callable[[np.ndarray, Any, np.random.Generator], np.ndarray]] = {
    "brightness": _brightness,
    "contrast": _contrast,
    "gaussian_blur": _blur,
    "gaussian_noise": _noise,
    "jpeg_compression": _jpeg,
    "rotation": _rotation,
    "saturate": _saturate,
}


def kinds_of(channels: int) -> list[str]:
    """The corruptions that there are for images of so many channels."""
    needs = {"saturate": (3,), "jpeg_compression": (1, 3)}
    return [kind for kind in STRENGTHS if channels in needs.get(kind, (channels,))]
