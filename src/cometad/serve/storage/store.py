"""The database: a SQLite file in the data folder, or PostgreSQL by its URL; the format has a number."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from filelock import FileLock, Timeout
from sqlalchemy import Connection, Delete, Engine, Select, Table, Update, create_engine, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, TimeoutError

from cometad.connect.contract import Unavailable
from cometad.errors import ModelFileError, OutputError, ParameterError, needs_extra
from cometad.serve.settings import Settings
from cometad.serve.storage import schema

FILE = "cometad.sqlite"
CONNECTIONS = 50  # more than there are threads that answer requests
BUSY = 30  # seconds to wait for another writer
FROZEN = 15  # seconds without a statement until PostgreSQL ends a transaction that writes: others wait for its locks
_INSERT = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


class StorageError(Unavailable):
    """The database cannot be used now."""


class Store:
    def __init__(self, url: str) -> None:
        self.engine = _engine(url)
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        self.insert: Any = _INSERT[self.engine.dialect.name]
        self._writing = self.engine.execution_options(writes=True)
        self._claims = ExitStack()
        try:
            with storage_errors():
                self.format = self._upgrade()
        except BaseException:
            self.engine.dispose()
            raise

    @classmethod
    def in_folder(cls, folder: Path) -> "Store":
        """The SQLite database in a folder, which is created if need be."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # readings and hashes are nobody else's business
        except OSError as error:
            raise OutputError(f"Cannot create the folder '{folder}': {error.strerror}. Choose another.") from error
        return cls(f"sqlite:///{folder / FILE}")

    @classmethod
    def of(cls, settings: Settings) -> "Store":
        return cls(settings.database) if settings.database else cls.in_folder(settings.data_dir)

    def _upgrade(self) -> int:
        scripts = ScriptDirectory.from_config(_config())
        newest = int(scripts.get_current_head() or 0)
        with self.write() as connection:
            found = MigrationContext.configure(connection).get_current_revision()
            config = _config()
            config.attributes["connection"] = connection
            if found is None:
                schema.metadata.create_all(connection)
                command.stamp(config, "head")
            elif found.isdecimal() and int(found) <= newest:
                command.upgrade(config, "head")
            else:
                raise ModelFileError(
                    f"The data has format {found}, but this cometad reads formats up to {newest}. Upgrade cometad."
                )
        return newest

    def claim(self) -> None:
        """Make sure that no other service uses a SQLite file, until it is closed or the process ends.

        Several services may share a PostgreSQL database: see `members.py`.
        """
        if not self.is_sqlite:
            return
        lock = FileLock(f"{self.engine.url.database}.lock", timeout=0)
        try:
            lock.acquire()
        except Timeout as error:
            raise OutputError(
                f"Another service uses '{self.engine.url.database}'. Stop it, or choose another --data-dir. Several "
                "can share a PostgreSQL database."
            ) from error
        self._claims.callback(lock.release)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection that sees one state of the database."""
        with storage_errors(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction: everything in it is on disk once it ends, or nothing."""
        with storage_errors(), self._writing.begin() as connection:
            yield connection

    def rows(self, query: Select[Any]) -> Sequence[Any]:
        with self.read() as connection:
            return connection.execute(query).all()

    def row(self, query: Select[Any]) -> Any:
        """The only row of a query; None if there is none."""
        with self.read() as connection:
            return connection.execute(query).one_or_none()

    def value(self, query: Select[Any]) -> Any:
        """The first value of a query; None if there is no row."""
        with self.read() as connection:
            return connection.execute(query).scalar()

    def change(self, statement: Update | Delete) -> int:
        """Run a statement in a transaction of its own; returns how many rows it changed."""
        with self.write() as connection:
            return connection.execute(statement).rowcount

    def upsert(self, connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
        """Insert rows that all have the same columns; rows with a known primary key are replaced."""
        if not rows:
            return
        keys = [column.name for column in table.primary_key]
        statement = self.insert(table)
        changes = {name: statement.excluded[name] for name in rows[0] if name not in keys}
        connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=changes), rows)

    def close(self) -> None:
        """Close all connections, and leave the database to others."""
        self._claims.close()
        self.engine.dispose()


@contextmanager
def storage_errors() -> Iterator[None]:
    """Turn errors of the database into one sentence."""
    try:
        yield
    except (DBAPIError, TimeoutError) as error:
        problem = " ".join(str(getattr(error, "orig", error)).split()).rstrip(".?!")
        raise StorageError(
            f"The database cannot be used: {problem}. Check its server, its permissions and the free space."
        ) from error


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.drivername == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
            needs_extra("psycopg", "postgres")
        if parsed.get_backend_name() not in _INSERT:
            raise ParameterError(
                f"Cannot store data in {parsed.get_backend_name()!r}. Pass a URL like postgresql://user@host/name."
            )
        engine = create_engine(parsed, pool_pre_ping=True, pool_size=CONNECTIONS, pool_use_lifo=True)
    except (ArgumentError, NoSuchModuleError) as error:
        raise ParameterError("The database URL cannot be read. Write postgresql://user@host/name.") from error
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    else:
        event.listen(engine, "begin", _begin_postgres)
    return engine


def _prepare_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # transactions begin where we say so
    cursor = connection.cursor()
    # The first one only has an effect on a new file, before anything is written to it.
    for pragma in (
        "auto_vacuum=INCREMENTAL",
        "journal_mode=WAL",
        "synchronous=FULL",
        "cache_size=-32768",
        "wal_autocheckpoint=4000",
        f"busy_timeout={1000 * BUSY}",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A writer waits for the others here. With a plain BEGIN it would fail at its first write instead.
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _begin_postgres(connection: Connection) -> None:
    if connection.get_execution_options().get("writes", False):
        connection.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = '{FROZEN}s'")


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    return config
