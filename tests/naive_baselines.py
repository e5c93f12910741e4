"""The distinctive part of each deep or window baseline as plain loops, written from its formulas."""

import math

import numpy as np


def softmax(values):
    """The softmax of a list of numbers."""
    highest = max(values)
    weights = [math.exp(value - highest) for value in values]
    return [weight / sum(weights) for weight in weights]


def linear(layer, vector):
    """The output of a linear layer for one vector."""
    weight = layer.weight.detach().double().numpy()
    bias = np.zeros(len(weight)) if layer.bias is None else layer.bias.detach().double().numpy()
    return weight @ np.asarray(vector, dtype=float) + bias


def attention(queries, keys, values, extra=None, keep=None, scale=None):
    """One attention head: for each token, the values of all tokens weighted by a softmax over its logits."""
    scale = scale or math.sqrt(len(queries[0]))
    attended, rows = [], []
    for i, query in enumerate(queries):
        logits = [float(np.dot(query, key)) / scale for key in keys]
        if extra is not None:
            logits = [logit + extra[i][j] for j, logit in enumerate(logits)]
        if keep is not None:
            logits = [logit if keep[i][j] else -math.log(1e10) for j, logit in enumerate(logits)]
        rows.append(softmax(logits))
        attended.append(sum(weight * np.asarray(value) for weight, value in zip(rows[-1], values, strict=True)))
    return attended, rows


def gaussian_prior(widths):
    """One row per time step: the normal densities of the distances to all time steps, divided by their sum."""
    rows = []
    for i, width in enumerate(widths):
        densities = [
            math.exp(-((i - j) ** 2) / (2 * width**2)) / (math.sqrt(2 * math.pi) * width) for j in range(len(widths))
        ]
        rows.append([density / sum(densities) for density in densities])
    return rows


def divergence(left, right):
    """The KL divergence of one row from another."""
    return sum(p * (math.log(p + 1e-4) - math.log(q + 1e-4)) for p, q in zip(left, right, strict=True))


def lstm_step(layer, reading, hidden, cell):
    """One step of a one-layer LSTM."""
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    inward, around, inward_bias, around_bias = (getattr(layer, name).detach().double().numpy() for name in names)
    gates = inward @ reading + inward_bias + around @ hidden + around_bias
    enter, forget, candidate, leave = np.split(gates, 4)
    cell = sigmoid(forget) * cell + sigmoid(enter) * np.tanh(candidate)
    return sigmoid(leave) * np.tanh(cell), cell


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def mask_loss(cosine, mask, temperature=0.07, sparsity=0.5):
    """CATCH: low if the mask admits similar channels and few others."""
    channels, kept, others = len(mask), 0.0, 0.0
    for i in range(channels):
        inside = sum(math.exp(cosine[i][j] / temperature) * mask[i][j] for j in range(channels))
        kept -= math.log(inside / sum(math.exp(cosine[i][j] / temperature) for j in range(channels)))
        others += sum(mask[i][j] for j in range(channels) if j != i)
    return kept / channels + sparsity * others / (channels * (channels - 1))


def spectrum_score(errors, size):
    """CATCH: the mean amplitude of the error spectrum, averaged over the patches that cover a time step."""
    length, variables = errors.shape
    scores = np.zeros(length)
    for step in range(length):
        found = []
        for start in range(length - size + 1):
            if start <= step < start + size:
                for variable in range(variables):
                    patch = errors[start : start + size, variable]
                    sizes = []
                    for frequency in range(size):
                        turns = [np.exp(-2j * math.pi * frequency * k / size) for k in range(size)]
                        sizes.append(abs(sum(value * turn for value, turn in zip(patch, turns, strict=True))))
                    found.append(np.mean(sizes))
        scores[step] = np.mean(found)
    return scores


def nearest_offset(window, stable, shift):
    """D3R: for each value, the smallest difference to the shifted stable part, extended by its end values."""
    length, variables = window.shape
    rest = np.zeros_like(window)
    for step in range(length):
        for variable in range(variables):
            offsets = []
            for moved in range(-shift, shift + 1):
                where = min(max(step + moved, 0), length - 1)
                offsets.append(window[step, variable] - stable[where, variable])
            rest[step, variable] = min(offsets, key=abs)
    return rest


def kept_after(step, steps=1000, low=1e-4, high=0.02):
    """D3R: the share of the variance that is left after a step of the diffusion."""
    kept = 1.0
    for number in range(step + 1):
        kept *= 1 - (low + (high - low) * number / (steps - 1))
    return kept


def windows(readings, length):
    """All windows of consecutive readings, each as one list, oldest reading first."""
    return np.array([readings[end - length : end].ravel() for end in range(length, len(readings) + 1)])


def spread_to_start(scores, length):
    """One score per reading: that of the window that ends with it, or of the first window."""
    return np.array([scores[max(step - length + 1, 0)] for step in range(len(scores) + length - 1)])


def mean_of_covering(values, length):
    """One value per reading: the mean over the windows that cover it."""
    rows = range(len(values) + length - 1)
    covering = [[value for start, value in enumerate(values) if start <= row < start + length] for row in rows]
    return np.array([np.mean(some, axis=0) for some in covering])


def neighbor_distance(window, others, neighbors):
    """The distance of a window to the nearest of others, not counting the `neighbors - 1` nearest."""
    return sorted(math.sqrt(sum((window - other) ** 2)) for other in others)[neighbors - 1]


def component_errors(training, window, share, variables):
    """The root mean square error of each variable of a window rebuilt from the components of training windows."""
    center = training.mean(axis=0)
    _, lengths, directions = np.linalg.svd(training - center, full_matrices=False)
    count = 0
    while sum(lengths[:count] ** 2) < share * sum(lengths**2) - 1e-12:
        count += 1
    rebuilt = center.copy()
    for direction in directions[: min(max(count, 1), len(window) - 1)]:
        rebuilt += (window - center) @ direction * direction
    missed = window - rebuilt
    return [math.sqrt(np.mean([error**2 for error in missed[i::variables]])) for i in range(variables)]


def validation_error(inputs, target, penalty):
    """Generalized cross-validation of a ridge regression: n |y - Hy|^2 / trace(I - H)^2, with its matrix H."""
    count = len(inputs)
    apart = inputs - inputs.mean(axis=0)
    inner = apart.T @ apart + count * penalty * np.eye(inputs.shape[1])
    hat = apart @ np.linalg.inv(inner) @ apart.T + np.full((count, count), 1 / count)
    return count * sum((target - hat @ target) ** 2) / np.trace(np.eye(count) - hat) ** 2


def ridge_forecast(inputs, target, penalty, given):
    """What a ridge regression with an intercept predicts: the penalty holds for all weights but the intercept."""
    columns = np.column_stack([inputs, np.ones(len(inputs))])
    penalties = np.diag([len(inputs) * penalty] * inputs.shape[1] + [0.0])
    return np.append(given, 1.0) @ np.linalg.solve(columns.T @ columns + penalties, columns.T @ target)
