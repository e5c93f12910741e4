"""Where readings come from: each connector turns what arrives into blocks, and hands them to a receiver."""

from cometad.connect.contract import Block, Receipt, Receiver, Refusal

__all__ = ["Block", "Receipt", "Receiver", "Refusal"]
