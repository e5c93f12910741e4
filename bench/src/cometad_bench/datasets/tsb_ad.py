"""TSB-AD-M: the evaluation series of a benchmark of 200 multivariate series from 17 sources, one file each."""

import re
from pathlib import Path

import numpy as np

from cometad.datasets.dataset import Dataset
from cometad.errors import InputError
from cometad_bench.datasets.archive import text_numbers
from cometad_bench.datasets.stored import StoredDataset

FILES = "*_tr_*.csv"
LABEL = "Label"  # the last column
# The series meant for choosing parameters; figures of the leaderboard are over the other 180.
TUNING = frozenset((4, 11, 23, 28, 40, 49, 62, 72, 82, 90, 107, 113, 120, 126, 131, 140, 149, 164, 178, 195))

_FILE = re.compile(r"(?P<entity>(?P<number>\d+)_[^_]+_id_\d+)_[^_]+_tr_(?P<train>\d+)_1st_\d+\.csv")
_ENTITY = re.compile(r"\d+_([^_]+)_id_\d+")
_EMPTY = re.compile(rb"(?<=,)(?=[,\r\n]|\Z)|(?:(?<=\n)|\A)(?=,)")  # the place of an empty cell


def read_tsb_ad_m(name: str, location: Path) -> list[StoredDataset]:
    """The evaluation series of TSB-AD-M, each still in its file, named by its number, source and id (057_SMD_id_1).

    Files: NNN_SOURCE_id_K_FAMILY_tr_T_1st_F.csv, with a header; the 20 series for tuning are left out. Split: the first
    T rows train, and the test series is the whole file, training rows included, because that is what the leaderboard
    evaluates. Labels: the last column, Label, 1 is anomalous; some training rows are, too. Missing values: incomplete
    rows are dropped, before the split. Nothing is scaled, and the time between two readings is not known.
    """
    stored: dict[str, StoredDataset] = {}
    for path in sorted(location.glob(FILES)):
        parts = _parts(path)
        if int(parts["number"]) in TUNING:
            continue
        entity = parts["entity"]
        if entity in stored:
            raise InputError(f"'{stored[entity].path.name}' and '{path.name}' are the same series. Remove one of them.")
        stored[entity] = StoredDataset(name, entity, path, _dataset)
    return list(stored.values())


def source_of(entity: str) -> str | None:
    """The source of a series by its name; None if it is not named like a series of TSB-AD."""
    match = _ENTITY.fullmatch(entity)
    return match[1] if match else None


def _parts(path: Path) -> re.Match[str]:
    match = _FILE.fullmatch(path.name)
    if match is None:
        raise InputError(
            f"'{path.name}' is not named NNN_SOURCE_id_K_FAMILY_tr_T_1st_F.csv, as the files of TSB-AD are. "
            "Use the official name, or move it out of the folder."
        )
    return match


def _dataset(stored: StoredDataset) -> Dataset:
    path, train = stored.path, int(_parts(stored.path)["train"])
    try:
        header, _, body = path.read_bytes().partition(b"\n")
    except OSError as error:
        raise InputError(f"Cannot read '{path}': {error.strerror}. Check its permissions.") from error
    columns = [cell.strip() for cell in header.decode("utf-8-sig", errors="replace").split(",")]
    if columns[-1] != LABEL:
        raise InputError(f"The last column of '{path.name}' is {columns[-1]!r}, not '{LABEL}'. Download it again.")
    if len(columns) < 3:
        raise InputError(f"'{path.name}' has a single variable. Use the files of TSB-AD-M, not those of TSB-AD-U.")
    table = text_numbers(_EMPTY.sub(b"nan", body), path.name) if body.strip() else np.empty((0, len(columns)))
    if table.shape[1] != len(columns):
        raise InputError(
            f"The header of '{path.name}' has {len(columns)} columns, but its rows have {table.shape[1]}. "
            "Download it again."
        )
    table = table[~np.isnan(table).any(axis=1)]
    values, labels = np.ascontiguousarray(table[:, :-1]), table[:, -1]
    if not np.isin(labels, (0, 1)).all():
        raise InputError(f"The column {LABEL} of '{path.name}' has values other than 0 and 1. Download it again.")
    if not 0 < train < len(values):
        raise InputError(
            f"'{path.name}' promises {train} training rows but has {len(values)} complete rows in all. "
            "Download it again."
        )
    return Dataset(stored.name, stored.entity, values[:train], values, labels > 0, tuple(columns[:-1]))
