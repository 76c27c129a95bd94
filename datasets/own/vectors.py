"""Numbers of which nobody says what they are: images where they can be, else series or features."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np

from pfl_benchmark.datasets.own.found import Found
from pfl_benchmark.errors import UserError

__all__ = ["of_vectors"]

_LEVEL = 1e-3  # how far a pixel times 255 may be from a whole number


def of_vectors(root: Path, found: Found, x: np.ndarray) -> Found:
    """Samples [N, ...] in their kind.

    Images are grey levels from 0 to 1, from -1 to 1 or from 0 to 255, in whole steps of 255, as [C, H, W],
    [H, W, C], [H, W], or in one row whose length is that of a square image with one or three channels. Other
    numbers are series [C, T] or features.

    Raises:
        UserError: neither.
    """
    levels = _levels(x)
    if levels is not None and (shaped := _as_images(levels)) is not None:
        told = f"{found.told}; read as images of {shaped.shape[2]}x{shaped.shape[3]}"
        return dataclasses.replace(found, x=shaped, told=told)
    if x.ndim == 4 and x.shape[2] == 1:  # as of phones' sensors
        x = x[:, :, 0]
    if x.ndim == 3:
        told = f"{found.told}; read as series of {x.shape[1]} channels and {x.shape[2]} steps"
        return dataclasses.replace(found, x=x.astype(np.float32), kind="series", told=told)
    if x.ndim == 2:
        binary = ((x == 0) | (x == 1)).all(0)
        told = f"{found.told}; read as rows of {x.shape[1]} features"
        numeric = tuple(np.flatnonzero(~binary).tolist())
        return dataclasses.replace(found, x=x.astype(np.float64), kind="rows", numeric=numeric, told=told)
    shape = " x ".join(map(str, x.shape[1:])) or "one number"
    raise UserError(
        f"{root}: samples are {shape}, and no images (grey levels from 0 to 1, -1 to 1 or 0 to 255), "
        "series or features; expected one of these"
    )


def _levels(x: np.ndarray) -> np.ndarray | None:
    """Grey levels 0..255, uint8; None: these numbers are none."""
    low, high = float(x.min()), float(x.max())
    if low >= 0 and high <= 1:
        scaled = 255.0 * x
    elif low >= -1 and high <= 1:
        scaled = 127.5 * (x.astype(np.float64) + 1)
    elif low >= 0 and high <= 255:
        scaled = x
    else:
        return None
    whole = np.round(scaled)
    return whole.astype(np.uint8) if np.abs(scaled - whole).max() < _LEVEL * 255 else None


def _as_images(levels: np.ndarray) -> np.ndarray | None:
    """Grey levels as [N, C, H, W]; None: they have no such shape."""
    shape = levels.shape[1:]
    if len(shape) == 1:
        for channels in (1, 3):
            side = math.isqrt(shape[0] // channels)
            if channels * side * side == shape[0] and side >= 4:
                return levels.reshape(-1, channels, side, side)
        return None
    if len(shape) == 2 and min(shape) >= 4:
        return levels[:, None]
    if len(shape) == 3 and shape[0] in (1, 3) and min(shape[1:]) >= 4:
        return levels
    if len(shape) == 3 and shape[2] in (1, 3) and min(shape[:2]) >= 4:
        return np.ascontiguousarray(levels.transpose(0, 3, 1, 2))
    return None
