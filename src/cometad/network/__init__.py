"""The published network: patches, encoder, codebook, training, memory, adaptation. `fast` holds its kernels."""

from cometad.network.adaptation import NoAdaptation, OnlineAdaptation
from cometad.network.schedules import Epochs, Halving, OneCycle

__all__ = ["Epochs", "Halving", "NoAdaptation", "OneCycle", "OnlineAdaptation"]
