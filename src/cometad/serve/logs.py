"""Structured logs on stderr: lines of text for people, or JSON for machines."""

import logging
import sys
from typing import Any

import structlog


def configure_logs(form: str, quiet: bool = False) -> None:
    """Send the logs of the service and of its HTTP server to stderr, as "text" or "json"; if quiet, only errors."""
    # Plain tracebacks: those of rich show local variables, which may hold tokens.
    plain = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    renderer: Any = structlog.processors.JSONRenderer() if form == "json" else plain
    tracebacks = structlog.processors.format_exc_info if form == "json" else lambda _, __, event: event
    shared: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        tracebacks,
    ]
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR if quiet else logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    without_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(processors=[without_meta, renderer], foreign_pre_chain=shared)
    )
    server = logging.getLogger("uvicorn")
    server.handlers, server.propagate = [handler], False
    server.setLevel(logging.WARNING)
    # Notes on each body, such as ignored fields, are for those who sent it.
    logging.getLogger("cometad").setLevel(logging.WARNING)
