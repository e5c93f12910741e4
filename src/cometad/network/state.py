"""Networks as named arrays, the form in which checkpoints store them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import nn

from cometad.arrays import Array
from cometad.network.loop import seeded
from cometad.saving import SavedField, State, require_state, taken

PREFIX = "network."

Built = TypeVar("Built", bound=nn.Module)


def to_arrays(network: nn.Module) -> dict[str, Array]:
    return {PREFIX + name: value.detach().cpu().numpy().copy() for name, value in network.state_dict().items()}


def from_arrays(network: nn.Module, arrays: Mapping[str, Array]) -> None:
    """Load the arrays of `to_arrays` into a network; arrays with other names are ignored."""
    own = _checked(network, arrays)
    network.load_state_dict({name: torch.tensor(value) for name, value in own.items()})


@dataclass(frozen=True)
class _Weights:
    at: str
    build: Callable[[Any], nn.Module] | None

    def save(self, owner: Any, name: str, state: dict[str, Array]) -> None:
        state |= to_arrays(getattr(owner, self.at))

    def load(self, owner: Any, name: str, state: State, sizes: dict[str, int]) -> None:
        build = self.build
        if build is None:
            from_arrays(getattr(owner, self.at), state)
        else:
            setattr(owner, self.at, restored_network(lambda: build(owner), state, owner.device))


def weights(at: str, build: Callable[[Any], nn.Module] | None = None) -> SavedField:
    """A field of a table: the attribute `at` is a network, which `build` makes, untrained, from its owner.

    Without `build` the network is there already, and takes the arrays.
    """
    return _Weights(at, build)


def restored_network(build: Callable[[], Built], arrays: Mapping[str, Array], device: str) -> Built:
    """A network with the arrays of `to_arrays`; refuses those of another network before it allocates anything."""
    with torch.device("meta"):  # shapes only: parameters in a file may ask for a network of any size
        _checked(build(), arrays)
    with seeded(0, torch.device("cpu")):  # loading overwrites the random weights
        network = build()
    from_arrays(network, arrays)
    return network.to(device)


def _checked(network: nn.Module, arrays: Mapping[str, Array]) -> dict[str, Array]:
    wanted = network.state_dict()
    own = {name.removeprefix(PREFIX): array for name, array in arrays.items() if name.startswith(PREFIX)}
    require_state(own.keys() == wanted.keys(), "its arrays are not those of its network")
    for name, like in wanted.items():
        taken(arrays, PREFIX + name, tuple(like.shape), str(like.dtype).removeprefix("torch."))
    return own
