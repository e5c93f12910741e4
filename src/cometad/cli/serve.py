"""`cometad serve` and `cometad token`."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cometad.cli.exits import say
from cometad.cli.options import flag
from cometad.errors import needs_extra

if TYPE_CHECKING:
    from cometad.serve.settings import Settings
    from cometad.serve.tokens import Tokens


@dataclass(frozen=True)
class ServiceOptions:
    data_dir: Path | None = flag("Folder for everything the service keeps. Default: cometad-data.")
    database: str | None = flag("URL of a PostgreSQL database to use instead of SQLite in the data folder.")
    config: Path | None = flag("File with the settings. Default: cometad.toml here, if there is one.")

    def settings(self, **flags: Any) -> "Settings":
        """The settings of the service; `flags` are further ones."""
        from cometad.serve.settings import load_settings

        return load_settings(self.config, data_dir=self.data_dir, database=self.database, **flags)


def serve(
    host: str | None = flag("Address to listen on. Default: 127.0.0.1."),
    port: int | None = flag("Port to listen on. Default: 8080."),
    *,
    service: ServiceOptions,
    fleet: Path | None = flag("Folder of a fleet; each entity becomes a stream with its first reading."),
    log_format: str | None = flag("text or json. Default: text."),
    check: bool = flag("Say what it would do, and exit.", "--check", default=False),
) -> None:
    """Run the live service: readings in over HTTP, scores, events and a dashboard out.

    Open its address in a browser. Everything is kept in one folder. Without a token, it listens on this machine only;
    create one with cometad token create before it listens elsewhere.

    Settings come from flags, then from environment variables such as COMETAD_SERVE_PORT, then from the table serve of
    cometad.toml.
    """
    needs_extra("fastapi", "serve")

    from cometad.serve.server import plan, run

    settings = service.settings(host=host, port=port, log_format=log_format, fleet=fleet)
    if check:
        for sentence in plan(settings):
            print(sentence)
        return
    run(settings, say)


def create_token(
    name: Annotated[str, typer.Argument(help="Who uses it, such as gateway-3.")],
    scope: str = flag("read, write (includes read) or admin (includes both).", default="read"),
    *,
    service: ServiceOptions,
) -> None:
    """Create a token and print it. It is stored as a hash, so it cannot be shown again."""
    with _tokens(service) as tokens:
        print(tokens.create(name, scope))
    say(f"Created the token {name!r} with the scope {scope}. Send it as Authorization: Bearer TOKEN.")


def list_tokens(service: ServiceOptions) -> None:
    """List tokens by name, with their scopes."""
    with _tokens(service) as tokens:
        found = tokens.list()
    for token in found:
        print(f"{token.name}\t{token.scope}\t{datetime.fromtimestamp(token.created, UTC):%Y-%m-%d %H:%M}")
    if not found:
        say("There is no token. The service listens on this machine only until you create one.")


def revoke_token(name: Annotated[str, typer.Argument(help="Name of the token.")], *, service: ServiceOptions) -> None:
    """Delete a token. A running service refuses it after two seconds at most."""
    with _tokens(service) as tokens:
        tokens.revoke(name)
    say(f"Revoked the token {name!r}.")


@contextmanager
def _tokens(service: ServiceOptions) -> "Iterator[Tokens]":
    needs_extra("sqlalchemy", "serve")

    from cometad.serve.storage.store import Store
    from cometad.serve.tokens import Tokens

    with closing(Store.of(service.settings())) as store:
        yield Tokens(store)
