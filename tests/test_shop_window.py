"""The public names, and the README's example."""

import re
import subprocess
import sys
from pathlib import Path

import cometad

ROOT = Path(__file__).parents[1]


def test_every_public_name_is_there_and_has_a_docstring():
    for name in cometad.__all__:
        thing = getattr(cometad, name)
        if name not in ("ABLATIONS", "BASELINES"):  # tables: what they are stands beside them
            assert ">>>" in thing.__doc__ or issubclass(thing, Exception), name


def test_importing_the_package_does_not_import_torch():
    code = "import sys, cometad; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_example_of_the_readme_runs():
    example = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL).group(1)
    quick = example.replace("Comet()", "Comet(schedule=OneCycle(5), codebook_size=32)")
    names: dict[str, object] = {}
    exec("from cometad import OneCycle\n" + quick, names)
    assert len(names["scores"]) == len(names["plant"].test)
