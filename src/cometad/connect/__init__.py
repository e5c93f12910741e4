"""Where readings come from: each connector turns what arrives into batches, and hands them to a receiver."""

from cometad.connect.contract import ReadingBatch, Receipt, Receiver, Refusal

__all__ = ["ReadingBatch", "Receipt", "Receiver", "Refusal"]
