"""What the service keeps: detectors, streams, readings, scores, events, tokens; in SQLite or PostgreSQL."""
