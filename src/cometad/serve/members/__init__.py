"""Several services on one database: which one scores a stream, and how streams move."""
