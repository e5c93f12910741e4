"""Expected readings: each patch replaced by the nearest code that training activated, decoded."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from cometad.arrays import Floats
from cometad.network.network import Scale

AT_ONCE = 8  # windows; limits the memory for their embeddings

Codes = NDArray[np.int32]


@torch.no_grad()
def normal_codes(scale: Scale, windows: NDArray[np.float32], codes: Codes, active: NDArray[np.bool_]) -> Codes:
    """The nearest active code of each patch, given the nearest of all codes; both are (window, patch, variable).

    `windows` are (window, time, variable) and `active` is (code,).
    """
    codes, inactive, known = codes.copy(), ~active[codes], np.flatnonzero(active)
    vectors = scale.codebook.vectors.double()
    normal = vectors[torch.as_tensor(known, device=vectors.device)]  # (active code, dim)
    for begin in range(0, len(windows), AT_ONCE):
        part = slice(begin, begin + AT_ONCE)
        if inactive[part].any():
            embeddings = scale.embed(torch.as_tensor(windows[part], device=vectors.device))
            embeddings = embeddings[torch.as_tensor(inactive[part], device=vectors.device)].double()
            chunks = torch.split(embeddings, 2**12)
            nearest = [torch.cdist(chunk, normal).argmin(dim=1).cpu().numpy() for chunk in chunks]
            codes[part][inactive[part]] = known[np.concatenate(nearest)]
    return codes


@torch.no_grad()
def decoded(scale: Scale) -> Floats:
    """The patch (code, size) that each code represents, in scaled readings."""
    patches: torch.Tensor = scale.decoder(scale.codebook.vectors)
    return patches.cpu().double().numpy()


def back_to_readings(codes: Sequence[Codes], tables: Sequence[Floats], strides: Sequence[int], length: int) -> Floats:
    """The readings (window, time, variable) that the codes (window, patch, variable) of all scales represent.

    `tables` are the decoded patches (code, size) of each scale. A time step is the mean over the patches that cover it,
    then over the scales; steps after the last patch of a scale repeat its last reading.
    """
    scales = [_of_scale(*scale, length) for scale in zip(codes, tables, strides, strict=True)]
    means: Floats = np.mean(scales, axis=0)
    return means


def _of_scale(codes: Codes, table: Floats, stride: int, length: int) -> Floats:
    windows, count, variables = codes.shape
    total, covering = np.zeros((windows, length, variables)), np.zeros((length, 1))
    for offset, readings in enumerate(table.T):
        steps = slice(offset, offset + (count - 1) * stride + 1, stride)  # this offset in every patch
        total[:, steps] += readings[codes]
        covering[steps] += 1
    end = (count - 1) * stride + table.shape[1]
    total[:, end:], covering[end:] = table[codes[:, -1:], -1], 1
    return total / covering
