"""Live scoring: streams, sessions that resume from snapshots, and the parsing and ordering of readings."""
