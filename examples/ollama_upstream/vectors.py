"""Embeddings: one vector per text, closer the more words two texts share."""

from __future__ import annotations

import hashlib
import math
from random import Random


def embedding(model: str, text: str, length: int) -> list[float]:
    """A vector of length 1."""
    total = [0.0] * length
    for word in text.lower().split() or [""]:
        chance = Random(hashlib.sha256(f"{model}\0{word}".encode()).digest())
        total = [each + chance.gauss(0, 1) for each in total]
    return unit(total)


def unit(vector: list[float]) -> list[float]:
    size = max(math.sqrt(sum(each * each for each in vector)), 1e-12)
    return [each / size for each in vector]
