"""Several services on one database: which one scores a stream, and how streams move.

In: streams and the clock of the database. Out: who owns what. Always: exactly one scores a stream; a process that was
frozen writes nothing for streams that moved, because every transaction checks the epoch.
"""
