"""Declared state: what an object saves is a table of its fields, which saving and loading both walk.

The table `saved` of a class names each field as the file does, and says which attribute holds it and what it must be:

    class GapRun(Saved):
        saved = {
            "last": array("_last", "variable", unknown=True),
            "open": array("_open", "variable", dtype=np.int64),
        }

A file may come from anyone. An array of another shape would crash a kernel or make it read other memory, and a value
that is not finite would make scores NaN; so whatever is loaded is checked.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter
from types import EllipsisType, SimpleNamespace
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from cometad.arrays import Array
from cometad.errors import ModelFileError

LARGEST = {4: 1e18, 8: 1e150}  # bytes of a float: a value whose square still fits

State = Mapping[str, Array]
Length = int | str | Callable[[Mapping[str, int]], int] | EllipsisType
Built = TypeVar("Built")


# -- tables ------------------------------------------------------------------------------------------------------------


class SavedField(NamedTuple):
    """A row of a table: how one field of an object is saved under its name, and loaded."""

    save: Callable[[Any, str, dict[str, Any]], None]  # (owner, name, state): add what the owner has of this field
    # (owner, name, state, sizes): set the attribute of the owner, after checks; `sizes` are the lengths known so far
    load: Callable[[Any, str, Mapping[str, Any], dict[str, Any]], None]


Table = Mapping[str, SavedField]


def array(
    at: str,
    *shape: Length,
    dtype: Any = np.float64,
    unknown: bool = False,
    optional: bool = False,
    pack: Callable[[Any], Array] = np.asarray,
    make: Callable[[Array], Any] = np.asarray,
) -> SavedField:
    """The attribute `at` is an array of this shape and type.

    A length is a number, a name or a function of the named lengths. The first array that has a name decides its length
    for all later ones; "name?" may be 0. A lone ... is an array of any shape and type, not checked. Some
    values may be `unknown`: NaN or infinite. What is `optional` is not saved if it is None or empty, and stays as a new
    object has it if it was not saved. `pack` and `make` convert an attribute that is not an array itself.
    """

    def save(owner: Any, name: str, state: dict[str, Array]) -> None:
        own = getattr(owner, at)
        if not optional or (own is not None and len(own)):
            state[name] = pack(own).copy()  # a run changes its arrays in place

    def load(owner: Any, name: str, state: State, sizes: dict[str, int]) -> None:
        if name in state or not optional:
            setattr(owner, at, make(_sized(state, name, shape, dtype, unknown, sizes)))

    return SavedField(save, load)


def arrays(dtype: Any = np.float64, **shapes: tuple[Length, ...]) -> Table:
    """A table of arrays whose attributes have the names in the file."""
    return {name: array(name, *shape, dtype=dtype) for name, shape in shapes.items()}


def integers(*at: str) -> SavedField:
    """These attributes, integers or flags, are saved as one array."""

    def save(owner: Any, name: str, state: dict[str, Array]) -> None:
        state[name] = np.array([getattr(owner, own) for own in at], np.int64)

    def load(owner: Any, name: str, state: State, sizes: dict[str, int]) -> None:
        for own, number in zip(at, taken(state, name, (len(at),), np.int64).tolist(), strict=True):
            setattr(owner, own, number)

    return SavedField(save, load)


def kept(at: str, *shape: Length, dtype: Any = np.float64, unknown: bool = False) -> SavedField:
    """The attribute `at` keeps the last rows: it has them as `kept`, and takes others with `clear` and `append`."""

    def save(owner: Any, name: str, state: dict[str, Array]) -> None:
        state[name] = getattr(owner, at).kept.copy()

    def load(owner: Any, name: str, state: State, sizes: dict[str, int]) -> None:
        own, found = getattr(owner, at), _sized(state, name, shape, dtype, unknown, sizes)
        own.clear()
        own.append(found)
        require_state(len(own.kept) == len(found), f"its array {name!r} is longer than what is kept")

    return SavedField(save, load)


def part(at: str, make: Callable[[Any], Any] | None = None) -> SavedField:
    """The attribute `at` has a `state` of its own, saved with the name of the part before its names; or it is None.

    A part that comes and goes has a `make`, which creates it from its owner if it was saved.
    """

    def save(owner: Any, name: str, state: dict[str, Any]) -> None:
        own = getattr(owner, at)
        if own is not None:
            state |= with_part(name, own.state())

    def load(owner: Any, name: str, state: Mapping[str, Any], sizes: dict[str, int]) -> None:
        own_state = part_of(state, name)
        if make is not None:
            setattr(owner, at, make(owner) if own_state else None)
        own = getattr(owner, at)
        if own is not None:
            own.restore(own_state)

    return SavedField(save, load)


def parts(at: str, rules: Callable[[Any], Sequence[Any]]) -> SavedField:
    """The attribute `at` is a tuple of parts, numbered from 0; each is what a rule of the owner makes of its state.

    Their number is the length with the name of the field.
    """

    def save(owner: Any, name: str, state: dict[str, Array]) -> None:
        for k, own in enumerate(getattr(owner, at)):
            state |= with_part(f"{name}.{k}", own.state())

    def load(owner: Any, name: str, state: State, sizes: dict[str, int]) -> None:
        made = tuple(rule.restore(part_of(state, f"{name}.{k}")) for k, rule in enumerate(rules(owner)))
        setattr(owner, at, made)
        sizes[name] = len(made)

    return SavedField(save, load)


def value(at: str, table: Table, make: Callable[..., Any], check: Callable[[Any], None] | None = None) -> SavedField:
    """The attribute `at` is a value with a table; `make` creates it from the attributes by name, `check` refuses it."""

    def save(owner: Any, name: str, state: dict[str, Array]) -> None:
        state |= with_part(name, saved_state(getattr(owner, at), table))

    def load(owner: Any, name: str, state: State, sizes: dict[str, int]) -> None:
        made = loaded(make, table, part_of(state, name), sizes)
        if check is not None:
            check(made)
        setattr(owner, at, made)

    return SavedField(save, load)


def fact(
    at: str, check: Callable[[Any, str], Any], *, optional: bool = False, pack: Callable[[Any], Any] | None = None
) -> SavedField:
    """The attribute `at` is a fact, saved in JSON; `check` takes a loaded one and its name, and returns the attribute.

    It may be an attribute of a part: "_order.last"; without that part there is no fact.
    What is `optional` is not saved if it is None or (), and stays as a new object has it if it was not saved. `pack`
    converts an attribute that JSON cannot hold.
    """
    path, _, last = at.rpartition(".")

    def save(owner: Any, name: str, state: dict[str, Any]) -> None:
        holder = attrgetter(path)(owner) if path else owner
        if holder is None:
            return
        own = getattr(holder, last)
        if not (optional and own in (None, ())):
            state[name] = own if pack is None else pack(own)

    def load(owner: Any, name: str, state: Mapping[str, Any], sizes: dict[str, int]) -> None:
        holder = attrgetter(path)(owner) if path else owner
        if holder is not None and (name in state or not optional):
            setattr(holder, last, check(state[name], name))

    return SavedField(save, load)


def each(check: Callable[..., Built]) -> Callable[..., tuple[Built, ...]]:
    """Apply a function to each item of a list or tuple."""
    return lambda items, *_: tuple(map(check, items))


def saved_state(owner: Any, table: Table) -> dict[str, Any]:
    """The fields of an object, by name: arrays, or facts if its table is one of facts."""
    state: dict[str, Any] = {}
    for name, field in table.items():
        field.save(owner, name, state)
    return state


def load_state(owner: Any, table: Table, state: Mapping[str, Any], sizes: Callable[[], Mapping[str, int]]) -> None:
    """Set the fields of an object; `sizes` returns the lengths that are known, given the fields loaded so far."""
    known: dict[str, int] = {}
    for name, field in table.items():
        known |= sizes()
        field.load(owner, name, state, known)


def loaded(make: Callable[..., Built], table: Table, state: State, sizes: Mapping[str, int]) -> Built:
    """The value that `make` creates from its saved fields, by the names of its attributes."""
    fields = SimpleNamespace()
    load_state(fields, table, state, lambda: sizes)
    return make(**vars(fields))


def with_part(name: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """The state of a part with the name of the part before its names, unless that is empty."""
    return {f"{name}.{inner}" if name else inner: array for inner, array in state.items()}


def part_of(state: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The inverse of `with_part`: the state of a part, out of a whole state."""
    prefix = f"{name}." if name else ""
    return {inner.removeprefix(prefix): array for inner, array in state.items() if inner.startswith(prefix)}


class Declared:
    """An object with a state."""

    saved: ClassVar[Table] = {}

    def state(self) -> dict[str, Any]:
        """Everything that it saves, by name."""
        return saved_state(self, self.saved)


class Saved(Declared):
    """An object whose state can be replaced by that of another one, to continue from it."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of another object with the same settings."""
        load_state(self, self.saved, state, self.sizes)
        self.check_state()

    def sizes(self) -> Mapping[str, int]:
        """The lengths with a name that are known, given the fields loaded so far."""
        return {}

    def check_state(self) -> None:
        """Refuse fields that are valid one by one but not together, and set what follows from them."""


class Numbered:
    """An object whose state is one array: the numbers and arrays of its attributes, in the order of `numbers`."""

    numbers: ClassVar[tuple[str, ...]]

    def state(self) -> Array:
        """The complete state."""
        own = [attrgetter(at)(self) for at in self.numbers]
        return np.hstack([one.state() if isinstance(one, Numbered) else one for one in own])


# -- checks ------------------------------------------------------------------------------------------------------------


class InvalidState(ModelFileError):
    """A part of a saved state is not what its stage can work with; `cometad.checkpoint.restoring` adds the source."""


def taken(
    state: State, name: str, shape: tuple[int | str, ...], dtype: Any = np.float64, *, unknown: bool = False
) -> Array:
    """A saved array, if it has this dtype and shape; a length that may vary is named, and "length?" may be 0.

    Values must be finite, unless some may be `unknown`: NaN or infinite.
    """
    require_state(name in state, f"it has no array {name!r}")
    array = state[name]
    fits = array.ndim == len(shape) and all(
        _fits(size, wanted) for size, wanted in zip(array.shape, shape, strict=True)
    )
    comma = "," if len(shape) == 1 else ""
    wanted = f"({', '.join(str(size).rstrip('?') for size in shape)}{comma})"
    require_state(fits, f"its array {name!r} has the shape {array.shape} instead of {wanted}")
    require_state(array.dtype == dtype, f"its array {name!r} holds {array.dtype} instead of {np.dtype(dtype)}")
    if not unknown and array.dtype.kind == "f":
        check_finite(name, array)
    return array


def _fits(size: int, wanted: int | str) -> bool:
    return size == wanted if isinstance(wanted, int) else size > 0 or wanted.endswith("?")


def _sized(
    state: State, name: str, shape: tuple[Length, ...], dtype: Any, unknown: bool, sizes: dict[str, int]
) -> Array:
    """A copy of `taken`, with the lengths that are known in place of their names; remembers those that were not."""
    if shape == (...,):
        return state[name].copy()
    lengths: list[Any] = [
        one(sizes) if callable(one) else sizes.get(one, one) if isinstance(one, str) else one for one in shape
    ]
    found = taken(state, name, tuple(lengths), dtype, unknown=unknown)
    sizes |= {length: size for length, size in zip(shape, found.shape, strict=True) if isinstance(length, str)}
    return found.copy()


def check_finite(name: str, array: Array) -> None:
    """Refuse an array with values that are NaN, infinite or too large to compute with."""
    finite = bool((np.abs(array) <= LARGEST[array.itemsize]).all())  # False for NaN
    require_state(finite, f"its array {name!r} has values that are not finite")


def counted(value: object, name: str, least: int = 0, most: int = 2**53) -> int:
    """A saved fact, if it is an integer from `least` to `most`."""
    fits = type(value) is int and least <= value <= most
    require_state(fits, f"its {name!r} is not an integer from {least} to {most:,}")
    return value  # type: ignore[return-value]


def one_of(known: Collection[Any], what: str) -> Callable[[Any, str], Any]:
    """A check of a saved fact: it is one of the known values, or None; `what` completes "its 'name' is not ..."."""

    def check(value: Any, name: str) -> Any:
        require_state(value is None or value in known, f"its {name!r} is not {what}")
        return value

    return check


def of_type(value: object, kind: type, name: str) -> Any:
    """A saved fact, if it has this type."""
    require_state(type(value) is kind, f"its {name!r} is not a {kind.__name__}")
    return value


def texts(value: object, name: str) -> tuple[str, ...]:
    """A saved list of texts."""
    fits = isinstance(value, list) and all(isinstance(one, str) for one in value)
    require_state(fits, f"its {name!r} is not a list of texts")
    return tuple(value)  # type: ignore[arg-type]


def require_state(holds: bool, problem: str) -> None:
    """Refuse a saved state unless a condition holds; `problem` completes "The file is not valid: "."""
    if not holds:
        raise InvalidState(f"{problem}.")
