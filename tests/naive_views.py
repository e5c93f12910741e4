"""The views and their scoring as plain loops, written from their definitions.

`rows` is a list of readings, one list of scaled values per time step. The error of a window belongs to its last time
step, and a time step with too few readings before it has the error NaN.
"""

import math

import naive

NAN = float("nan")


def window(rows, t, length):
    """The `length` readings up to time step t."""
    return [list(map(float, rows[s])) for s in range(t - length + 1, t + 1)]


def usable_ends(usable, length):
    """The time steps at which a window of usable readings ends."""
    return [t for t in range(length - 1, len(usable)) if all(usable[t - length + 1 : t + 1])]


def root_mean_square(values):
    return math.sqrt(sum(value * value for value in values) / len(values))


# -- errors, given what was learned ---------------------------------------------------------------------------------


def nearest(point, codes):
    """The position of the code with the least squared distance to a point."""
    distances = [sum((x - c) ** 2 for x, c in zip(point, code, strict=True)) for code in codes]
    return distances.index(min(distances))


def patterns(rows, codes):
    """Errors and expected readings; codes[i] are those of variable i."""
    width, length = len(codes), len(codes[0][0])
    errors, expected = unknown(rows, width), unknown(rows, width)
    for t in range(length - 1, len(rows)):
        for i in range(width):
            patch = [reading[i] for reading in window(rows, t, length)]
            code = codes[i][nearest(patch, codes[i])]
            errors[t][i] = root_mean_square([x - c for x, c in zip(patch, code, strict=True)])
            expected[t][i] = code[-1]
    return errors, expected


def joint(rows, codes, length):
    """Errors and expected readings; a code is a window of all variables, reading after reading."""
    width = len(rows[0])
    errors, expected = unknown(rows, width), unknown(rows, width)
    for t in range(length - 1, len(rows)):
        flat = [value for reading in window(rows, t, length) for value in reading]
        code = codes[nearest(flat, codes)]
        for i in range(width):
            errors[t][i] = root_mean_square([flat[k * width + i] - code[k * width + i] for k in range(length)])
            expected[t][i] = code[(length - 1) * width + i]
    return errors, expected


def forecast(rows, weights, level, lags):
    """Errors and expected readings; weights[k][i] is the weight of the k-th of the last readings, oldest first."""
    width = len(rows[0])
    errors, expected = unknown(rows, width), unknown(rows, width)
    for t in range(lags, len(rows)):
        last = [value for reading in window(rows, t - 1, lags) for value in reading]
        for i in range(width):
            expected[t][i] = level[i] + sum(value * weights[k][i] for k, value in enumerate(last))
            errors[t][i] = abs(rows[t][i] - expected[t][i])
    return errors, expected


def balance(rows, center, components):
    """Errors and expected readings; `center` (length, variable), orthonormal `components` (component, all of it)."""
    length, width = len(center), len(center[0])
    errors, expected = unknown(rows, width), unknown(rows, width)
    for t in range(length - 1, len(rows)):
        readings = window(rows, t, length)
        gaps = [readings[k][i] - center[k][i] for k in range(length) for i in range(width)]
        factors = [sum(g * c for g, c in zip(gaps, component, strict=True)) for component in components]
        explained = [
            sum(factor * component[d] for factor, component in zip(factors, components, strict=True))
            for d in range(length * width)
        ]
        for i in range(width):
            errors[t][i] = root_mean_square([gaps[k * width + i] - explained[k * width + i] for k in range(length)])
            expected[t][i] = center[-1][i] + explained[(length - 1) * width + i]
    return errors, expected


def blocks(columns, most, few, close):
    """The block of each column; correlations count in millionths."""

    def near(a, b):
        a, b = ([value - sum(column) / len(column) for value in column] for column in (columns[a], columns[b]))
        size = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(y * y for y in b))
        return round(1e6 * abs(sum(x * y for x, y in zip(a, b, strict=True))) / size) if size > 1e-12 else 0

    def closest(to):
        """The free column that is closest to others, and how close."""
        i = max(free, key=lambda i: (sum(near(i, j) for j in to), -i))
        return i, sum(near(i, j) for j in to)

    width = len(columns)
    most = math.ceil(width / math.ceil(width / most))
    free, found, others = list(range(width)), [], []
    while free:
        own = [closest(free)[0]]
        free.remove(own[0])
        while free and len(own) < most and closest(own)[1] >= close * 1e6 * len(own):
            own.append(closest(own)[0])
            free.remove(own[-1])
        if len(own) < few:
            others += own
        else:
            found.append(own)
    for count in range(math.ceil(len(others) / most), 0, -1):  # the larger parts first
        size = math.ceil(len(others) / count)
        found.append(others[:size])
        others = others[size:]
    return [next(k for k, own in enumerate(found) if i in own) for i in range(width)]


def log_deviation(values):
    mean = sum(values) / len(values)
    return 0.5 * math.log(sum((value - mean) ** 2 for value in values) / len(values) + 0.001)


def activity(rows, usual, length):
    """Errors; this view expects no particular reading."""
    width = len(usual)
    errors = unknown(rows, width)
    for t in range(length - 1, len(rows)):
        for i in range(width):
            values = [reading[i] for reading in window(rows, t, length)]
            errors[t][i] = abs(log_deviation(values) - usual[i])
    return errors, unknown(rows, width)


def network(rows, scales):
    """Errors and expected readings; `scales` are the `naive.Weights` of each patch size.

    The mean over scales of the distance of the last patch's embedding to the nearest code, and of the last reading that
    this code stands for.
    """
    width = len(rows[0])
    errors, expected = unknown(rows, width), unknown(rows, width)
    for t in range(max(weights.size for weights in scales) - 1, len(rows)):
        for i in range(width):
            distances, readings = [], []
            for weights in scales:
                vector = naive.embedding(window(rows, t, weights.size), i, 0, weights)
                code = naive.nearest_code(vector, weights.codes)
                distances.append(naive.quantization_score(vector, weights.codes[code]))
                readings.append(naive.decoded(code, weights)[-1])
            errors[t][i] = sum(distances) / len(scales)
            expected[t][i] = sum(readings) / len(scales)
    return errors, expected


def unknown(rows, width):
    return [[NAN] * width for _ in rows]


# -- fits that have a closed form -----------------------------------------------------------------------------------


def solve(matrix, right):
    """The solution of a linear system with several right-hand sides, by Gaussian elimination with pivots."""
    size = len(matrix)
    table = [[*map(float, matrix[k]), *map(float, right[k])] for k in range(size)]
    for k in range(size):
        pivot = max(range(k, size), key=lambda row: abs(table[row][k]))
        table[k], table[pivot] = table[pivot], table[k]
        for row in range(size):
            if row != k:
                factor = table[row][k] / table[k][k]
                table[row] = [a - factor * b for a, b in zip(table[row], table[k], strict=True)]
    return [[value / table[k][k] for value in table[k][size:]] for k in range(size)]


def ridge(rows, usable, lags, penalty):
    """The weights and level of a regression on the last `lags` readings; the level has no penalty."""
    ends, width = usable_ends(usable, lags + 1), len(rows[0])
    inputs = [[1.0, *(value for reading in window(rows, t - 1, lags) for value in reading)] for t in ends]
    size = 1 + lags * width
    gram = [
        [sum(x[a] * x[b] for x in inputs) + (penalty if a == b and a > 0 else 0.0) for b in range(size)]
        for a in range(size)
    ]
    right = [
        [sum(x[a] * rows[t][i] for x, t in zip(inputs, ends, strict=True)) for i in range(width)] for a in range(size)
    ]
    level, *weights = solve(gram, right)
    return weights, level


def covariance(rows, usable, length):
    """The center (length, variable) of the usable windows, and the sum of their outer products around it."""
    width, ends = len(rows[0]), usable_ends(usable, length)
    flat = [[value for reading in window(rows, t, length) for value in reading] for t in ends]
    mean = [sum(column) / len(flat) for column in zip(*flat, strict=True)]
    gaps = [[x - m for x, m in zip(point, mean, strict=True)] for point in flat]
    size = length * width
    outer = [[sum(gap[a] * gap[b] for gap in gaps) for b in range(size)] for a in range(size)]
    return [mean[k * width : (k + 1) * width] for k in range(length)], outer


def components_needed(variances, explained):
    """How many of the variances, largest first, add up to this share of all of them."""
    total, reached = sum(variances), 0.0
    for count, variance in enumerate(variances, start=1):
        reached += variance
        if reached >= explained * total:
            return count
    return len(variances)


def usual_activity(rows, usable, length):
    """The median of each variable's log standard deviation over the usable windows."""
    ends = usable_ends(usable, length)
    return [
        quantile([log_deviation([reading[i] for reading in window(rows, t, length)]) for t in ends], 0.5)
        for i in range(len(rows[0]))
    ]


# -- from errors to one score ---------------------------------------------------------------------------------------


def quantile(values, share):
    """The quantile of a sample, interpolated between its two neighbors in order."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def tails(errors):
    """Median, 98 % quantile and mean excess above it, of each variable; the widths have floors."""
    middles, widths, excesses = [], [], []
    for i in range(len(errors[0])):
        known = [row[i] for row in errors if not math.isnan(row[i])]
        middle, high = (quantile(known, 0.5), quantile(known, 0.98)) if known else (0.0, 0.0)
        beyond = [error - high for error in known if error > high]
        middles.append(middle)
        widths.append(high - middle)
        excesses.append(sum(beyond) / len(beyond) if beyond else 0.0)
    widths, excesses = floored(widths), floored(excesses)
    return middles, [middle + width for middle, width in zip(middles, widths, strict=True)], excesses


def floored(widths):
    """At least a tenth of their mean, and never nothing at all."""
    floor = max(0.1 * sum(widths) / len(widths), 1e-3)
    return [max(width, floor) for width in widths]


def calibrated(error, middle, high, excess):
    level = -math.log(0.02)
    if error <= high:
        return level * min(max((error - middle) / (high - middle), 0.0), 1.0)
    return level + math.log(1 + (error - high) / excess)


def fused(errors, fitted, weights, exponent):
    """The score of one time step, and of each variable; errors[v][i], fitted[v] = (middles, highs, excesses).

    The less weight the views that know an error have, the less counts what their mean has above the usual 1: it
    varies more.
    """
    variables = []
    for i in range(len(errors[0])):
        known = [v for v in range(len(errors)) if not math.isnan(errors[v][i])]
        share = sum(weights[v] for v in known)
        squares = [
            weights[v] * calibrated(errors[v][i], fitted[v][0][i], fitted[v][1][i], fitted[v][2][i]) ** 2 for v in known
        ]
        mean = math.sqrt(sum(squares) / share) if known else 0.0
        above = max(mean - 1.0, 0.0)
        variables.append(mean - above + above * math.sqrt(share))
    return power_mean(variables, exponent), variables


def weights(related):
    """What each view counts, given which of them judge relations: alike within a group, and so are the groups."""
    return [1 / (len(set(related)) * related.count(own)) for own in related]


def power_mean(values, exponent):
    return (sum(value**exponent for value in values) / len(values)) ** (1 / exponent)


def covering(errors, span):
    """For each time step the mean of the known errors whose windows of `span` steps cover it; errors (time,)."""
    means = []
    for t in range(len(errors)):
        known = [error for s, error in enumerate(errors) if s - span + 1 <= t <= s and not math.isnan(error)]
        means.append(sum(known) / len(known) if known else NAN)
    return means


def smoothed(scores, spans):
    """The mean of centered means; an even span has one step more before its center than after it."""
    result = []
    for t in range(len(scores)):
        means = []
        for span in spans:
            chosen = [score for s, score in enumerate(scores) if t - span // 2 <= s <= t + (span - 1) // 2]
            means.append(sum(chosen) / len(chosen))
        result.append(sum(means) / len(means) if means else scores[t])
    return result


# -- dirty history --------------------------------------------------------------------------------------------------


def measured(errors, usable, imputed, context, span, mixes):
    """Errors (time, variable), unknown if a reading in the context is not usable or one in the span is imputed.

    A view that mixes variables knows nothing of a span in which more than a tenth of them are imputed at a time.
    """
    result = []
    for t, row in enumerate(errors):
        clean = all(usable[max(t - context, 0) : t + 1])
        covered = range(max(t - span + 1, 0), t + 1)
        if mixes and any(sum(imputed[s]) > 0.1 * len(row) for s in covered):
            clean = False
        result.append(
            [error if clean and not any(imputed[s][i] for s in covered) else NAN for i, error in enumerate(row)]
        )
    return result


def usual_errors(averaged):
    """The median and the distance of the 90 % quantile above it, as pairs [view][variable]; averaged[t][v][i].

    Steps without any known error are left out; elsewhere an unknown error counts as 0. The distances have floors.
    """
    steps = [step for step in averaged if not all(math.isnan(error) for view in step for error in view)]
    usual = []
    for v in range(len(averaged[0])):
        middles, widths = [], []
        for i in range(len(averaged[0][0])):
            known = [0.0 if math.isnan(step[v][i]) else step[v][i] for step in steps]
            middles.append(quantile(known, 0.5))
            widths.append(quantile(known, 0.9) - middles[-1])
        usual.append(list(zip(middles, floored(widths), strict=True)))
    return usual


def misfits(errors, usual):
    """How many usual distances each error [v][i] of a step is above its median; 0 if it is below it or unknown."""
    return [
        [
            0.0 if math.isnan(error) else max((error - middle) / width, 0.0)
            for error, (middle, width) in zip(row, pairs, strict=True)
        ]
        for row, pairs in zip(errors, usual, strict=True)
    ]


def voters(rows):
    """The variables with more than 8 distinct values; all of them if there is none."""
    varied = [i for i in range(len(rows[0])) if len({row[i] for row in rows}) > 8]
    return varied or list(range(len(rows[0])))


def misfit_score(found, voting):
    """The mean over views of misfits [v][i], then the power mean over the variables that vote."""
    return power_mean([sum(view[i] for view in found) / len(found) for i in voting], 4)


def smoothed_misfits(scores):
    """Centered means over 64 steps; where they would be over fewer, the nearest whole one.

    A series of at most 128 steps has no step to hold.
    """
    means, rows = smoothed(scores, (64,)), len(scores)
    return means if rows <= 128 else [means[min(max(t, 32), rows - 32)] for t in range(rows)]


def misfitting(scores, usable):
    """Whether each step is usable and within 16 steps of a peak: high usable ones in a row, one of them far above."""
    known = [score for score, fine in zip(scores, usable, strict=True) if fine]
    middle, high = quantile(known, 0.5), quantile(known, 0.9)
    far = 3 * (high - middle)
    raised = [fine and score > middle + 0.7 * far for score, fine in zip(scores, usable, strict=True)]
    peaks = []
    for t, score in enumerate(scores):
        if usable[t] and score > middle + far:
            first = last = t
            while first > 0 and raised[first - 1]:
                first -= 1
            while last < len(scores) - 1 and raised[last + 1]:
                last += 1
            peaks.append((first, last))
    return [bool(usable[t]) and any(first - 16 <= t <= last + 16 for first, last in peaks) for t in range(len(scores))]


def worst_misfits(found):
    """The worst variables of misfits [t][v][i], and the view in which the worst of them fits least.

    At most three, worst first: those with at least half of the worst one's mean.
    """
    views = range(len(found[0]))

    def mean(i, chosen):
        return sum(step[v][i] for step in found for v in chosen) / (len(found) * len(chosen))

    means = {i: mean(i, views) for i in range(len(found[0][0]))}
    worst = sorted(means, key=lambda i: -means[i])[:3]
    return [i for i in worst if means[i] >= 0.5 * means[worst[0]]], max(views, key=lambda v: mean(worst[0], [v]))


def deviation(values):
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))


def suspect(rows, start, stop):
    """The median of each variable in the middle half of a stretch of rows [t][i], and whether it hardly moves there."""
    quarter = (stop - start) // 4
    length, levels, still = stop - start - 2 * quarter, [], []
    for column in zip(*rows, strict=True):
        parts = [column[k * length : (k + 1) * length] for k in range(len(rows) // length)]
        middle = column[start + quarter : stop - quarter]
        levels.append(quantile(middle, 0.5))
        still.append(deviation(middle) < 0.1 * quantile([deviation(part) for part in parts], 0.5))
    return levels, still


def reason_of(rows, start, stop, worst, levels, still, otherwise):
    """What is unusual about a stretch whose worst variable of rows [t][i] is `worst`."""
    if sum(still) > len(still) / 2:
        return "standstill"
    if still[worst]:
        return "stuck"
    column = [row[worst] for row in rows[:start] + rows[stop:]]
    if levels[worst] > quantile(column, 0.98):
        return "too high"
    return "too low" if levels[worst] < quantile(column, 0.02) else otherwise


def changed_for_good(column, start, stop):
    """Whether 96 % of the readings before and after one end of a stretch do not overlap, leaving out 64 around it."""
    least = max(256, 0.05 * len(column))
    for step in (start, stop):
        before, after = column[: max(step - 64, 0)] or [NAN], column[step + 64 :] or [NAN]
        apart = quantile(after, 0.02) > quantile(before, 0.98) or quantile(after, 0.98) < quantile(before, 0.02)
        if min(len(before), len(after)) >= least and apart:
            return True
    return False


# -- adaptation -----------------------------------------------------------------------------------------------------


def level_step(offset, readings, expected, scores, half_life, limit, max_drift, every):
    """The proposed offset of one variable; expected[v][t] is what view v expects, both without the old offset.

    A score or an expectation of NaN is unknown.
    """
    distances = [
        readings[t] - offset - view[t]
        for view in expected
        for t in range(len(readings))
        if scores[t] <= limit and not math.isnan(view[t])
    ]
    mean = sum(distances) / len(distances) if distances else 0.0
    moved = offset + (1 - 0.5 ** (every / half_life)) * mean
    return min(max(moved, -max_drift), max_drift)
