"""Several services on one database: who scores which stream, and how a stream moves."""
