"""The live service: readings in over HTTP, scores and events out, a page to watch; `cometad serve` starts it."""
