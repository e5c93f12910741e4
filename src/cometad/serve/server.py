"""Start the service, listen, and stop it properly."""

import errno
import signal
import socket
from collections.abc import Callable
from contextlib import closing

import structlog
import uvicorn

from cometad.errors import OutputError, ParameterError
from cometad.serve.api.app import make_app
from cometad.serve.logs import configure_logs
from cometad.serve.service import Service
from cometad.serve.settings import Settings, address

GRACE = 5  # seconds for requests that run when the service is stopped

_log = structlog.get_logger("cometad.serve")


class _Server(uvicorn.Server):
    """A server that ends its live connections when it is asked to stop, instead of waiting for the clients."""

    def __init__(self, config: uvicorn.Config, say_listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._say_listening = say_listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._say_listening()  # signals are handled by now: whoever reads it may stop the service at once

    def handle_exit(self, sig: int, frame: object) -> None:
        # Not uvicorn's own, which raises the signal again at the end: a service that was asked to stop has not failed.
        self.config.app.state.stopping = True  # type: ignore[union-attr]
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


def plan(settings: Settings) -> list[str]:
    """What a service with these settings would do, in sentences; refuses what cannot work."""
    with closing(Service(settings)) as service:
        check_listening(service)
        where = "PostgreSQL" if settings.database else f"'{settings.data_dir}'"
        tokens = len(service.tokens.list())
        known = "with the one token that exists" if tokens == 1 else f"with one of {tokens} tokens"
        who = known if tokens else "from this machine only, because there is no token"
        count = len(service.fleet.entities)
        fleet = [f"It would open streams of {count:,} entities of '{settings.fleet}' with their first readings."]
        told = [f"It would tell {one.name!r} at {one.url} about events." for one in service.notifications.told.values()]
        told += [f"It would send scores to {one.name!r} at {one.url}." for one in service.notifications.copies]
        return [
            f"It would listen on {address(settings.host, settings.port)} and accept requests {who}.",
            f"It would keep everything in {where} (format {service.store.format}): "
            f"{len(service.detectors.all())} detectors and {service.count_streams()} streams.",
            f"It would delete readings after {settings.keep_readings_days:g} days, scores after "
            f"{settings.keep_scores_days:g} days, and the oldest of both beyond {settings.keep_gigabytes:g} GB.",
            *(fleet if settings.fleet else []),
            *told,
        ]


def check_listening(service: Service) -> None:
    if not service.settings.is_local and not service.tokens.any:
        raise ParameterError(
            f"Without a token, the service listens on this machine only, not on {service.settings.host}. Create a "
            "token with cometad token create NAME --scope admin, or leave out --host."
        )


def run(settings: Settings, say: Callable[[str], None] = lambda sentence: None) -> None:
    """Serve until interrupted; then score and store everything that was accepted. `say` gets the address to open."""
    configure_logs(settings.log_format)
    with closing(Service(settings)) as service:
        check_listening(service)
        with closing(_listening(settings)) as listener:
            url = address(settings.host, listener.getsockname()[1])
            service.notifications.outbox.url = settings.public_url or url
            service.start()

            def say_listening() -> None:
                if settings.log_format == "text":
                    say(f"Open {url} in a browser. Stop with Ctrl-C.")
                _log.info("listening", url=url, data=str(settings.data_dir), tokens=service.tokens.any)

            config = uvicorn.Config(
                make_app(service),
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=GRACE,
                limit_concurrency=2000,
                h11_max_incomplete_event_size=64 * 1024,
            )
            _Server(config, say_listening).run(sockets=[listener])
    _log.info("stopped")


def _listening(settings: Settings) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        listener = socket.create_server((settings.host, settings.port), family=family, backlog=1024)
        # Connections inherit it. asyncio does not set it here, and an answer sent in two parts would wait 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        advice = (
            "Choose another with --port." if error.errno == errno.EADDRINUSE else "Choose another --host or --port."
        )
        raise OutputError(
            f"Cannot listen on {settings.host}:{settings.port}: {error.strerror or error}. {advice}"
        ) from error
