"""Words of texts, by torchtext's tokenizer."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

import numpy as np

from pfl_benchmark.errors import UserError

__all__ = ["number_words", "torchtext"]


def torchtext() -> Any:
    """torchtext's last release in pure Python, which works with every PyTorch.

    Raises UserError where it is not installed.
    """
    try:
        import torchtext
        import torchtext.data.utils
        import torchtext.vocab
    except (ImportError, OSError) as error:  # a release with a binary of another PyTorch is an OSError
        raise UserError(
            f"tweets are prepared by torchtext 0.6.0, which cannot be used here ({error}): install it by "
            "`pip install torchtext==0.6.0`, or use --dataset synth-tweets, which does without"
        ) from error
    return torchtext


def number_words(texts: Iterable[str], count: int, length: int) -> tuple[np.ndarray, list[str]]:
    """Return the words of `count` texts, cut to `length` words, as numbers, and the words.

    Words are split by the tokenizer `basic_english`, after HTML's entities (`&amp;`) have been resolved.

    Returns int32 [count, length], -1 behind the end of a text; word i of the list has the number i.
    """
    tokenize = torchtext().data.utils.get_tokenizer("basic_english")
    numbers: dict[str, int] = {}
    rows = np.full((count, length), -1, dtype=np.int32)
    for row, text in zip(rows, texts, strict=True):
        words = tokenize(html.unescape(text))[:length]
        row[: len(words)] = [numbers.setdefault(word, len(numbers)) for word in words]
    return rows, list(numbers)
