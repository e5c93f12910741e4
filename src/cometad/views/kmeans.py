"""k-means with its randomness passed in, so that every variable and every machine gets the same codes."""

import numpy as np

from cometad.arrays import Floats, Integers
from cometad.compute import COMPILES, fused
from cometad.views.sums import window_products
from cometad.views.tiles import COLUMNS, add_squared_gaps, total_of, zero_line

ROUNDS = 8  # of Lloyd's algorithm: more change nothing


def codes_of(points: Floats, count: int, rng: np.random.Generator) -> Floats:
    """At most `count` codes (code, dim) for points (point, dim): k-means++, then Lloyd's algorithm.

    Fewer than `count` distinct points are their own codes.
    """
    return kmeans(np.ascontiguousarray(points), rng.random(count), ROUNDS)


def kmeans(points: Floats, uniforms: Floats, rounds: int) -> Floats:
    """Codes (code, dim) of contiguous points; each of the `uniforms` (code,) draws one initial code."""
    # Arrays are made here, because numba compiles for half a second what makes them in a kernel.
    (count, dim), owners = points.shape, np.zeros(len(points), np.int64)
    codes = np.empty((len(uniforms), dim))
    codes = codes[: _initial(points, uniforms, codes, owners, np.full(count, np.inf))].copy()
    padded = (len(codes) + COLUMNS - 1) // COLUMNS * COLUMNS
    weights, halves, products = np.zeros((dim, padded)), np.zeros(padded), np.empty((count, padded))
    for _ in range(rounds):
        if not _move(points, owners, codes, np.zeros(codes.shape), np.zeros(len(codes))):
            break
        _assign(points, codes, owners, weights, halves, products)
    return codes


@fused
def _initial(points: Floats, uniforms: Floats, codes: Floats, owners: Integers, distances: Floats) -> int:
    """k-means++: each next code is drawn in proportion to the squared distance from the codes so far.

    Sets the codes and the `owners` (point,), and returns how many codes there are; all `distances` are infinite.
    """
    count, dim = points.shape
    flat, table = points.ravel(), codes.ravel()
    chosen, found = min(int(uniforms[0] * count), count - 1), 0
    while True:
        for d in range(dim):
            codes[found, d] = points[chosen, d]
        newest = found * dim
        found += 1
        total = 0.0
        for n in range(count):
            distance = squared_distance(flat, n * dim, table, newest, dim)
            if distance < distances[n]:
                distances[n], owners[n] = distance, found - 1
            total += distances[n]
        if found == len(uniforms) or total <= 0.0:
            return found
        target, passed, chosen = uniforms[found] * total, 0.0, count - 1
        for n in range(count):
            passed += distances[n]
            if passed > target:
                chosen = n
                break
        if distances[chosen] == 0.0:  # rounding carried the sum past the last point that is not a code
            for n in range(count):
                if distances[n] > distances[chosen]:
                    chosen = n


@fused
def _assign(points: Floats, codes: Floats, owners: Integers, weights: Floats, halves: Floats, products: Floats) -> None:
    """The nearest code of each point: the least |code|^2 / 2 - code'point."""
    for c in range(len(codes)):
        halves[c] = 0.0
        for d in range(points.shape[1]):
            weights[d, c] = -codes[c, d]
            halves[c] += 0.5 * codes[c, d] * codes[c, d]
    # Not a plain 0: numba would compile the products once more for that constant.
    window_products(points.ravel(), np.int64(0), points.shape[1], weights, halves, products)
    for n in range(len(points)):
        nearest, least = 0, products[n, 0]
        for c in range(1, len(codes)):
            if products[n, c] < least:
                nearest, least = c, products[n, c]
        owners[n] = nearest


@fused
def _move(points: Floats, owners: Integers, codes: Floats, sums: Floats, counts: Floats) -> bool:
    """Move each code to the mean of its points; a code without points stays. Returns whether any code moved."""
    for n in range(len(points)):
        counts[owners[n]] += 1
        for d in range(points.shape[1]):
            sums[owners[n], d] += points[n, d]
    moved = False
    for c in range(len(codes)):
        if counts[c] > 0:
            for d in range(points.shape[1]):
                mean = sums[c, d] / counts[c]
                moved = moved or mean != codes[c, d]
                codes[c, d] = mean
    return moved


@fused
def _squared_in_tiles(left: Floats, i: int | np.int64, right: Floats, j: int | np.int64, length: int) -> float:
    """The squared distance of `length` numbers of two arrays, from i and from j on."""
    whole = length // COLUMNS * COLUMNS
    line = zero_line()
    for k in range(0, whole, COLUMNS):
        line = add_squared_gaps(line, left, i + k, right, j + k)
    total: float = total_of(line)
    for k in range(whole, length):
        total += (left[i + k] - right[j + k]) ** 2
    return total


def _squared_plainly(left: Floats, i: int | np.int64, right: Floats, j: int | np.int64, length: int) -> float:
    """The same without compiled code: equal up to rounding."""
    return float(((left[i : i + length] - right[j : j + length]) ** 2).sum())


squared_distance = _squared_in_tiles if COMPILES else _squared_plainly
