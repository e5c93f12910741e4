"""The numbers of a report computed by plain loops, written independently of the fast code."""

import math


def thin(values, buckets):
    """Indices of the lowest and the highest value of each bucket, and of both ends."""
    last = len(values) - 1
    if len(values) <= 2 * buckets:
        return list(range(len(values)))
    chosen = {0, last}
    for bucket in range(buckets):
        # Equal parts of the range of indices; an index on a boundary belongs to the earlier bucket.
        low, high = bucket * (last / buckets), (bucket + 1) * (last / buckets)
        inside = [i for i in range(len(values)) if (i > int(low) or bucket == 0) and i <= int(high)]
        chosen.add(min(inside, key=lambda i: (values[i], i)))
        chosen.add(max(inside, key=lambda i: (values[i], -i)))
    return sorted(chosen)


def quantile(values, level):
    """Linear interpolation between the two nearest sorted values."""
    ordered = sorted(values)
    place = level * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def parts(values, count):
    """The values in `count` consecutive parts; if they do not divide evenly, the first parts get one more."""
    size, left = divmod(len(values), count)
    found, begin = [], 0
    for number in range(count):
        end = begin + size + (number < left)
        found.append(values[begin:end])
        begin = end
    return found


def shares(values, edges):
    """The share of the values between neighboring edges; values outside count toward the nearest bar."""
    bars = [0] * (len(edges) - 1)
    for value in values:
        bar = sum(value >= edge for edge in edges[1:-1])
        bars[bar] += 1
    return [bar / len(values) for bar in bars]


def usage(training, here):
    """Codes as (share in training, share here), most used in training first; and the share here on unused codes."""
    pairs = [(a / max(sum(training), 1), b / max(sum(here), 1)) for a, b in zip(training, here, strict=True)]
    unseen = sum(b for a, b in pairs if a == 0)
    return sorted(pairs, key=lambda pair: (-pair[0], -pair[1])), unseen
