"""The verbs `cometad bench` and `cometad data`."""
