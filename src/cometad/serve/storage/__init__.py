"""What the service keeps: detectors, streams, readings, scores, events, tokens; in SQLite or PostgreSQL.

In: rows of a transaction. Out: history in chunks. Always: databases of earlier formats are upgraded when they open.
"""
