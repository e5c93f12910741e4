"""Readers for the official files of seven benchmark datasets, from their folders or straight from their archives.

To add a dataset, write one function that gives its entities and add a row in `READERS`, `PUBLISHED` and `HOW_TO_GET`.
"""

import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from cometad.arrays import Array, Floats
from cometad.datasets.archive import Table, members, npy_array, text_numbers
from cometad.datasets.dataset import Dataset, Reason, concatenate
from cometad.errors import InputError, unknown

Content = TypeVar("Content")

WADI_BLANK = ("2_LS_001_AL", "2_LS_002_AL", "2_P_001_STATUS", "2_P_002_STATUS")  # no value in any release
WADI_LABEL = "Attack LABLE (1:No Attack, -1:Attack)"


@dataclass(frozen=True)
class Reader:
    """How one dataset is read, and where its files stand below a data folder."""

    read: Callable[[str, Path], list[Dataset]]  # name, folder or archive -> its entities, sorted by name
    folder: str
    mark: str  # a file that only this dataset has, as a pattern
    archive: str | None = None


@dataclass(frozen=True)
class Counts:
    """The size of a dataset over all its entities.

    >>> from cometad.datasets.readers import PUBLISHED
    >>> PUBLISHED["MSL"].test
    73729
    """

    entities: int
    train: int  # readings
    test: int
    variables: int
    anomaly_percent: float  # of the test readings, to two decimals


@dataclass(frozen=True)
class Status:
    """Whether a dataset is there, where, and how to get it if not."""

    name: str
    location: Path | None  # a folder or an archive
    how_to_get: str

    @property
    def found(self) -> bool:
        """Whether its files are there; they are not opened."""
        return self.location is not None


@dataclass(frozen=True)
class Check:
    """What the files hold beside what was published about them."""

    name: str
    found: Counts
    published: Counts

    @property
    def agrees(self) -> bool:
        """Whether every count is the published one."""
        return self.found == self.published


# Seconds between two readings, as published.
PERIODS = {"ASD": 300, "MSL": 60, "PSM": 60, "SMAP": 60, "SMD": 60, "SWaT": 1, "WADI": 1}

SHARED = Path("..", "shared", "data")  # beside a checkout


def find_data_dir(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """The folder of the datasets: the argument, else $COMETAD_DATA, else ../shared/data.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from cometad.datasets.readers import find_data_dir
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     find_data_dir(folder) == Path(folder)
    True
    """
    given = data_dir or os.environ.get("COMETAD_DATA")
    if given is None and SHARED.is_dir():
        return SHARED
    if given is None:
        raise InputError(
            "There is no data folder. Pass one, or set COMETAD_DATA to the folder that holds the datasets."
        )
    if not Path(given).is_dir():
        raise InputError(f"The data folder '{given}' does not exist. Pass the folder that holds the datasets.")
    return Path(given)


def status(name: str, data_dir: str | os.PathLike[str] | None = None) -> Status:
    """Whether a dataset is there: only looks for its files, opens none.

    >>> import tempfile
    >>> from cometad.datasets.readers import status
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     status("PSM", folder).found
    False
    """
    reader = _reader(name)
    nowhere = data_dir is None and "COMETAD_DATA" not in os.environ and not SHARED.is_dir()
    return Status(name, None if nowhere else _locate(reader, find_data_dir(data_dir)), HOW_TO_GET[name])


def load(name: str, data_dir: str | os.PathLike[str] | None = None) -> list[Dataset]:
    """The entities of a dataset in the plain sorted order of their names (D-1, D-11, D-2).

    >>> from cometad.datasets.readers import load
    >>> load("PMS")
    Traceback (most recent call last):
    ...
    cometad.errors.ParameterError: Unknown dataset 'PMS'. Did you mean PSM?
    Available: ASD, MSL, PSM, SMAP, SMD, SWaT, WADI.
    """
    reader = _reader(name)
    folder = find_data_dir(data_dir)
    location = _locate(reader, folder)
    if location is None:
        raise InputError(f"The files of {name} are not in '{folder}'. {HOW_TO_GET[name]}")
    datasets = reader.read(name, location)
    if not datasets:
        raise InputError(f"'{location}' holds no entity of {name}. {HOW_TO_GET[name]}")
    return datasets


def load_concatenated(name: str, data_dir: str | os.PathLike[str] | None = None) -> Dataset:
    """All entities of a dataset as one, one after the other in sorted order, as the paper uses SMAP and MSL.

    >>> from cometad.datasets.readers import load_concatenated
    >>> load_concatenated("MSL", "no/such/folder")
    Traceback (most recent call last):
    ...
    cometad.errors.InputError: The data folder 'no/such/folder' does not exist. Pass the folder that holds the datasets.
    """
    return concatenate(load(name, data_dir))


def check(name: str, data_dir: str | os.PathLike[str] | None = None) -> Check:
    """The counts of a dataset as found beside the published ones.

    >>> from cometad.datasets.readers import check
    >>> check("MSL", "no/such/folder")
    Traceback (most recent call last):
    ...
    cometad.errors.InputError: The data folder 'no/such/folder' does not exist. Pass the folder that holds the datasets.
    """
    return Check(name, counts(load(name, data_dir)), PUBLISHED[name])


def counts(datasets: list[Dataset]) -> Counts:
    """The size of a dataset over all its entities.

    >>> import numpy as np
    >>> from cometad.datasets.dataset import Dataset
    >>> from cometad.datasets.readers import counts
    >>> counts([Dataset("plant", "pump", np.zeros((3, 1)), np.ones((2, 1)), np.array([False, True]), ("flow",))])
    Counts(entities=1, train=3, test=2, variables=1, anomaly_percent=50.0)
    """
    test = sum(len(dataset.test) for dataset in datasets)
    anomalous = sum(int(dataset.labels.sum()) for dataset in datasets)
    return Counts(
        entities=len(datasets),
        train=sum(len(dataset.train) for dataset in datasets),
        test=test,
        variables=len(datasets[0].names),
        anomaly_percent=round(100 * anomalous / test, 2),
    )


def _reader(name: str) -> Reader:
    if name not in READERS:
        raise unknown("dataset", name, READERS)
    return READERS[name]


def _locate(reader: Reader, data_dir: Path) -> Path | None:
    for folder in (data_dir / reader.folder, data_dir):
        if any(folder.glob(reader.mark)):
            return folder
    archive = data_dir / reader.archive if reader.archive else None
    return archive if archive is not None and archive.is_file() else None


# --- datasets of one file per entity and part: SMAP, MSL, SMD, ASD ----------------------------------------------------


def _read_nasa(name: str, location: Path) -> list[Dataset]:
    """SMAP or MSL: the channels that labeled_anomalies.csv gives to that spacecraft.

    Files: {train,test}/<channel>.npy and labeled_anomalies.csv; arrays in the archive without a row there (T-10) are
    left out. Labels: the ranges include their last time step; a channel in several rows (P-2) takes their union.
    Variables: column 0 is the telemetry, the others are commands. There are no missing values; nothing is scaled.
    """
    files = {
        str(path): content for path, content in members(location, "labeled_anomalies.csv", "train/*.npy", "test/*.npy")
    }
    ranges = _labeled_ranges(_required(files, "labeled_anomalies.csv", location), name)

    def channel(entity: str) -> Dataset:
        paths = (f"{part}/{entity}.npy" for part in ("train", "test"))
        train, test = (npy_array(_required(files, path, location), path, axes=2) for path in paths)
        names = ("telemetry", *(f"command{i}" for i in range(1, train.shape[1])))
        return Dataset(name, entity, _floats(train), _floats(test), _marked(ranges[entity], len(test)), names)

    return [channel(entity) for entity in sorted(ranges)]


def _read_smd(name: str, location: Path) -> list[Dataset]:
    """SMD: one dataset per machine, with the variables behind each anomaly.

    Files: {train,test,test_label,interpretation_label}/<machine>.txt, comma-separated without a header. Labels: 1 is
    anomalous. Reasons: lines `start-stop:variables`; the stop is not included (the intervals then equal the labels of
    every machine to the row) and variables count from 1. There are no missing values; the data is already scaled.
    """
    parts = ("train", "test", "test_label")
    numbers: dict[str, Floats] = {}
    reasons: dict[str, tuple[Reason, ...]] = {}
    for path, content in members(location, *(f"{part}/machine-*.txt" for part in (*parts, "interpretation_label"))):
        if path.parts[0] == "interpretation_label":
            reasons[path.stem] = _reasons(content, str(path))
        else:
            numbers[str(path)] = text_numbers(content, str(path))

    def machine(entity: str) -> Dataset:
        train, test, labels = (_required(numbers, f"{part}/{entity}.txt", location) for part in parts)
        return Dataset(name, entity, train, test, labels[:, 0] > 0, _numbered(train), reasons=reasons.get(entity))

    return [machine(entity) for entity in sorted({PurePosixPath(path).stem for path in numbers})]


def _read_asd(name: str, location: Path) -> list[Dataset]:
    """ASD: one dataset per server.

    Files: <server>/{train,test,test_label}.npy. Labels: 1 is anomalous. There are no missing values; the data is
    already scaled to [0, 1].
    """
    files = {str(path): content for path, content in members(location, "*/*.npy")}

    def server(entity: str) -> Dataset:
        def part(file: str, axes: int) -> Array:
            path = f"{entity}/{file}.npy"
            return npy_array(_required(files, path, location), path, axes)

        train, test, labels = part("train", axes=2), part("test", axes=2), part("test_label", axes=1)
        return Dataset(name, entity, _floats(train), _floats(test), labels > 0, _numbered(train))

    return [server(entity) for entity in sorted({PurePosixPath(path).parts[0] for path in files})]


def _required(files: Mapping[str, Content], path: str, location: Path) -> Content:
    if path not in files:
        raise InputError(f"'{location}' lacks the file '{path}'. Copy the dataset from its source again.")
    return files[path]


def _numbered(values: Array) -> tuple[str, ...]:
    return tuple(f"v{i}" for i in range(values.shape[1]))


def _floats(values: Array) -> Floats:
    return np.ascontiguousarray(values, dtype=np.float64)


def _labeled_ranges(table: bytes, spacecraft: str) -> dict[str, list[tuple[int, int]]]:
    """The half-open anomalous ranges of each channel of a spacecraft."""
    ranges: dict[str, list[tuple[int, int]]] = {}
    try:
        for row in csv.DictReader(io.StringIO(table.decode())):
            if row["spacecraft"] == spacecraft:
                found = [(int(first), int(last) + 1) for first, last in json.loads(row["anomaly_sequences"])]
                ranges.setdefault(row["chan_id"], []).extend(found)
    except (KeyError, ValueError, TypeError) as error:
        raise InputError("The table 'labeled_anomalies.csv' is not telemanom's. Copy it from its source.") from error
    return ranges


def _marked(ranges: Iterable[tuple[int, int]], length: int) -> NDArray[np.bool_]:
    labels = np.zeros(length, dtype=np.bool_)
    for start, stop in ranges:
        labels[start:stop] = True
    return labels


def _reasons(content: bytes, what: str) -> tuple[Reason, ...]:
    reasons: list[Reason] = []
    for line in content.decode(errors="replace").split():
        match = re.fullmatch(r"(\d+)-(\d+):(\d+(?:,\d+)*)", line)
        if match is None:
            raise InputError(f"The line {line!r} of '{what}' is not of the form start-stop:variables. Copy it again.")
        variables = tuple(int(number) - 1 for number in match[3].split(","))
        reasons.append(((int(match[1]), int(match[2])), variables))
    return tuple(reasons)


# --- datasets of one table per part: PSM, SWaT, WADI ------------------------------------------------------------------


def _read_psm(name: str, location: Path) -> list[Dataset]:
    """PSM: one dataset of 25 variables.

    Files: train.csv, test.csv and test_label.csv, one header row each, rows of the last two in the same order. The
    column timestamp_(min) is dropped. NaN rule: a row with an empty cell is dropped (train: 132,481 rows become
    129,784), in test together with its label. Labels: 1 is anomalous, 0 is normal.
    """
    time = "timestamp_(min)"
    tables = [Table(location / file, mark=time) for file in ("train.csv", "test.csv", "test_label.csv")]
    names = tables[0].columns_but(time)
    train, test = (table.numbers(names) for table in tables[:2])
    labels = tables[2].flags("label", {"0": False, "1": True})
    if len(labels) != len(test):
        raise InputError(
            f"PSM has {len(test)} test rows but {len(labels)} labels. Copy the files from their source again."
        )
    whole = ~np.isnan(test).any(axis=1)
    return [Dataset(name, "all", train[~np.isnan(train).any(axis=1)], test[whole], labels[whole], names)]


def _read_swat(name: str, location: Path) -> list[Dataset]:
    """SWaT: one dataset of 51 variables.

    Files: SWaT_Dataset_Normal_v1.csv and SWaT_Dataset_Attack_v0.csv; the header may stand below a row of stage names
    (P1, P2, ...), and spaces around names are stripped. The columns Timestamp and Normal/Attack are dropped. Labels:
    "Attack", also spelled "A ttack", is anomalous, "Normal" is normal. NaN rule: rows without any value are dropped;
    an empty cell takes the last value before it, or else the next after it (the official files have none).
    """
    normal = Table(location / "SWaT_Dataset_Normal_v1.csv", mark="Timestamp")
    attack = Table(location / "SWaT_Dataset_Attack_v0.csv", mark="Timestamp")
    names = normal.columns_but("Timestamp", "Normal/Attack")
    labels = attack.flags("Normal/Attack", {"Normal": False, "Attack": True})
    return [Dataset(name, "all", normal.filled(names), attack.filled(names), labels, names)]


def _read_wadi(name: str, location: Path) -> list[Dataset]:
    r"""WADI: one dataset of 123 variables.

    Files: WADI_14days_new.csv (where it is missing, the first release's WADI_14days.csv) and WADI_attackdataLABLE.csv;
    the header may stand below other rows. Of a name like \\WIN-...\1_AIT_001_PV the part after the last backslash
    counts, without spaces around it. The columns Row, Date, Time and four without any value (`WADI_BLANK`) are dropped.
    Labels: -1 is anomalous, 1 is normal. NaN rule: rows without any value are dropped (the attack file ends in such);
    an empty cell takes the last value before it, or else the next after it.
    """
    newest, first = location / "WADI_14days_new.csv", location / "WADI_14days.csv"
    normal = Table(first if first.is_file() and not newest.is_file() else newest, mark="Row")
    attack = Table(location / "WADI_attackdataLABLE.csv", mark="Row")
    names = normal.columns_but("Row", "Date", "Time", *WADI_BLANK)
    labels = attack.flags(WADI_LABEL, {"1": False, "1.0": False, "-1": True, "-1.0": True})
    return [Dataset(name, "all", normal.filled(names), attack.filled(names), labels, names)]


READERS: dict[str, Reader] = {
    "ASD": Reader(_read_asd, folder="ASD", mark="*/test_label.npy", archive="ASD.tar.xz"),
    "MSL": Reader(_read_nasa, folder="nasa", mark="labeled_anomalies.csv", archive="nasa-smap-msl.tar.xz"),
    "PSM": Reader(_read_psm, folder="PSM", mark="test_label.csv"),
    "SMAP": Reader(_read_nasa, folder="nasa", mark="labeled_anomalies.csv", archive="nasa-smap-msl.tar.xz"),
    "SMD": Reader(
        _read_smd,
        folder="ServerMachineDataset",
        mark="test_label/machine-*.txt",
        archive="ServerMachineDataset.tar.xz",
    ),
    "SWaT": Reader(_read_swat, folder="SWaT", mark="SWaT_Dataset_Attack_v0.csv"),
    "WADI": Reader(_read_wadi, folder="WADI", mark="WADI_attackdataLABLE.csv"),
}

# Origin: MSL, PSM, SMAP, SWaT and WADI from the paper's table of datasets (train and validation rows together);
# SMD from the OmniAnomaly paper, ASD from the InterFusion paper. WADI's 1,209,551 training rows are about those of the
# first release; the second (WADI_14days_new.csv) leaves out unstable periods and is shorter.
PUBLISHED: dict[str, Counts] = {
    "ASD": Counts(entities=12, train=102_331, test=51_840, variables=19, anomaly_percent=4.61),
    "MSL": Counts(entities=27, train=58_317, test=73_729, variables=55, anomaly_percent=10.53),
    "PSM": Counts(entities=1, train=129_784, test=87_841, variables=25, anomaly_percent=27.76),
    "SMAP": Counts(entities=54, train=138_004, test=435_826, variables=25, anomaly_percent=12.84),
    "SMD": Counts(entities=28, train=708_405, test=708_420, variables=38, anomaly_percent=4.16),
    "SWaT": Counts(entities=1, train=495_000, test=449_919, variables=51, anomaly_percent=12.14),
    "WADI": Counts(entities=1, train=1_209_551, test=172_801, variables=123, anomaly_percent=5.71),
}

HOW_TO_GET: dict[str, str] = {
    "ASD": "Take the folder ASD or ASD.tar.xz from the InterFusion repository and put it there.",
    "MSL": "Take the folder nasa or nasa-smap-msl.tar.xz, NASA's telemanom data, and put it there.",
    "PSM": "Take train.csv, test.csv and test_label.csv from eBay's RANSynCoders repository into PSM/ there.",
    "SMAP": "Take the folder nasa or nasa-smap-msl.tar.xz, NASA's telemanom data, and put it there.",
    "SMD": "Take the folder ServerMachineDataset or its .tar.xz from the OmniAnomaly repository and put it there.",
    "SWaT": "Request it from iTrust, SUTD, save both tables as comma-separated files and put them in SWaT/ there.",
    "WADI": "Request it from iTrust, SUTD, and put WADI_14days_new.csv and WADI_attackdataLABLE.csv in WADI/ there.",
}
