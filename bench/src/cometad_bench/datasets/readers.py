"""Readers for the official files of nine benchmark datasets, as folders or archives.

To add a dataset, write a function that returns its entities and add a row to `READERS`.
"""

import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeVar

import numpy as np

from cometad.arrays import Array, Floats
from cometad.datasets.dataset import Cause, Dataset, concatenate
from cometad.errors import InputError, unknown
from cometad_bench.datasets.archive import SensorTable, members, npy_array, text_numbers
from cometad_bench.datasets.stored import StoredDataset, opened
from cometad_bench.datasets.tsb_ad import FILES, read_tsb_ad_m

Content = TypeVar("Content")

WADI_BLANK = ("2_LS_001_AL", "2_LS_002_AL", "2_P_001_STATUS", "2_P_002_STATUS")  # empty in every release
WADI_LABEL = "Attack LABLE (1:No Attack, -1:Attack)"
MINUTE = 60
SKAB_TRAIN = 400  # rows at the start of an experiment
SKAB_FILES = tuple(f"data/{folder}/*.csv" for folder in ("valve1", "valve2", "other"))
SKAB_OTHERS = ("datetime", "anomaly", "changepoint")  # columns that are not sensors


@dataclass(frozen=True)
class Counts:
    entities: int
    train: int  # readings
    test: int
    variables: int  # the most that an entity has
    anomaly_percent: float  # of the test readings, to two decimals


@dataclass(frozen=True)
class DatasetReader:
    """How to read a dataset, where its files are, and its published size."""

    read: Callable[[str, Path], Iterable[Dataset | StoredDataset]]  # name, folder or archive -> entities by name
    folder: str  # in the data folder
    mark: str  # pattern of a file that only this dataset has
    published: Counts
    how_to_get: str  # one sentence for users who do not have the files
    archive: str | None = None  # in the data folder
    period: int = MINUTE  # seconds between two readings, as published


@dataclass(frozen=True)
class Status:
    name: str
    location: Path | None  # a folder or an archive
    how_to_get: str

    @property
    def found(self) -> bool:
        """Whether its files exist; they are not opened."""
        return self.location is not None


@dataclass(frozen=True)
class Check:
    name: str
    found: Counts
    published: Counts

    @property
    def agrees(self) -> bool:
        return self.found == self.published


SHARED = Path("..", "shared", "data")  # next to a checkout


def find_data_dir(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """The folder with the datasets: the argument, else $COMETAD_DATA, else ../shared/data.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from cometad_bench.datasets.readers import find_data_dir
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     find_data_dir(folder) == Path(folder)
    True
    """
    given = _named(data_dir)
    if given is None:
        raise InputError("No data folder found.", advice="no data folder")
    if not given.is_dir():
        raise InputError(f"The data folder '{given}' does not exist. Pass the folder with the datasets.")
    return given


def _named(data_dir: str | os.PathLike[str] | None) -> Path | None:
    given = data_dir or os.environ.get("COMETAD_DATA")  # an empty variable means none
    return Path(given) if given else SHARED if SHARED.is_dir() else None


def status(name: str, data_dir: str | os.PathLike[str] | None = None) -> Status:
    """Whether a dataset was found; its files are not opened.

    >>> import tempfile
    >>> from cometad_bench.datasets.readers import status
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     status("PSM", folder).found
    False
    """
    reader = _reader(name)
    location = None if _named(data_dir) is None else _locate(reader, find_data_dir(data_dir))
    return Status(name, location, reader.how_to_get)


def load(name: str, data_dir: str | os.PathLike[str] | None = None) -> list[Dataset]:
    """The entities of a dataset, sorted by name as text (D-1, D-11, D-2).

    >>> from cometad_bench.datasets.readers import load
    >>> load("PMS")
    Traceback (most recent call last):
    ...
    cometad.errors.ParameterError: Unknown dataset 'PMS'. Did you mean PSM?
    Available: ASD, MSL, PSM, SKAB, SMAP, SMD, SWaT, TSB-AD-M, WADI.
    """
    return list(map(opened, entities(name, data_dir)))


def entities(name: str, data_dir: str | os.PathLike[str] | None = None) -> list[Dataset | StoredDataset]:
    """The same entities as `load`, but those of a large collection stay on disk until they are `opened`."""
    reader, folder = _reader(name), find_data_dir(data_dir)
    location = _locate(reader, folder)
    if location is None:
        raise InputError(f"The files of {name} are not in '{folder}'. {reader.how_to_get}")
    found = list(reader.read(name, location))
    if not found:
        raise InputError(f"'{location}' contains no entity of {name}. {reader.how_to_get}")
    return found


def load_concatenated(name: str, data_dir: str | os.PathLike[str] | None = None) -> Dataset:
    """All entities of a dataset concatenated in sorted order, as the paper does for SMAP and MSL."""
    return concatenate(load(name, data_dir))


def check(name: str, data_dir: str | os.PathLike[str] | None = None) -> Check:
    """Compare the counts in the files of a dataset with the published ones."""
    return Check(name, counts(map(opened, entities(name, data_dir))), READERS[name].published)


def period(name: str) -> int:
    """Seconds between two readings of a dataset, as published; 60 for a dataset without a reader."""
    return READERS[name].period if name in READERS else MINUTE


def counts(datasets: Iterable[Dataset]) -> Counts:
    """The size of a dataset over all its entities.

    >>> import numpy as np
    >>> from cometad.datasets.dataset import Dataset
    >>> from cometad_bench.datasets.readers import counts
    >>> counts([Dataset("plant", "pump", np.zeros((3, 1)), np.ones((2, 1)), np.array([False, True]), ("flow",))])
    Counts(entities=1, train=3, test=2, variables=1, anomaly_percent=50.0)
    """
    found = train = test = anomalous = variables = 0
    for dataset in datasets:  # one at a time: they may not all fit into memory
        found += 1
        train += len(dataset.train)
        test += len(dataset.test)
        anomalous += int(dataset.labels.sum())
        variables = max(variables, len(dataset.names))
    return Counts(found, train, test, variables, round(100 * anomalous / test, 2))


def _reader(name: str) -> DatasetReader:
    if name not in READERS:
        raise unknown("dataset", name, READERS)
    return READERS[name]


def _locate(reader: DatasetReader, data_dir: Path) -> Path | None:
    for folder in (data_dir / reader.folder, data_dir):
        if any(folder.glob(reader.mark)):
            return folder
    archive = data_dir / reader.archive if reader.archive else None
    return archive if archive is not None and archive.is_file() else None


# --- datasets with one file per entity or part: SMAP, MSL, SMD, ASD, SKAB ---------------------------------------------


def _read_nasa(name: str, location: Path) -> Iterator[Dataset]:
    """SMAP or MSL: one dataset per channel of that spacecraft in labeled_anomalies.csv.

    Files: {train,test}/<channel>.npy and labeled_anomalies.csv; arrays without a row in that table (T-10) are skipped.
    Labels: ranges include their last time step; a channel with several rows (P-2) gets their union. Variables: column 0
    is telemetry, the others are commands. No missing values; nothing is scaled.
    """
    files = {
        str(path): content for path, content in members(location, "labeled_anomalies.csv", "train/*.npy", "test/*.npy")
    }
    ranges = _labeled_ranges(_required(files, "labeled_anomalies.csv", location), name)
    for entity in sorted(ranges):
        paths = (f"{part}/{entity}.npy" for part in ("train", "test"))
        train, test = (npy_array(_required(files, path, location), path, axes=2) for path in paths)
        labels = np.zeros(len(test), dtype=np.bool_)
        for start, stop in ranges[entity]:
            labels[start:stop] = True
        names = ("telemetry", *(f"command{i}" for i in range(1, train.shape[1])))
        yield Dataset(name, entity, _floats(train), _floats(test), labels, names)


def _read_smd(name: str, location: Path) -> Iterator[Dataset]:
    """SMD: one dataset per machine, with the variables that cause each anomaly.

    Files: {train,test,test_label,interpretation_label}/<machine>.txt, comma-separated without a header. Labels: 1 is
    anomalous. Causes: lines `start-stop:variables`; the stop is excluded (this way the intervals match the labels of
    every machine exactly) and variables count from 1. No missing values; the data is already scaled.
    """
    parts = ("train", "test", "test_label")
    numbers: dict[str, Floats] = {}
    causes: dict[str, tuple[Cause, ...]] = {}
    for path, content in members(location, *(f"{part}/machine-*.txt" for part in (*parts, "interpretation_label"))):
        if path.parts[0] == "interpretation_label":
            causes[path.stem] = _causes(content, str(path))
        else:
            numbers[str(path)] = text_numbers(content, str(path))
    for entity in sorted({PurePosixPath(path).stem for path in numbers}):
        train, test, labels = (_required(numbers, f"{part}/{entity}.txt", location) for part in parts)
        yield Dataset(name, entity, train, test, labels[:, 0] > 0, _numbered(train), causes=causes.get(entity))


def _read_asd(name: str, location: Path) -> Iterator[Dataset]:
    """ASD: one dataset per server.

    Files: <server>/{train,test,test_label}.npy. Labels: 1 is anomalous. No missing values; the data is already scaled
    to [0, 1].
    """
    files = {str(path): content for path, content in members(location, "*/*.npy")}
    for entity in sorted({PurePosixPath(path).parts[0] for path in files}):
        parts = {f"{entity}/train.npy": 2, f"{entity}/test.npy": 2, f"{entity}/test_label.npy": 1}
        train, test, labels = (npy_array(_required(files, path, location), path, axes) for path, axes in parts.items())
        yield Dataset(name, entity, _floats(train), _floats(test), labels > 0, _numbered(train))


def _read_skab(name: str, location: Path) -> Iterator[Dataset]:
    """SKAB: one dataset per experiment of a water-circulation testbed, named by folder and file (valve1/0).

    Files: data/{valve1,valve2,other}/<number>.csv, separated by semicolons, with a header; the anomaly-free run is not
    read. Split: the official one, the first 400 rows of an experiment train. Variables: all columns but datetime,
    anomaly and changepoint. Labels: the column anomaly, 1 is anomalous. No missing values; nothing is scaled. Known
    criticism: experiments are short (about 1,100 rows), half of the test rows are anomalous, and the training rows of
    other/2 have anomalies.
    """
    files = {f"{path.parent.name}/{path.stem}": (path, content) for path, content in members(location, *SKAB_FILES)}
    for entity, (path, content) in sorted(files.items()):
        header, _, body = content.partition(b"\n")
        columns = header.decode(errors="replace").strip().split(";")
        if any(other not in columns for other in SKAB_OTHERS) or columns[0] != "datetime":
            raise InputError(f"'{path}' is not a table of SKAB v0.9. Download it again.")
        cells = b"\n".join(line.partition(b";")[2] for line in body.splitlines())  # without the timestamps
        table = dict(zip(columns[1:], text_numbers(cells, str(path), ";").T, strict=True))
        names = tuple(column for column in columns if column not in SKAB_OTHERS)
        values = np.column_stack([table[column] for column in names])
        train, test, labels = values[:SKAB_TRAIN], values[SKAB_TRAIN:], table["anomaly"][SKAB_TRAIN:] > 0
        yield Dataset(name, entity, _floats(train), _floats(test), labels, names)


def _required(files: Mapping[str, Content], path: str, location: Path) -> Content:
    if path not in files:
        raise InputError(f"'{location}' has no file '{path}'. Download the dataset again.")
    return files[path]


def _numbered(values: Array) -> tuple[str, ...]:
    return tuple(f"v{i}" for i in range(values.shape[1]))


def _floats(values: Array) -> Floats:
    return np.ascontiguousarray(values, dtype=np.float64)


def _labeled_ranges(table: bytes, spacecraft: str) -> dict[str, list[tuple[int, int]]]:
    ranges: dict[str, list[tuple[int, int]]] = {}
    try:
        for row in csv.DictReader(io.StringIO(table.decode())):
            if row["spacecraft"] == spacecraft:
                labeled = [(int(first), int(last) + 1) for first, last in json.loads(row["anomaly_sequences"])]
                ranges.setdefault(row["chan_id"], []).extend(labeled)
    except (KeyError, ValueError, TypeError) as error:
        raise InputError("'labeled_anomalies.csv' is not the table from telemanom. Download it again.") from error
    return ranges


def _causes(content: bytes, what: str) -> tuple[Cause, ...]:
    causes: list[Cause] = []
    for line in content.decode(errors="replace").split():
        match = re.fullmatch(r"(\d+)-(\d+):(\d+(?:,\d+)*)", line)
        if match is None:
            raise InputError(f"Line {line!r} of '{what}' is not of the form start-stop:variables. Download it again.")
        variables = tuple(int(number) - 1 for number in match[3].split(","))
        causes.append(((int(match[1]), int(match[2])), variables))
    return tuple(causes)


# --- datasets with one table per part: PSM, SWaT, WADI ----------------------------------------------------------------


def _read_psm(name: str, location: Path) -> list[Dataset]:
    """PSM: one dataset with 25 variables.

    Files: train.csv, test.csv and test_label.csv, each with a header; the rows of the last two correspond. The column
    timestamp_(min) is dropped. Missing values: incomplete rows are dropped (train shrinks from 132,481 to 129,784
    rows), together with their labels in the test part. Labels: 1 is anomalous, 0 is normal.
    """
    time = "timestamp_(min)"
    tables = [SensorTable(location / file, mark=time) for file in ("train.csv", "test.csv", "test_label.csv")]
    names = tables[0].columns_but(time)
    train, test = (table.numbers(names) for table in tables[:2])
    labels = tables[2].flags("label", {"0": False, "1": True})
    if len(labels) != len(test):
        raise InputError(f"PSM has {len(test)} test rows but {len(labels)} labels. Download the files again.")
    complete = ~np.isnan(test).any(axis=1)
    return [Dataset(name, "all", train[~np.isnan(train).any(axis=1)], test[complete], labels[complete], names)]


def _read_swat(name: str, location: Path) -> list[Dataset]:
    """SWaT: one dataset with 51 variables.

    Files: SWaT_Dataset_Normal_v1.csv and SWaT_Dataset_Attack_v0.csv; there may be a row of stage names (P1, P2, ...)
    above the header, and spaces around names are stripped. The columns Timestamp and Normal/Attack are dropped. Labels:
    "Attack", also spelled "A ttack", is anomalous, "Normal" is normal. Missing values: empty rows are dropped; empty
    cells are filled forward, then backward (the official files have none).
    """
    normal = SensorTable(location / "SWaT_Dataset_Normal_v1.csv", mark="Timestamp")
    attack = SensorTable(location / "SWaT_Dataset_Attack_v0.csv", mark="Timestamp")
    names = normal.columns_but("Timestamp", "Normal/Attack")
    labels = attack.flags("Normal/Attack", {"Normal": False, "Attack": True})
    return [Dataset(name, "all", normal.numbers(names, filled=True), attack.numbers(names, filled=True), labels, names)]


def _read_wadi(name: str, location: Path) -> list[Dataset]:
    r"""WADI: one dataset with 123 variables.

    Files: WADI_14days_new.csv (or WADI_14days.csv of the first release) and WADI_attackdataLABLE.csv; there may be
    other rows above the header. A name like \\WIN-...\1_AIT_001_PV is cut to the part after the last backslash and
    stripped. The columns Row, Date, Time and four empty ones (`WADI_BLANK`) are dropped. Labels: -1 is anomalous, 1 is
    normal. Missing values: empty rows are dropped (the attack file ends with some); empty cells are filled forward,
    then backward.
    """
    newest, first = location / "WADI_14days_new.csv", location / "WADI_14days.csv"
    normal = SensorTable(first if first.is_file() and not newest.is_file() else newest, mark="Row")
    attack = SensorTable(location / "WADI_attackdataLABLE.csv", mark="Row")
    names = normal.columns_but("Row", "Date", "Time", *WADI_BLANK)
    labels = attack.flags(WADI_LABEL, {"1": False, "1.0": False, "-1": True, "-1.0": True})
    return [Dataset(name, "all", normal.numbers(names, filled=True), attack.numbers(names, filled=True), labels, names)]


NASA_SOURCE = "Put the folder nasa or nasa-smap-msl.tar.xz (NASA's telemanom data) into the data folder."

# Published counts: MSL, PSM, SMAP, SWaT and WADI from the paper's table of datasets (train and validation rows
# together), SMD from the OmniAnomaly paper, ASD from the InterFusion paper, SKAB counted in the files of v0.9, TSB-AD-M
# from the results by series in its repository and from the names of its files. WADI's 1,209,551 training rows are close
# to the first release; the second (WADI_14days_new.csv) leaves out unstable periods and is shorter.
READERS: dict[str, DatasetReader] = {
    "ASD": DatasetReader(
        _read_asd,
        folder="ASD",
        mark="*/test_label.npy",
        archive="ASD.tar.xz",
        published=Counts(entities=12, train=102_331, test=51_840, variables=19, anomaly_percent=4.61),
        period=5 * MINUTE,
        how_to_get="Put the folder ASD or ASD.tar.xz from the InterFusion repository into the data folder.",
    ),
    "MSL": DatasetReader(
        _read_nasa,
        folder="nasa",
        mark="labeled_anomalies.csv",
        archive="nasa-smap-msl.tar.xz",
        published=Counts(entities=27, train=58_317, test=73_729, variables=55, anomaly_percent=10.53),
        how_to_get=NASA_SOURCE,
    ),
    "PSM": DatasetReader(
        _read_psm,
        folder="PSM",
        mark="test_label.csv",
        published=Counts(entities=1, train=129_784, test=87_841, variables=25, anomaly_percent=27.76),
        how_to_get="Take train.csv, test.csv and test_label.csv from eBay's RANSynCoders and put them into PSM/.",
    ),
    "SKAB": DatasetReader(
        _read_skab,
        folder="SKAB",
        mark="data/valve1/*.csv",
        archive="SKAB.tar.xz",
        published=Counts(entities=34, train=13_600, test=23_801, variables=8, anomaly_percent=53.66),
        period=1,
        how_to_get="Put the folder SKAB or SKAB.tar.xz (v0.9 of the SKAB repository) into the data folder.",
    ),
    "SMAP": DatasetReader(
        _read_nasa,
        folder="nasa",
        mark="labeled_anomalies.csv",
        archive="nasa-smap-msl.tar.xz",
        published=Counts(entities=54, train=138_004, test=435_826, variables=25, anomaly_percent=12.84),
        how_to_get=NASA_SOURCE,
    ),
    "SMD": DatasetReader(
        _read_smd,
        folder="ServerMachineDataset",
        mark="test_label/machine-*.txt",
        archive="ServerMachineDataset.tar.xz",
        published=Counts(entities=28, train=708_405, test=708_420, variables=38, anomaly_percent=4.16),
        how_to_get="Put the folder ServerMachineDataset or its .tar.xz (OmniAnomaly repository) into the data folder.",
    ),
    "SWaT": DatasetReader(
        _read_swat,
        folder="SWaT",
        mark="SWaT_Dataset_Attack_v0.csv",
        published=Counts(entities=1, train=495_000, test=449_919, variables=51, anomaly_percent=12.14),
        period=1,
        how_to_get="Request it from iTrust, SUTD, save both tables as CSV files and put them into SWaT/.",
    ),
    "TSB-AD-M": DatasetReader(
        read_tsb_ad_m,
        folder="TSB-AD-M",
        mark=FILES,
        published=Counts(entities=180, train=2_694_125, test=19_588_816, variables=248, anomaly_percent=4.25),
        how_to_get="Unpack https://www.thedatum.org/datasets/TSB-AD-M.zip into the data folder.",
    ),
    "WADI": DatasetReader(
        _read_wadi,
        folder="WADI",
        mark="WADI_attackdataLABLE.csv",
        published=Counts(entities=1, train=1_209_551, test=172_801, variables=123, anomaly_percent=5.71),
        period=1,
        how_to_get="Request it from iTrust, SUTD, and put WADI_14days_new.csv and WADI_attackdataLABLE.csv into WADI/.",
    ),
}
