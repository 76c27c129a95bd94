"""A split for people: a table and a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pfl_benchmark.datasets.data import Dataset
from pfl_benchmark.datasets.splits import Split

__all__ = ["images_picture", "split_picture", "split_table"]

_SHOWN = (20, 10)  # clients, and images of each
_COLUMNS = 101  # quantiles of many clients, one a percent
_NAMED_CLASSES = 30  # with more classes than this their names do not fit beside the picture


def split_table(split: Split, dataset: Dataset) -> pd.DataFrame:
    """Return one row per client.

    Columns: `train` and `test` (numbers of samples), `classes` (number of classes in the training samples),
    `class_names` (these, the most frequent first).
    """
    counts = split.class_counts(dataset.train.y)
    order = np.argsort(-counts, axis=1, kind="stable")
    present = (counts > 0).sum(axis=1)
    names = [
        ", ".join(dataset.class_names[c] for c in row[:n]) for row, n in zip(order, present, strict=True)
    ]
    return pd.DataFrame(
        {"train": split.train_sizes, "test": split.test_sizes, "classes": present, "class_names": names},
        index=pd.RangeIndex(split.clients, name="client"),
    )


def split_picture(split: Split, dataset: Dataset, path: str | Path, most: int) -> None:
    """Write a PNG of the training samples per class (rows) and client (columns).

    Above them stand the clients' totals where these differ. White cells are classes that a client lacks. Of
    more than `most` clients columns are quantiles: in each row clients are in the order of their samples of
    the class.
    """
    counts = split.class_counts(dataset.train.y)
    sizes, classes, columns = split.train_sizes, counts.shape[1], split.clients
    if many := columns > most:
        columns, shares = _COLUMNS, np.linspace(0, 100, _COLUMNS)
        counts, sizes = (np.percentile(x, shares, axis=0, method="nearest") for x in (counts, sizes))
    low, high = sizes.min(), sizes.max()
    rows = float(np.clip(0.25 * classes, 1.5, 6.5))  # inches
    strip = 0.7 if low < high else 0.0
    figure = Figure(figsize=(10, rows + strip + 1.1), dpi=150, layout="constrained")
    each = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    title = f"{dataset.name}: {split.clients:,} clients, {each} training {dataset.unit} each"
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    if low == high:
        heat = figure.subplots()
    else:
        totals, heat = figure.subplots(2, 1, sharex=True, height_ratios=[strip, rows])
        totals.stairs(sizes, np.arange(columns + 1) - 0.5, fill=True, color="0.7")
        totals.set_ylabel(dataset.unit)
        totals.spines[["top", "right"]].set_visible(False)
        totals.tick_params(bottom=False)

    shown = np.ma.masked_equal(counts.T, 0)
    image = heat.imshow(shown, aspect="auto", cmap="YlGnBu", vmin=0, interpolation="nearest")
    heat.set_xlabel("clients in each row's own order, %" if many else "client")
    heat.set_ylabel("class")
    heat.xaxis.set_major_locator(MaxNLocator(integer=True))
    if classes <= _NAMED_CLASSES:
        heat.set_yticks(range(classes), dataset.class_names[:classes], fontsize=8)
        for edge in range(1, classes):
            heat.axhline(edge - 0.5, color="white", linewidth=1)
    figure.colorbar(image, ax=heat, label=dataset.unit, pad=0.01, ticks=MaxNLocator(6, integer=True))
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png")


def images_picture(split: Split, dataset: Dataset, path: str | Path) -> None:
    """Write a PNG of the first training images of clients, a row each, with their labels; of images alone.

    Of clients whose data change in the course of a run (`Split.later`) the later images follow in the row.
    """
    clients, count = min(split.clients, _SHOWN[0]), _SHOWN[1]
    columns = count * (2 if split.later else 1)
    channels, height, width = dataset.train.x.shape[1:]
    down, right = round(1.5 * height), round(1.2 * width)  # room for a label above, and between images
    canvas = np.full((clients * down, columns * right, 3), 255, dtype=np.uint8)
    figure = Figure(figsize=(0.5 * columns + 0.6, 0.6 * clients + 0.6), dpi=120)
    axis = figure.subplots()
    for client in range(clients):
        later = split.later[client][0] if client in split.later else np.empty(0, np.int64)
        for start, rows in ((0, split.train[client]), (count, later)):
            for place, row in enumerate(rows[:count], start=start):
                top, left = (client + 1) * down - height, place * right
                image = dataset.train.x[row].transpose(1, 2, 0)
                canvas[top : top + height, left : left + width] = image if channels == 3 else image[:, :, :1]
                name = dataset.class_names[dataset.train.y[row]][:8]
                axis.text(left + width / 2, top - 0.05 * height, name, fontsize=6, ha="center", va="bottom")
    axis.imshow(canvas, interpolation="nearest", aspect="auto")
    axis.set_yticks(
        [(client + 1) * down - height / 2 for client in range(clients)], map(str, range(clients)), fontsize=8
    )
    axis.set_ylabel("client")
    axis.set_xticks([])
    axis.spines[:].set_visible(False)
    axis.tick_params(left=False)
    where = f", on the right from round {split.turn} on" if split.later else ""
    axis.set_title(f"{dataset.name}: training images and labels{where}", loc="left", fontsize=10)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png", bbox_inches="tight")
