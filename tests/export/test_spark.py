"""The recipe for Spark in docs/edge.md, where pyspark is installed."""

import re
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cometad import Comet

PAGE = (Path(__file__).parents[2] / "docs" / "edge.md").read_text()


def recipe():
    """The two blocks of the recipe: the function, and how Spark calls it."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.split("## On Spark\n")[1], re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    return blocks


@pytest.mark.filterwarnings("ignore")  # pyspark 4 warns about pandas 3 in many places
def test_the_recipe_for_spark_scores_each_machine_as_a_stream_does(tmp_path, monkeypatch):
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    rng = np.random.default_rng(0)
    detector = Comet().fit(pl.DataFrame(rng.normal(size=(600, 2)), schema=["flow", "level"]))
    detector.save("plant.comet")
    values = {name: rng.normal(size=(100, 2)) for name in ("press 1", "press 2")}
    values["press 2"][50] = 9.0
    times = pl.datetime_range(pl.datetime(2026, 1, 1), pl.datetime(2026, 1, 1, 1, 39), "1m", eager=True)
    frames = [
        pl.DataFrame(own, schema=["flow", "level"]).with_columns(machine=pl.lit(name), time=times)
        for name, own in values.items()
    ]
    Path("readings").mkdir()
    pl.concat(frames).sample(fraction=1.0, shuffle=True, seed=0).write_parquet("readings/part.parquet")
    names: dict = {}
    for block in recipe():
        exec(block, names)
    try:
        found = names["result"].orderBy("machine", "time").collect()
    finally:
        names["spark"].stop()
    for name, own in values.items():
        expected = detector.stream().update_many(own)
        part = [row for row in found if row.machine == name]
        assert [row.alert_score for row in part] == expected.alert_scores.tolist()
        assert [row.anomaly for row in part] == expected.flags.tolist()
