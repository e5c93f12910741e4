"""The public names."""

import subprocess
import sys

import cometad


def test_every_public_name_is_there_and_has_a_docstring():
    for name in cometad.__all__:
        thing = getattr(cometad, name)
        if name not in ("ABLATIONS", "BASELINES"):  # tables: what they are stands beside them
            assert ">>>" in thing.__doc__ or issubclass(thing, Exception), name


def test_importing_the_package_does_not_import_torch():
    code = "import sys, cometad; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
