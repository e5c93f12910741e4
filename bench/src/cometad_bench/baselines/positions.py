"""Sinusoidal position encodings."""

import math

import torch
from torch import Tensor


def sinusoid(length: int, dim: int) -> Tensor:
    """Position encodings (time, dim): sines and cosines of decreasing frequency, interleaved.

    >>> from cometad_bench.baselines.positions import sinusoid
    >>> sinusoid(2, 4)
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    frequencies = torch.exp(-math.log(10_000) * torch.arange(0, dim, 2) / dim)
    angles = torch.arange(length)[:, None] * frequencies
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)[:, :dim]
