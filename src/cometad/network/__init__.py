"""The network of the paper: patches, encoder, codebook, training, memory, adaptation. Fast versions are in `fast`."""

from cometad.network.adaptation import NoAdaptation, OnlineAdaptation
from cometad.network.schedules import Epochs, Halving, OneCycle

__all__ = ["Epochs", "Halving", "NoAdaptation", "OneCycle", "OnlineAdaptation"]
