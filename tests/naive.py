"""The paper as loops: slow, plain, and written from its formulas, never from our fast code.

Every function is one formula over plain float64 vectors. Where the paper leaves something open, it follows the design
(section 2). Equation numbers count the paper's numbered equations in order.
"""

import itertools
import math
from typing import NamedTuple

import numpy as np

EPSILON = 1e-8


class Weights(NamedTuple):
    """The learned weights of one scale."""

    size: int  # p_k
    stride: int  # s_k
    series_weight: np.ndarray  # W^(s,i): (variable, dim / 2, size)
    series_bias: np.ndarray  # b^(s,i): (variable, dim / 2)
    core_weight: np.ndarray  # W^(c): (core_dim, variable * size)
    core_bias: np.ndarray  # b^(c): (core_dim,)
    fusion_weight: np.ndarray  # W^(g): (dim, dim / 2 + core_dim)
    fusion_bias: np.ndarray  # b^(g): (dim,)
    codes: np.ndarray  # c_m: (code, dim)
    decoder_weight: np.ndarray  # h_k: (size, dim)
    decoder_bias: np.ndarray  # (size,)

    @classmethod
    def of(cls, scale):
        """The weights of one scale of a network."""
        encoder = scale.encoder
        tensors = (
            *(encoder.series_weight, encoder.series_bias, encoder.core_weight, encoder.core_bias),
            *(encoder.fusion_weight, encoder.fusion_bias, scale.codebook.vectors),
            *(scale.decoder.weight, scale.decoder.bias),
        )
        return cls(scale.size, scale.stride, *(tensor.detach().double().numpy() for tensor in tensors))


class Embedding(NamedTuple):
    """One patch of one variable, its embedding and its code."""

    patch: list
    vector: list  # z_e
    code: int  # q


# -- patches --------------------------------------------------------------------------------------------------------


def patch_count(length, size, stride):
    """N_k, the line after Eq. 1."""
    return math.floor((length - size) / stride) + 1


def patch(window, variable, index, size, stride):
    """Eq. 1: one patch of one variable of a window (time, variable)."""
    return [float(window[index * stride + offset][variable]) for offset in range(size)]


# -- encoding -------------------------------------------------------------------------------------------------------


def linear(weight, bias, vector):
    """W x + b, the form of Eq. 2, 4 and 5."""
    return [
        sum(float(weight[row][column]) * vector[column] for column in range(len(vector))) + float(bias[row])
        for row in range(len(weight))
    ]


def stacked(window, index, size, stride):
    """Eq. 3: the patches of all variables at one position, one after the other."""
    return [x for variable in range(len(window[0])) for x in patch(window, variable, index, size, stride)]


def embedding(window, variable, index, weights):
    """Eq. 2 (series), 3 and 4 (core), 5 (fusion): z_e of one patch."""
    own = patch(window, variable, index, weights.size, weights.stride)
    series = linear(weights.series_weight[variable], weights.series_bias[variable], own)
    core = linear(weights.core_weight, weights.core_bias, stacked(window, index, weights.size, weights.stride))
    return linear(weights.fusion_weight, weights.fusion_bias, series + core)


# -- quantization ---------------------------------------------------------------------------------------------------


def squared_distance(left, right):
    """The squared Euclidean norm of a difference."""
    return sum((float(a) - float(b)) ** 2 for a, b in zip(left, right, strict=True))


def nearest_code(vector, codes):
    """Eq. 6: the index of the nearest code; Eq. 7 is `codes[index]`. The first one of a tie."""
    best = 0
    for m in range(len(codes)):
        if squared_distance(vector, codes[m]) < squared_distance(vector, codes[best]):
            best = m
    return best


def embeddings(window, weights):
    """Eq. 1 to 6 for every patch of a window: a table [patch][variable] of `Embedding`."""
    table = []
    for index in range(patch_count(len(window), weights.size, weights.stride)):
        row = []
        for variable in range(len(window[0])):
            vector = embedding(window, variable, index, weights)
            own = patch(window, variable, index, weights.size, weights.stride)
            row.append(Embedding(own, vector, nearest_code(vector, weights.codes)))
        table.append(row)
    return table


# -- losses ---------------------------------------------------------------------------------------------------------


def losses(windows, scales, normal=None):
    """Eq. 8 (codebook), 9 (commitment), 10 (reconstruction): means over elements, summed over scales.

    With `normal`, a mask [scale][window][patch][variable], only the patches it marks count (Eq. 24).
    Returns (reconstruction, codebook, commitment).
    """
    reconstruction = quantization = 0.0
    for k, weights in enumerate(scales):
        errors, distances, count = 0.0, 0.0, 0
        for w, window in enumerate(windows):
            for j, row in enumerate(embeddings(window, weights)):
                for i, one in enumerate(row):
                    if normal is not None and not normal[k][w][j][i]:
                        continue
                    code = weights.codes[one.code]
                    decoded = linear(weights.decoder_weight, weights.decoder_bias, [float(c) for c in code])
                    errors += squared_distance(one.patch, decoded) / weights.size
                    distances += squared_distance(one.vector, code) / len(code)
                    count += 1
        reconstruction += errors / max(count, 1)
        quantization += distances / max(count, 1)
    return reconstruction, quantization, quantization


def total_loss(parts, codebook_weight, commitment_weight):
    """Eq. 11."""
    reconstruction, codebook, commitment = parts
    return reconstruction + codebook_weight * codebook + commitment_weight * commitment


def codebook_gradient(windows, weights):
    """The gradient (code, dim) of Eq. 8 for the codes of one scale, from sg[z_e]; no other loss trains the codes."""
    found = [one for window in windows for row in embeddings(window, weights) for one in row]
    gradient = np.zeros(np.shape(weights.codes))
    for one in found:
        for axis in range(gradient.shape[1]):
            gap = float(weights.codes[one.code][axis]) - one.vector[axis]
            gradient[one.code, axis] += 2 * gap / (len(found) * gradient.shape[1])
    return gradient


def fusion_bias_gradient(windows, weights, commitment_weight):
    """The gradient (dim,) of Eq. 9 and, straight through the quantization, Eq. 10 for the fusion bias of one scale."""
    found = [one for window in windows for row in embeddings(window, weights) for one in row]
    dim = np.shape(weights.codes)[1]
    gradient = np.zeros(dim)
    for one in found:
        code = [float(c) for c in weights.codes[one.code]]
        decoded = linear(weights.decoder_weight, weights.decoder_bias, code)
        for axis in range(dim):
            commitment = 2 * (one.vector[axis] - code[axis]) / dim
            reconstruction = sum(
                2 * (decoded[p] - one.patch[p]) * float(weights.decoder_weight[p][axis]) / weights.size
                for p in range(weights.size)
            )
            gradient[axis] += (commitment_weight * commitment + reconstruction) / len(found)
    return gradient


# -- memory ---------------------------------------------------------------------------------------------------------


def activated(windows, weights):
    """Eq. 12 and 21 for one scale: the indices of the codes that training windows activate."""
    return {one.code for window in windows for row in embeddings(window, weights) for one in row}


def bank(codes, active):
    """Eq. 12 for one scale and, after adaptation, Eq. 25: the current codes at the activated indices."""
    return [codes[m] for m in sorted(active)]


def nearest_in(vector, memory, n):
    """The n nearest members of a memory, or all of them if there are fewer."""
    return sorted(memory, key=lambda member: squared_distance(vector, member))[: min(n, len(memory))]


def median(values):
    """The middle value, or the mean of the middle two."""
    values = sorted(values)
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2


def local_scale(vector, memory, n):
    """Eq. 13 for a member of the memory, Eq. 14 for a query: the median squared distance to its nearest members."""
    return median([squared_distance(vector, member) for member in nearest_in(vector, memory, n)])


def local_distance(query, member, memory, n):
    """Eq. 15."""
    scale = (local_scale(query, memory, n) + local_scale(member, memory, n)) / 2
    return squared_distance(query, member) / (scale + EPSILON)


def memory_score(query, memory, n, distance="local"):
    """The inner mean of Eq. 16: one quantized embedding, one scale. "plain" is the ablation's Euclidean distance."""
    neighbors = nearest_in(query, memory, n)
    if distance == "plain":
        return sum(math.sqrt(squared_distance(query, member)) for member in neighbors) / len(neighbors)
    return sum(local_distance(query, member, memory, n) for member in neighbors) / len(neighbors)


def quantization_score(vector, code):
    """The norm in Eq. 17: one embedding, one scale."""
    return math.sqrt(squared_distance(vector, code))


# -- back to time, scales -------------------------------------------------------------------------------------------


def covering(step, length, size, stride):
    """The patches that cover a time step of a window, or the last patch if there is none (design 2.6)."""
    count = patch_count(length, size, stride)
    found = [j for j in range(count) if j * stride <= step < j * stride + size]
    return found or [count - 1]


def back_to_time(values, length, size, stride):
    """Values [patch][variable] as [time][variable]: the mean over the patches that cover a step (design 2.6)."""
    steps = []
    for step in range(length):
        over = covering(step, length, size, stride)
        steps.append([sum(float(values[j][i]) for j in over) / len(over) for i in range(len(values[0]))])
    return steps


def raw_scores(window, scales, active, n, distance="local"):
    """Eq. 16 and 17 for each variable: both scores [time][variable] of a window, averaged over scales."""
    length, variables = len(window), len(window[0])
    memory = [[0.0] * variables for _ in range(length)]
    quantization = [[0.0] * variables for _ in range(length)]
    for weights, seen in zip(scales, active, strict=True):
        members = bank(weights.codes, seen)
        table = {m: memory_score(weights.codes[m], members, n, distance) for m in range(len(weights.codes))}
        found = embeddings(window, weights)
        distances = [[table[one.code] for one in row] for row in found]
        errors = [[quantization_score(one.vector, weights.codes[one.code]) for one in row] for row in found]
        for scores, values in ((memory, distances), (quantization, errors)):
            at_steps = back_to_time(values, length, weights.size, weights.stride)
            for step in range(length):
                for i in range(variables):
                    scores[step][i] += at_steps[step][i] / len(scales)
    return memory, quantization


# -- variables ------------------------------------------------------------------------------------------------------


def deviations(scores):
    """Eq. 26 and 27: |delta| of scores [time][variable] of one window."""
    length, variables = len(scores), len(scores[0])
    table = [[0.0] * variables for _ in range(length)]
    for i in range(variables):
        mean = sum(float(scores[t][i]) for t in range(length)) / length
        spread = math.sqrt(sum((float(scores[t][i]) - mean) ** 2 for t in range(length)) / length)
        for t in range(length):
            table[t][i] = abs((float(scores[t][i]) - mean) / (spread + EPSILON))
    return table


def percentile(values, rho):
    """Q_rho in Eq. 28, interpolated linearly between the two nearest values."""
    values = sorted(values)
    place = rho / 100 * (len(values) - 1)
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (place - low) * (values[high] - values[low])


def chosen_by_percentile(deviation, rho):
    """Eq. 28 and 29 at one time step: variables with a deviation of at most the percentile, and always the first."""
    threshold = percentile(deviation, rho)
    return {i for i in range(len(deviation)) if deviation[i] <= threshold} | {0}


def chosen_by_budget(deviation, budget):
    """Eq. 30 at one time step: the `budget` variables of lowest deviation, always including the first."""
    others = sorted(range(1, len(deviation)), key=lambda i: deviation[i])
    return {0, *others[: budget - 1]}


def selected(scores, choose):
    """Eq. 31: scores [time][variable] of one window as [time], the mean over the variables that `choose` returns."""
    steps = []
    for row, deviation in zip(scores, deviations(scores), strict=True):
        chosen = choose(deviation)
        steps.append(sum(float(row[i]) for i in chosen) / len(chosen))
    return steps


# -- normalization, mixing ------------------------------------------------------------------------------------------


def ema_min_max(batches, momentum):
    """Eq. 18, 19 and the line after, over batches of scores; the first batch initializes (design 2.10)."""
    low = high = None
    normalized = []
    for batch in batches:
        if low is None:
            low, high = min(batch), max(batch)
        else:
            low = momentum * low + (1 - momentum) * min(batch)
            high = momentum * high + (1 - momentum) * max(batch)
        normalized.append([(score - low) / (high - low + EPSILON) for score in batch])
    return normalized


def mixed(memory, quantization, weight):
    """Eq. 20."""
    return [(1 - weight) * m + weight * q for m, q in zip(memory, quantization, strict=True)]


# -- adaptation -----------------------------------------------------------------------------------------------------


def pseudo_label(code, seen):
    """Eq. 22: 0 if training activated the code, else 1."""
    return 0 if code in seen else 1


def cosine(left, right):
    """sim(., .), the line after Eq. 23."""
    dot = sum(float(a) * float(b) for a, b in zip(left, right, strict=True))
    norms = [math.sqrt(sum(float(a) ** 2 for a in vector)) for vector in (left, right)]
    return dot / (norms[0] * norms[1])


def contrastive_loss(vectors, labels, temperature):
    """Eq. 23, as a mean over samples instead of the paper's sum."""
    total = 0.0
    for n in range(len(vectors)):
        positives = [p for p in range(len(vectors)) if p != n and labels[p] == labels[n]]
        below = sum(math.exp(cosine(vectors[n], vectors[a]) / temperature) for a in range(len(vectors)) if a != n)
        for p in positives:
            above = math.exp(cosine(vectors[n], vectors[p]) / temperature)
            total -= math.log(above / below) / len(positives)
    return total / len(vectors)


# -- end to end -----------------------------------------------------------------------------------------------------


def scoring_windows(rows, length):
    """Design 2.3: (start, first new step) of consecutive windows, and of one at the end if a tail is left."""
    windows = [(start, 0) for start in range(0, rows - length + 1, length)]
    tail = rows % length
    if tail:
        windows.append((rows - length, length - tail))
    return windows


def scores(series, length, batch, scales, active, *, neighbors, rho, momentum, weight):
    """Algorithm 2 without step 2: one score per time step of a scaled series (time, variable)."""
    memory_batches, quantization_batches = [], []
    for number, (start, new) in enumerate(scoring_windows(len(series), length)):
        if number % batch == 0:
            memory_batches.append([])
            quantization_batches.append([])
        memory, quantization = raw_scores(series[start : start + length], scales, active, neighbors)
        for found, batches in ((memory, memory_batches), (quantization, quantization_batches)):
            batches[-1].extend(selected(found, lambda deviation: chosen_by_percentile(deviation, rho))[new:])
    memory = [score for batch in ema_min_max(memory_batches, momentum) for score in batch]
    quantization = [score for batch in ema_min_max(quantization_batches, momentum) for score in batch]
    return mixed(memory, quantization, weight)


# -- explanations ---------------------------------------------------------------------------------------------------


def rise(window, step, variable, typical, score):
    """The mean of two changes in the score of a step: its rise with one variable alone, and its fall without it.

    `score` returns one number per time step of a window (time, variable).
    """
    nothing = [list(typical) for _ in window]
    alone = [
        [reading if i == variable else typical[i] for i, reading in enumerate(readings)] for readings in window.tolist()
    ]
    without = [
        [typical[i] if i == variable else reading for i, reading in enumerate(readings)] for readings in window.tolist()
    ]
    raised = score(alone)[step] - score(nothing)[step]
    fallen = score(window.tolist())[step] - score(without)[step]
    return (raised + fallen) / 2


def shares(rises):
    """Each variable's share of the total, by its highest rise over the steps (time, variable); a fall counts as 0."""
    highest = [max(0.0, *(float(row[variable]) for row in rises)) for variable in range(len(rises[0]))]
    if sum(highest) == 0:
        return [1 / len(highest) for _ in highest]
    return [value / sum(highest) for value in highest]


def calibrated_tail(error, middle, high, excess):
    """An error on the scale of a tail: 0 up to the median, -ln 0.02 at the 98 % quantile, then growing by a log."""
    level = -math.log(0.02)
    if error > high:
        return level + math.log(1 + (error - high) / excess)
    return max(0.0, level * (error - middle) / (high - middle))


def usual_rise(steps, span):
    """The calibrated score of the highest of exponential errors: two for each window that fits beside the others."""
    return calibrated_tail(math.log(2 * (steps + span - 1) / span), 0.0, math.log(25), 1.0)


def usual_rise_of_level(steps):
    """About how much ln(1 + |z|) rises above its median in so many normal readings."""
    return math.log(1 + math.log(steps)) / 2


def rise_of_voice(before, inside, usual):
    """The highest score of an event less the median before it and the usual rise, at least 0; scores may be NaN."""
    known = sorted(score for score in before if not math.isnan(score))
    half = len(known) // 2
    median = 0.0 if not known else known[half] if len(known) % 2 else (known[half - 1] + known[half]) / 2
    heard = [score for score in inside if not math.isnan(score)]
    return max(0.0, max(heard) - median - usual) if heard else math.nan


def known_mean(values):
    """The mean of the values that are not NaN; NaN if all are."""
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def joined_rise(views, level):
    """The mean of what the views rose on average and what the level rose, as far as they are known."""
    rise = known_mean([known_mean(views), level])
    return 0.0 if math.isnan(rise) else rise


def own_rises(rises, replaced_by, rises_with, most=3):
    """What is left of rises after the highest variables, one after the other, read what is expected of them.

    `replaced_by(i)` replaces the readings of variable `i`, and `rises_with()` gives the rises after that.
    """
    own, replaced = list(rises), []
    while len(replaced) < min(most, len(own) - 1):
        i = max((i for i in range(len(own)) if i not in replaced), key=lambda i: own[i])
        replaced.append(i)
        replaced_by(i)
        left = rises_with()
        own = [own[k] if k in replaced else min(own[k], left[k]) for k in range(len(own))]
    return own


def worst_patch(window, variable, steps, scales, levels):
    """The scale and patch with a variable's worst quantization score on some steps of a window.

    The scale is the one whose mean score over these steps is furthest above its level; the patch is the worst one that
    covers the steps, the first one of a tie.
    """
    parts, patches = [], []
    for weights, level in zip(scales, levels, strict=True):
        shape = (len(window), weights.size, weights.stride)
        found = [
            quantization_score(*_with_code(window, variable, index, weights)) for index in range(patch_count(*shape))
        ]
        over_time = back_to_time([[value] for value in found], *shape)
        parts.append(sum(over_time[step][0] for step in steps) / len(steps) - level)
        on_steps = sorted({index for step in steps for index in covering(step, *shape)})
        patches.append(max(on_steps, key=lambda index: (found[index], -index)))
    scale = max(range(len(scales)), key=lambda k: (parts[k], -k))
    return scale, patches[scale]


def _with_code(window, variable, index, weights):
    vector = embedding(window, variable, index, weights)
    return vector, weights.codes[nearest_code(vector, weights.codes)]


def normal_code(window, variable, index, weights, active):
    """The nearest active code of one patch."""
    return active[nearest_code(embedding(window, variable, index, weights), [weights.codes[m] for m in active])]


def decoded(code, weights):
    """The patch that a code represents, in scaled readings."""
    return linear(weights.decoder_weight, weights.decoder_bias, [float(value) for value in weights.codes[code]])


def normal_reading(codes, step, length, tables, strides):
    """The reading of one step that the codes of one variable's patches, given for each scale, represent.

    It is the mean over the patches that cover it, then over the scales. A step after the last patch repeats its last
    reading.
    """
    means = []
    for own, table, stride in zip(codes, tables, strides, strict=True):
        size = len(table[0])
        on_step = covering(step, length, size, stride)
        readings = [float(table[own[index]][min(step - index * stride, size - 1)]) for index in on_step]
        means.append(sum(readings) / len(readings))
    return sum(means) / len(means)


# -- gaps -----------------------------------------------------------------------------------------------------------


def forward_filled(column, limit, center):
    """(value, imputed, doubtful) for each cell of one variable, in which NaN is missing."""
    filled = []
    last, age = None, 0
    for value in column:
        if not math.isnan(value):
            last, age = value, 0
            filled.append((value, False, False))
        else:
            age += 1
            held = last is not None and age <= limit
            filled.append((last if held else center, True, not held))
    return filled


def interpolated(column, limit, center):
    """The same with linear interpolation of each gap of up to `limit` cells between two measured ones."""
    filled = forward_filled(column, 0, center)
    measured = [t for t, value in enumerate(column) if not math.isnan(value)]
    for left, right in itertools.pairwise(measured):
        if right - left - 1 <= limit:
            for t in range(left + 1, right):
                share = (t - left) / (right - left)
                filled[t] = ((1 - share) * column[left] + share * column[right], True, False)
    return filled


def resampled(times, rows, period, rule):
    """Rows at integer times in bins [k * period, (k + 1) * period): the left edges and the value of each variable."""
    rules = {
        "last": lambda cells: cells[-1],
        "first": lambda cells: cells[0],
        "mean": lambda cells: sum(cells) / len(cells),
        "min": min,
        "max": max,
    }
    order = sorted(range(len(times)), key=lambda i: times[i])
    edges = range(min(times) // period * period, max(times) // period * period + 1, period)
    values = []
    for edge in edges:
        inside = [rows[i] for i in order if edge <= times[i] < edge + period]
        columns = [[row[v] for row in inside if not math.isnan(row[v])] for v in range(len(rows[0]))]
        values.append([rules[rule](cells) if cells else math.nan for cells in columns])
    return list(edges), values


def left_out(cells, scales):
    """The cells (time, variable) of a window that depend on a marked cell, through a patch over them at any scale.

    `scales` are sizes and strides; a step after the last patch is assigned to that patch.
    """
    length, variables = len(cells), len(cells[0])
    found = [[False] * variables for _ in range(length)]
    for t, i in itertools.product(range(length), range(variables)):
        found[t][i] = bool(cells[t][i])
        for size, stride in scales:
            starts = range(0, length - size + 1, stride)
            over = [start for start in starts if start <= t < start + size] or [starts[-1]]
            found[t][i] |= any(cells[u][i] for start in over for u in range(start, start + size))
    return found
