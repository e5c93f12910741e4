"""Structured logs on stderr: lines of text for people, or JSON for machines."""

import logging
import sys
from typing import Any

import structlog


def configure_logs(form: str) -> None:
    """Send the logs of the service to stderr, as "text" or "json"."""
    renderer: Any = (
        structlog.processors.JSONRenderer() if form == "json" else structlog.dev.ConsoleRenderer(colors=False)
    )
    tracebacks = structlog.processors.format_exc_info if form == "json" else lambda _, __, event: event
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            tracebacks,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
