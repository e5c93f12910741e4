"""Sinusoidal position encodings."""

import math

import torch
from torch import Tensor


def sinusoid(length: int, dim: int) -> Tensor:
    """Position encodings (time, dim): sines and cosines of decreasing frequency, interleaved."""
    frequencies = torch.exp(-math.log(10_000) * torch.arange(0, dim, 2) / dim)
    angles = torch.arange(length)[:, None] * frequencies
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)[:, :dim]
