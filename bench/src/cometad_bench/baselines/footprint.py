"""How much memory a network needs, estimated before any is allocated."""

import os
from pathlib import Path

import torch
from torch import Tensor, nn

from cometad.errors import ParameterError

# Per parameter in training: its value, its gradient, the two moments of AdamW, and the copy from the best epoch.
BYTES_PER_PARAMETER = 5 * 4
# Memory for the windows processed at once: bytes on the CPU, a share of all memory on a GPU. It does not depend on free
# memory: splitting a batch differently changes the last bits, and equal seeds must give equal bytes.
CPU_BYTES, CUDA_SHARE = 2 * 2**30, 1 / 8


def parameter_count(network: nn.Module) -> int:
    """The number of parameters of a network."""
    return sum(parameter.numel() for parameter in network.parameters())


class Activations:
    """Counts the bytes a forward pass keeps for the backward pass. On the "meta" device this allocates nothing."""

    def __init__(self) -> None:
        self._kept: dict[int, Tensor] = {}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._count, lambda tensor: tensor)

    def __enter__(self) -> "Activations":
        self._hooks.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._hooks.__exit__()

    @property
    def bytes(self) -> int:
        """The bytes kept so far, without views and parameters."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self._kept.values())

    def _count(self, tensor: Tensor) -> Tensor:
        whole = tensor if tensor._base is None else tensor._base
        if not isinstance(whole, nn.Parameter):
            self._kept[id(whole)] = whole
        return tensor


def windows_at_once(window_bytes: int, device: str) -> int:
    """The number of windows to process at once, at least one."""
    available = CUDA_SHARE * _memory(device) if device.startswith("cuda") else CPU_BYTES
    return max(1, int(available // max(1, window_bytes)))


def check_fits(parameters: int, activations: int, device: str, what: str) -> None:
    """Refuse a network that needs more memory than the machine or GPU has in total."""
    needed, total = parameters * BYTES_PER_PARAMETER + activations, _memory(device)
    if needed > total:
        raise ParameterError(
            f"{what} has {parameters:,} parameters and needs about {needed / 2**30:,.1f} GiB of memory, but "
            f"there are only {total / 2**30:,.1f} GiB. Use fewer variables, a shorter window or smaller layers."
        )


def _memory(device: str) -> int:
    if device.startswith("cuda"):
        return torch.cuda.get_device_properties(device).total_memory
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")  # limit of a container
    text = limit.read_text().strip() if limit.exists() else "max"
    return whole if text == "max" else min(whole, int(text))
