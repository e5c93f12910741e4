"""The HTTP API: one file per resource; each route parses, calls the service and answers."""
