"""Where readings come from: each connector turns what arrives into batches, and hands them to a receiver.

In: messages of a broker, rows of a file, values of a server, a request body. Out: batches of readings in order.
Always: acknowledged once stored; delivered again after a crash, stored once.
"""

from cometad.connect.contract import ReadingBatch, Receipt, Receiver, Refusal
from cometad.lazy import keep_names

__all__ = ["ReadingBatch", "Receipt", "Receiver", "Refusal"]

keep_names(__name__, {"parts": "cometad.connect.source"})
