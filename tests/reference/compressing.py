"""Codecs and SGD with error feedback as the papers print them, in plain NumPy, number by number."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.floating]


def top_k(x: Vector, k: int) -> Vector:
    """Stich et al. 2018, definition 2.1: order by magnitude, keep the first k."""
    order = sorted(range(len(x)), key=lambda i: -abs(x[i]))
    found = np.zeros_like(x)
    for i in order[:k]:
        found[i] = x[i]
    return found


def random_k(x: Vector, places: Sequence[int], *, unbiased: bool) -> Vector:
    found = np.zeros_like(x)
    for i in places:
        found[i] = x[i] * (len(x) / len(places) if unbiased else 1)
    return found


def qsgd(x: Vector, s: int, bucket: int, uniform: Vector) -> Vector:
    """Alistarh et al. 2017, section 3.1: with l / s <= |x_i| / |x| < (l + 1) / s, up to l + 1 with
    probability |x_i| / |x| s - l.
    """
    found = np.zeros(len(x))
    for begin in range(0, len(x), bucket):
        part = x[begin : begin + bucket].astype(np.float64)
        norm = math.sqrt(sum(v * v for v in part))
        for i, v in enumerate(part):
            if norm == 0:
                continue
            ratio = abs(v) / norm * s
            level = math.floor(ratio)
            if uniform[begin + i] < ratio - level:
                level += 1
            found[begin + i] = norm * math.copysign(1, v) * level / s
    return found


def scaled_sign(x: Vector) -> Vector:
    """Karimireddy et al. 2019, section 4.1: |x|_1 / d sign(x), of one layer."""
    scale = sum(abs(v) for v in x) / len(x)
    return np.array([scale if v >= 0 else -scale for v in x])


def one_bit(matrix: Vector) -> Vector:
    """Seide et al. 2014, section 3: threshold 0; of each row two values, of least squared error."""
    found = np.zeros(matrix.shape)
    for row, values in enumerate(matrix):
        for is_positive in (True, False):
            chosen = [i for i, v in enumerate(values) if (v >= 0) == is_positive]
            for i in chosen:
                found[row, i] = sum(values[j] for j in chosen) / len(chosen)
    return found


def gram_schmidt(p: Vector) -> Vector:
    q = np.array(p, dtype=np.float64)
    for j in range(q.shape[1]):
        for i in range(j):
            q[:, j] -= (q[:, i] @ q[:, j]) * q[:, i]
        q[:, j] /= math.sqrt(q[:, j] @ q[:, j])
    return q


def power_sgd(matrices: Sequence[Vector], q: Vector) -> tuple[Vector, Vector, Vector]:
    """Vogels et al. 2019, algorithm 1: return P, Q of the mean, and what all decode."""
    p = gram_schmidt(sum(m @ q for m in matrices) / len(matrices))
    q = sum(m.T @ p for m in matrices) / len(matrices)
    return p, q, p @ q.T


def bfloat16(x: Vector) -> Vector:
    """Round the 32 bits of a float to the upper 16, to nearest, ties to even."""
    found = []
    for bits in np.asarray(x, np.float32).view(np.uint32).tolist():
        upper, lower = bits >> 16, bits & 0xFFFF
        if lower > 0x8000 or (lower == 0x8000 and upper & 1):
            upper += 1
        found.append(upper << 16)
    return np.array(found, np.uint32).view(np.float32)


def error_feedback_sgd(
    x: Vector,
    workers: int,
    updates: int,
    lr: float,
    gradient: Callable[[Vector], Vector],
    compress: Callable[[Vector], Vector],
    *,
    synchronous: bool,
) -> Vector:
    """Return what SGD on a deterministic gradient ends with, where each worker keeps its error.

    Asynchronous workers of one speed take turns, each at the parameters after its own last update;
    so worker 0, 1, ..., 0, 1, ... (Karimireddy et al. 2019, algorithm 2, for several workers).
    """
    read = [x] * workers
    error = [np.zeros_like(x) for _ in range(workers)]
    for update in range(updates):
        turn = range(workers) if synchronous else [update % workers]
        sent = []
        for w in turn:
            p = gradient(read[w]) + error[w]
            sent.append(compress(p))
            error[w] = p - sent[-1]
        x = x - lr * sum(sent) / len(sent)
        for w in turn:
            read[w] = x
    return x
