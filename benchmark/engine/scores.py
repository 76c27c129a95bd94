"""Macro-F1 and AUC of one client's predictions.

Defined here and not taken from scikit-learn, whose import alone takes longer than the last evaluation of a
small run; the tests compare the two.
"""

from __future__ import annotations

import math

import numpy as np


def macro_f1(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Mean F1 of the classes that the client's test samples have.

    A class that is only predicted has no F1 of its own; predicting it costs the recall of the true class.

    Args:
        predicted, labels: classes [n], n of at least 1.
    """
    scores = []
    for label in np.unique(labels):
        true, chosen = labels == label, predicted == label
        scores.append(2 * float((true & chosen).sum()) / float(true.sum() + chosen.sum()))
    return math.fsum(scores) / len(scores)


def macro_auc(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Mean area under the ROC curve, one class against the rest, of the classes that the test samples have.

    A class's samples are ranked by its probability among all classes of the dataset; ties count half. Classes
    that the client has no test samples of do not count.

    Args:
        probabilities: [n, C], larger for more likely classes; comparable between samples.
        labels: classes [n].

    Returns:
        The mean; NaN for a client whose test samples are all of one class, which has no such area.
    """
    present = np.unique(labels)
    if len(present) < 2:
        return math.nan
    areas = []
    for label in present:
        own = probabilities[labels == label, label]
        others = np.sort(probabilities[labels != label, label])
        below = np.searchsorted(others, own, "left") + np.searchsorted(others, own, "right")
        areas.append(float(below.sum()) / (2 * len(own) * len(others)))
    return math.fsum(areas) / len(areas)
