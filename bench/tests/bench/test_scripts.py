"""Scripts that reach into the service still find what they measure."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.mark.servers
def test_the_load_on_the_service_is_measured_for_every_reading(tmp_path):
    command = [sys.executable, SCRIPTS / "serve.py", "--folder", tmp_path, "load"]
    command += ["--streams", "3", "--seconds", "2", "--batches", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "| readings accepted | 6 of 6 |" in done.stdout
    assert "| scores stored, with the first of each stream | 9 |" in done.stdout
