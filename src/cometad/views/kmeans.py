"""k-means with its randomness passed in, so that every variable and every machine gets the same codes."""

import numpy as np

from cometad.arrays import Floats, Integers
from cometad.compiled import fused

ROUNDS = 8  # of Lloyd's algorithm: more change nothing


def codes_of(points: Floats, count: int, rng: np.random.Generator) -> Floats:
    """At most `count` codes (code, dim) for points (point, dim): k-means++, then Lloyd's algorithm.

    Fewer than `count` distinct points are their own codes.

    >>> import numpy as np
    >>> from cometad.views.kmeans import codes_of
    >>> codes_of(np.array([[1.0], [1.0], [5.0]]), 4, np.random.default_rng(0)).ravel().tolist()
    [1.0, 5.0]
    """
    return kmeans(np.ascontiguousarray(points), rng.random(count), ROUNDS)


@fused
def kmeans(points: Floats, uniforms: Floats, rounds: int) -> Floats:
    """Codes (code, dim); each of the `uniforms` (code,) draws one initial code."""
    codes, owners, distances = _initial(points, uniforms)
    for _ in range(rounds):
        if not _move(points, owners, codes):
            break
        _assign(points, codes, owners, distances)
    return codes


@fused
def _initial(points: Floats, uniforms: Floats) -> tuple[Floats, Integers, Floats]:
    """k-means++: each next code is drawn in proportion to the squared distance from the codes so far."""
    count, dim = points.shape
    codes, owners = np.empty((len(uniforms), dim)), np.zeros(count, np.int64)
    distances = np.full(count, np.inf)
    codes[0] = points[min(int(uniforms[0] * count), count - 1)]
    found = 1
    while True:
        total = 0.0
        for n in range(count):
            distance = _squared(points[n], codes[found - 1])
            if distance < distances[n]:
                distances[n], owners[n] = distance, found - 1
            total += distances[n]
        if found == len(uniforms) or total <= 0.0:
            break
        target, passed, chosen = uniforms[found] * total, 0.0, count - 1
        for n in range(count):
            passed += distances[n]
            if passed > target:
                chosen = n
                break
        if distances[chosen] == 0.0:  # rounding carried the sum past the last point that is not a code
            chosen = int(np.argmax(distances))
        codes[found] = points[chosen]
        found += 1
    return codes[:found].copy(), owners, distances


@fused
def _assign(points: Floats, codes: Floats, owners: Integers, distances: Floats) -> None:
    """The nearest code of each point, by |code|^2 / 2 - code'point, with the products in blocks of codes."""
    count, dim = points.shape
    turned = np.ascontiguousarray(codes.T)
    halves, products = np.empty(len(codes)), np.empty(len(codes))
    for c in range(len(codes)):
        halves[c] = 0.5 * _squared(codes[c], np.zeros(dim))
    for n in range(count):
        products[:] = halves
        for d in range(dim):
            value = points[n, d]
            for c in range(len(codes)):
                products[c] -= value * turned[d, c]
        owners[n] = np.argmin(products)
        distances[n] = products[owners[n]]


@fused
def _move(points: Floats, owners: Integers, codes: Floats) -> bool:
    """Move each code to the mean of its points; a code without points stays. Returns whether any code moved."""
    sums, counts = np.zeros(codes.shape), np.zeros(len(codes))
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
def _squared(left: Floats, right: Floats) -> float:
    total = 0.0
    for d in range(len(left)):
        difference = left[d] - right[d]
        total += difference * difference
    return total
