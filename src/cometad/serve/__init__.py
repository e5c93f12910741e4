"""The live service: readings in over HTTP, scores and events out, a page to watch; `cometad serve` starts it.

In: batches from requests and connectors. Out: what is stored, answers, live updates.
Always: acknowledged after the disk; a snapshot is never newer than the readings; the recorder alone writes readings,
the scorer alone scores.
"""
