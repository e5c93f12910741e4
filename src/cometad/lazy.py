"""Classes and modules that are imported when they are looked up, so that a list of names costs nothing."""

import sys
from collections.abc import Iterator, Mapping, MutableMapping
from types import ModuleType
from typing import Any, TypeVar, cast

from cometad.errors import imported_for

Kind = TypeVar("Kind")


class LazyTable(MutableMapping[str, Kind]):
    """Classes by name; a row is a class or where to import it from, as `module:class`."""

    def __init__(self, what: str, rows: Mapping[str, Kind | str]) -> None:
        self._what, self.rows = what, dict(rows)

    def __getitem__(self, name: str) -> Kind:
        row = self.rows[name]
        if isinstance(row, str):
            module, _, attribute = row.partition(":")
            row = cast(Kind, getattr(imported_for(f"The {self._what} {name!r}", module), attribute))
            self.rows[name] = row
        return row

    def __setitem__(self, name: str, row: Kind) -> None:
        self.rows[name] = row

    def __delitem__(self, name: str) -> None:
        del self.rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, name: object) -> bool:
        return name in self.rows  # the inherited one would import the class

    def name_of(self, class_name: str) -> str | None:
        """The name of the row with a class, found without importing any."""
        return next((name for name, row in self.rows.items() if _class_name(row) == class_name), None)


def _class_name(row: Any) -> str:
    return row.partition(":")[2] if isinstance(row, str) else str(row.__name__)


def keep_names(package: str, homes: Mapping[str, str]) -> None:
    """Keep modules that moved importable from a package, under the names that earlier versions had for them."""
    for name, home in homes.items():
        moved = _MovedModule(f"{package}.{name}", home)
        sys.modules[moved.__name__] = moved
        setattr(sys.modules[package], name, moved)


class _MovedModule(ModuleType):
    def __init__(self, name: str, home: str) -> None:
        super().__init__(name, f"The name of earlier versions for {home}.")
        self._home = home

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what tools ask every module for, which must not import it
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(imported_for(self.__name__, self._home), name)
