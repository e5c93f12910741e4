"""Tokens: random, shown once, stored as a hash, with a scope."""

import hashlib
import secrets
import threading
import time
from collections.abc import Sequence
from typing import Any, Literal, get_args

from sqlalchemy import delete, insert, select
from sqlalchemy.exc import IntegrityError

from cometad.errors import ParameterError, unknown
from cometad.serve.models import is_name
from cometad.serve.storage.schema import tokens
from cometad.serve.storage.store import Store

Scope = Literal["read", "write", "admin"]  # each includes those before it
SCOPES: tuple[Scope, ...] = get_args(Scope)
START = "cmt_"  # so that scanners of code recognize a token
REFRESH = 2.0  # seconds until a token that was created or revoked elsewhere is noticed


class Tokens:
    def __init__(self, store: Store, needed: bool = False) -> None:
        self._store = store
        self._needed = needed  # also while there is none: the last one may be revoked while others can connect
        self._lock = threading.Lock()
        self._known: dict[str, Scope] = {}
        self._read_at = -REFRESH

    def create(self, name: str, scope: str) -> str:
        """Create a token; returns its secret, which is not stored."""
        if scope not in SCOPES:
            raise unknown("scope", scope, SCOPES)
        if not is_name(name):
            raise ParameterError(f"Cannot name a token {name!r}. Use letters, digits, dots, dashes and underscores.")
        secret = START + secrets.token_urlsafe(32)
        row = {"name": name, "hash": _hash(secret), "scope": scope, "created": time.time()}
        with self._store.write() as connection:
            try:
                connection.execute(insert(tokens).values(row))
            except IntegrityError as error:
                raise ParameterError(
                    f"There is a token {name!r} already. Choose another name, or revoke it."
                ) from error
        self._forget()
        return secret

    def revoke(self, name: str) -> None:
        gone = self._store.change(delete(tokens).where(tokens.c.name == name))
        self._forget()
        if not gone:
            raise ParameterError(f"There is no token {name!r}. List them with cometad token list.")

    def list(self) -> Sequence[Any]:
        """Names, scopes and times of creation."""
        return self._store.rows(select(tokens.c.name, tokens.c.scope, tokens.c.created).order_by(tokens.c.name))

    @property
    def any(self) -> bool:
        """Whether there is a token; then every request needs one."""
        return bool(self._current())

    def scopes(self, secret: str | None) -> tuple[Scope, ...]:
        """What the bearer of a token may do; nothing if it is unknown. Without any token, everything."""
        known = self._current()
        if not known and not self._needed:
            return SCOPES
        if secret is None:
            return ()
        scope = known.get(_hash(secret))
        return () if scope is None else SCOPES[: SCOPES.index(scope) + 1]

    def _current(self) -> dict[str, Scope]:
        with self._lock:
            if time.monotonic() - self._read_at >= REFRESH:
                rows = self._store.rows(select(tokens.c.hash, tokens.c.scope))
                self._known = {row.hash: row.scope for row in rows}
                self._read_at = time.monotonic()
            return self._known

    def _forget(self) -> None:
        with self._lock:
            self._read_at = -REFRESH


def _hash(secret: str) -> str:
    # A plain hash is enough: nobody can guess 256 random bits.
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()
