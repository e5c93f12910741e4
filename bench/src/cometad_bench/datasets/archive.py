"""Opens official dataset files: members of a folder or .tar.xz archive, arrays, and tables of sensor readings.

Archives are read in one pass and never unpacked to disk.
"""

import csv
import io
import itertools
import lzma
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cometad.arrays import Array, Floats
from cometad.data.cells import MISSING, repeated
from cometad.errors import InputError

if TYPE_CHECKING:
    import polars as pl  # imported where text is read, because arrays do not need it

UNNAMED = "unnamed "  # followed by its index, for a column without a name
HEADER_ROWS = 10  # the rows searched for the header of a table


def members(location: Path, *patterns: str) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Yield the path and content of each file that matches one of the patterns, such as "train/*.npy".

    Paths are relative to the folder, or to the top folder inside an archive. An archive is read in one pass.
    """
    return _in_folder(location, patterns) if location.is_dir() else _in_archive(location, patterns)


def npy_array(content: bytes, what: str, axes: int) -> Array:
    """The numbers in a .npy file, which must have `axes` axes; `what` names the file in errors."""
    try:
        values = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise InputError(f"The array '{what}' is damaged or not a .npy file. Download it again.") from error
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "biuf" or values.ndim != axes:
        raise InputError(f"The array '{what}' is not a numeric array with {axes} axes. Download it again.")
    return values


def text_numbers(content: bytes, what: str, separator: str = ",") -> Floats:
    r"""The numbers (line, number) in a text without a header; `what` names the file in errors."""
    width = content.partition(b"\n")[0].count(separator.encode()) + 1
    try:
        # Not polars: the benchmark reads its datasets with numpy alone.
        numbers = np.loadtxt(io.BytesIO(content), delimiter=separator, ndmin=2, comments=None, encoding="utf-8")
    except ValueError as error:
        raise InputError(f"The file '{what}' does not have {width} numbers per line. Download it again.") from error
    return np.ascontiguousarray(numbers)


class SensorTable:
    r"""A CSV file of sensor readings, read in chunks; rows above its header are skipped."""

    def __init__(self, path: Path, mark: str) -> None:
        import polars as pl

        self.path = path
        above, self.columns = _header(path, mark)
        cells = pl.scan_csv(
            path,
            has_header=False,
            skip_rows=above + 1,
            schema=dict.fromkeys(self.columns, pl.String),
            encoding="utf8-lossy",
        ).with_columns(pl.all().str.strip_chars())
        cells = cells.with_columns(
            pl.when(~pl.col(name).str.to_lowercase().is_in(MISSING)).then(pl.col(name)).alias(name)
            for name in self.columns
        )
        self._rows = cells.filter(~pl.all_horizontal(pl.all().is_null()))

    def columns_but(self, *others: str) -> tuple[str, ...]:
        return tuple(name for name in self.columns if name not in others and not name.startswith(UNNAMED))

    def numbers(self, names: tuple[str, ...], *, filled: bool = False) -> Floats:
        """These columns as numbers (row, column), with NaN for missing values, or imputed: forward, then backward."""
        import polars as pl

        frame = self._collect(names, pl.col(names).cast(pl.Float64), "not numbers")
        values = np.empty(frame.shape)
        for i, name in enumerate(names):
            # Dropped from the frame, so that memory never holds the whole table twice.
            column = frame.drop_in_place(name)
            if filled and column.null_count() == len(column):
                raise InputError(f"Column {name!r} of '{self.path}' is empty. Download the file again.")
            if filled:
                column = column.fill_null(strategy="forward").fill_null(strategy="backward")
            values[:, i] = column.fill_null(float("nan")).to_numpy()
        return values

    def flags(self, name: str, spellings: Mapping[str, bool]) -> NDArray[np.bool_]:
        import polars as pl

        column = self._collect((name,), pl.col(name).str.replace_all(r"\s", ""), "not text")[name]
        unexpected = [value for value in column.unique().to_list() if value not in spellings]
        if unexpected:
            raise InputError(
                f"Column {name!r} of '{self.path}' has the value {unexpected[0]!r}; expected one of "
                f"{', '.join(spellings)}. Correct the file."
            )
        return column.replace_strict(spellings, return_dtype=pl.Boolean).to_numpy().astype(np.bool_)

    def _collect(self, names: tuple[str, ...], wanted: "pl.Expr", problem: str) -> "pl.DataFrame":
        import polars as pl

        absent = [name for name in names if name not in self.columns]
        if absent:
            raise InputError(f"'{self.path}' has no column {absent[0]!r}. Download the file again.")
        try:
            # In chunks: as text, WADI's 1.2 million rows of 127 columns take several times the memory of numbers.
            return self._rows.select(wanted).collect(engine="streaming")
        except pl.exceptions.PolarsError as error:
            raise InputError(
                f"'{self.path}' has cells that are {problem}, or rows with more than {len(self.columns)} cells. "
                "Correct the file or download it again."
            ) from error


def _in_folder(folder: Path, patterns: tuple[str, ...]) -> Iterator[tuple[PurePosixPath, bytes]]:
    for path in itertools.chain.from_iterable(sorted(folder.glob(pattern)) for pattern in patterns):
        try:
            content = path.read_bytes()
        except OSError as error:
            raise InputError(f"Cannot read '{path}': {error.strerror or error}. Check its permissions.") from error
        yield PurePosixPath(path.relative_to(folder).as_posix()), content


def _in_archive(archive: Path, patterns: tuple[str, ...]) -> Iterator[tuple[PurePosixPath, bytes]]:
    try:
        # Not tarfile's own "r:xz" or "r|xz": the first may seek back, which decompresses everything again; the second
        # accepts an archive that is truncated between two files. LZMAFile under a plain stream does neither.
        with lzma.open(archive) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                path = PurePosixPath(*PurePosixPath(member.name).parts[1:])
                file = tar.extractfile(member) if _fits(path, patterns) else None
                if file is not None:  # also None for a folder
                    yield path, file.read()
    except (lzma.LZMAError, tarfile.TarError, EOFError) as error:
        raise InputError(
            f"The archive '{archive}' is damaged, truncated or not a .tar.xz archive. Download it again."
        ) from error
    except OSError as error:
        raise InputError(f"Cannot read '{archive}': {error.strerror or error}. Check its permissions.") from error


def _fits(path: PurePosixPath, patterns: tuple[str, ...]) -> bool:
    return any(path.match(pattern) and len(path.parts) == pattern.count("/") + 1 for pattern in patterns)


def _header(path: Path, mark: str) -> tuple[int, list[str]]:
    """The number of rows above the header and the names in it; the header is the first row with a cell `mark`."""
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            for above, row in enumerate(itertools.islice(csv.reader(file), HEADER_ROWS)):
                names = [_last_part(cell) for cell in row]
                if mark in names:
                    return above, _distinct(names, path)
    except (OSError, csv.Error) as error:
        raise InputError(f"Cannot read '{path}': {error}. Check that it exists and is a CSV file.") from error
    raise InputError(
        f"None of the first {HEADER_ROWS} rows of '{path}' has a column {mark!r}. "
        "Use the official file, separated by commas."
    )


def _last_part(cell: str) -> str:
    return cell.rpartition("\\")[2].strip()


def _distinct(names: list[str], path: Path) -> list[str]:
    duplicate = repeated([name for name in names if name])
    if duplicate is not None:
        raise InputError(f"'{path}' has two columns named {duplicate!r}. Download the file again.")
    return [name or f"{UNNAMED}{i}" for i, name in enumerate(names)]
