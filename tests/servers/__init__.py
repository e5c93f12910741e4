"""Real servers that tests and benchmarks start themselves."""
