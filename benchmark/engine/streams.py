"""Counter-based random streams: every draw is a function of (seed, purpose, round, client).

No stream depends on how many numbers another has used, so splits, initial weights, cohorts and batch
orders are common to all methods of a seed, do not depend on the executor, and resume is exact.
"""

from __future__ import annotations

import hashlib

import numpy as np


class Streams:
    """The random streams of one run seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def get(self, purpose: str, round: int = 0, client: int = 0) -> np.random.Generator:
        """A fresh generator at the start of the named stream.

        Args:
            purpose: what is drawn, such as ``batches-main``; any new name is a stream of its own.
        """
        label = f"{self.seed}/{purpose}/{round}/{client}"
        digest = hashlib.blake2b(label.encode(), digest_size=16).digest()
        return np.random.Generator(np.random.Philox(key=np.frombuffer(digest, dtype="<u8")))
