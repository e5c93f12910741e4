"""The committed reports are what the committed results say, byte for byte: every table, footnote, mark and sentence."""

from pathlib import Path

import pytest

from cometad_bench.report import report

RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize("name", sorted(path.stem for path in RESULTS.glob("*.md")))
def test_a_committed_report_is_what_its_results_say(name, tmp_path):
    written = {path.name for path in report([name], folder=RESULTS, out=tmp_path)}
    assert {path.name for path in RESULTS.glob(f"{name}[.-]*") if path.suffix in (".md", ".png")} <= written
    assert (tmp_path / f"{name}.md").read_text() == (RESULTS / f"{name}.md").read_text()
