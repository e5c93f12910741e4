"""Small files in the format of TSB-AD-M."""

import numpy as np

NAMES = (
    "001_Genesis_id_1_Sensor_tr_300_1st_420.csv",
    "002_MSL_id_1_Sensor_tr_300_1st_350.csv",
    "003_MSL_id_2_Sensor_tr_250_1st_500.csv",
    "004_MSL_id_3_Sensor_tr_300_1st_400.csv",  # for tuning
    "116_TAO_id_1_Environment_tr_300_1st_3.csv",  # with anomalies among its training rows
)
ROWS = 700


def table(first, rows=ROWS, variables=3, seed=0):
    """Waves with a period of 25 readings and two anomalies, the first of them at `first`; the labels come last."""
    rng = np.random.default_rng(seed)
    time = np.arange(rows)[:, None]
    values = np.sin(2 * np.pi * (time / 25 + np.arange(variables) / 7)) + 0.1 * rng.normal(size=(rows, variables))
    labels = np.zeros(rows)
    for start, length in ((first, 4), (600, 40)):
        labels[start : start + length] = 1
    values[labels > 0] += 3
    return np.column_stack([values, labels])


def write_table(folder, name, values):
    """Write one file below the data folder and return its path."""
    path = folder / "TSB-AD-M" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    header = ",".join([*(str(i) for i in range(values.shape[1] - 1)), "Label"])
    lines = [",".join([*(repr(float(value)) for value in row[:-1]), str(int(row[-1]))]) for row in values]
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def write_archive(folder):
    """Write all files of `NAMES`, each with another number of variables, and return the data folder."""
    for i, name in enumerate(NAMES):
        first = int(name.removesuffix(".csv").rpartition("_")[2])
        write_table(folder, name, table(first, variables=2 + i, seed=i))
    return folder
