"""Networks as named arrays, the form in which checkpoints store them."""

from collections.abc import Mapping

import torch
from torch import nn

from cometad.arrays import Array

PREFIX = "network."


def to_arrays(network: nn.Module) -> dict[str, Array]:
    """The parameters and buffers of a network, by name.

    >>> import torch
    >>> from cometad.network.state import to_arrays
    >>> sorted(to_arrays(torch.nn.Linear(3, 2)))
    ['network.bias', 'network.weight']
    """
    return {PREFIX + name: value.detach().cpu().numpy().copy() for name, value in network.state_dict().items()}


def from_arrays(network: nn.Module, arrays: Mapping[str, Array]) -> None:
    """Load the arrays of `to_arrays` into a network; arrays with other names are ignored.

    >>> import torch
    >>> from cometad.network.state import from_arrays, to_arrays
    >>> one, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    >>> from_arrays(other, to_arrays(one))
    >>> torch.equal(one.weight, other.weight)
    True
    """
    own = {name.removeprefix(PREFIX): torch.tensor(value) for name, value in arrays.items() if name.startswith(PREFIX)}
    network.load_state_dict(own)
