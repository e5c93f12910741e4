"""A certificate for servers on this machine, signed by itself."""

import subprocess
from pathlib import Path


def self_signed(folder: Path) -> tuple[Path, Path]:
    """The files of a new certificate for 127.0.0.1 and of its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    command = [*make, "-keyout", str(key), "-out", str(certificate), *names]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return certificate, key
