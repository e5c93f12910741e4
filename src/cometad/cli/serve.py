"""`cometad serve` and `cometad token`."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cometad.cli.exits import say

if TYPE_CHECKING:
    from cometad.serve.tokens import Tokens

Config = Annotated[
    Path | None, typer.Option("--config", help="File with the settings. Default: cometad.toml here, if there is one.")
]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="Folder for everything the service keeps. Default: cometad-data.")
]
Database = Annotated[
    str | None,
    typer.Option("--database", help="URL of a PostgreSQL database to use instead of SQLite in the data folder."),
]


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on. Default: 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on. Default: 8080.")] = None,
    data_dir: DataDir = None,
    database: Database = None,
    config: Config = None,
    fleet: Annotated[
        Path | None,
        typer.Option(help="Folder of a fleet; each entity becomes a stream with its first reading."),
    ] = None,
    log_format: Annotated[str | None, typer.Option(help="text or json. Default: text.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Say what it would do, and exit.")] = False,
) -> None:
    """Run the live service: readings in over HTTP, scores, events and a dashboard out.

    Open its address in a browser. Everything is kept in one folder. Without a token, it listens on this machine only;
    create one with cometad token create before it listens elsewhere.

    Settings come from flags, then from environment variables such as COMETAD_SERVE_PORT, then from the table serve of
    cometad.toml.
    """
    from cometad.errors import needs_extra

    needs_extra("fastapi", "serve")

    from cometad.serve.server import plan, run
    from cometad.serve.settings import load_settings

    flags = {"host": host, "port": port, "data_dir": data_dir, "database": database, "log_format": log_format}
    settings = load_settings(config, **flags, fleet=fleet)
    if check:
        for sentence in plan(settings):
            print(sentence)
        return
    run(settings, say)


def create_token(
    name: Annotated[str, typer.Argument(help="Who uses it, such as gateway-3.")],
    scope: Annotated[str, typer.Option(help="read, write (includes read) or admin (includes both).")] = "read",
    data_dir: DataDir = None,
    database: Database = None,
    config: Config = None,
) -> None:
    """Create a token and print it. It is stored as a hash, so it cannot be shown again."""
    with _tokens(config, data_dir, database) as tokens:
        print(tokens.create(name, scope))
    say(f"Created the token {name!r} with the scope {scope}. Send it as Authorization: Bearer TOKEN.")


def list_tokens(data_dir: DataDir = None, database: Database = None, config: Config = None) -> None:
    """List tokens by name, with their scopes."""
    with _tokens(config, data_dir, database) as tokens:
        found = tokens.list()
    for token in found:
        print(f"{token.name}\t{token.scope}\t{datetime.fromtimestamp(token.created, UTC):%Y-%m-%d %H:%M}")
    if not found:
        say("There is no token. The service listens on this machine only until you create one.")


def revoke_token(
    name: Annotated[str, typer.Argument(help="Name of the token.")],
    data_dir: DataDir = None,
    database: Database = None,
    config: Config = None,
) -> None:
    """Delete a token. A running service refuses it after two seconds at most."""
    with _tokens(config, data_dir, database) as tokens:
        tokens.revoke(name)
    say(f"Revoked the token {name!r}.")


@contextmanager
def _tokens(config: Path | None, data_dir: Path | None, database: str | None) -> "Iterator[Tokens]":
    """The tokens of the service with these settings."""
    from cometad.errors import needs_extra

    needs_extra("sqlalchemy", "serve")

    from cometad.serve.settings import load_settings
    from cometad.serve.storage.store import Store
    from cometad.serve.tokens import Tokens

    with closing(Store.of(load_settings(config, data_dir=data_dir, database=database))) as store:
        yield Tokens(store)
