"""Networks as named arrays, the form in which checkpoints store them."""

from collections.abc import Callable, Mapping
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


def weights(at: str, build: Callable[[Any], nn.Module] | None = None) -> SavedField:
    """A field of a table: the attribute `at` is a network, which `build` makes, untrained, from its owner.

    Without `build` the network is there already, and takes the arrays.
    """

    def save(owner: Any, name: str, state: dict[str, Array]) -> None:
        state |= to_arrays(getattr(owner, at))

    def load(owner: Any, name: str, state: State, sizes: dict[str, int]) -> None:
        if build is None:
            from_arrays(getattr(owner, at), state)
            return
        for count in ("layers", "blocks"):  # each has arrays: a file cannot ask for more than it holds
            require_state(getattr(owner, count, 0) <= len(state), f"it has fewer {count} than its parameters say")
        setattr(owner, at, restored_network(lambda: build(owner), state, owner.device))

    return SavedField(save, load)


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
