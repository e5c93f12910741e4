"""Tells receivers: events through an outbox, scores as copies.

In: changes of events in the transaction that stores them, and fresh scores. Out: messages to `connect/out`.
Always: an event is sent at least once, with the same id each time, even after a crash.
"""
