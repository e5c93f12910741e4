"""How the service is configured: flags, then environment variables, then `cometad.toml`."""

import ipaddress
import tomllib
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from cometad.errors import ParameterError

FILE = Path("cometad.toml")
PREFIX = "COMETAD_SERVE_"


class Settings(BaseSettings):
    """Where the service listens, what it keeps, and what clients may send.

    `cometad.toml` has these names in its table `[serve]`; the environment has them as `COMETAD_SERVE_PORT` and so on.

    >>> from cometad.serve.settings import Settings
    >>> Settings().port
    8080
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", hide_input_in_errors=True)

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8080
    data_dir: Path = Path("cometad-data")
    database: str | None = None  # a PostgreSQL URL; default: SQLite in the data folder
    keep_readings_days: Annotated[float, Field(gt=0, le=36_500)] = 30.0
    keep_scores_days: Annotated[float, Field(gt=0, le=36_500)] = 365.0
    keep_gigabytes: Annotated[float, Field(gt=0, le=1e6)] = 20.0
    max_streams: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    max_detectors: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    max_body_mib: Annotated[float, Field(gt=0, le=1024)] = 16.0  # of readings and other requests
    max_upload_mib: Annotated[float, Field(gt=0, le=16_384)] = 512.0  # of detectors and of series to fit on
    max_requests_per_second: Annotated[float, Field(gt=0)] = 2000.0  # of one client
    log_format: Annotated[str, Field(pattern="^(json|text)$")] = "text"

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect."""
        return is_loopback(self.host)


def load_settings(file: Path | None = None, **flags: Any) -> Settings:
    """The settings from flags, the environment and a file; a bad one is refused in one sentence.

    >>> from cometad.serve.settings import load_settings
    >>> load_settings(port=99999)
    Traceback (most recent call last):
    ...
    cometad.errors.ParameterError: Cannot use the setting 'port': Input should be less than or equal to 65535.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    from_file = _from_file(file)
    try:
        chosen = Settings(**given)  # what flags and the environment say
        rest = {name: value for name, value in from_file.items() if name not in chosen.model_fields_set}
        return Settings(**given, **rest)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"]) or "settings"
        problem = "it is not known" if first["type"] == "extra_forbidden" else first["msg"]
        raise ParameterError(f"Cannot use the setting {name!r}: {problem}.") from error


def _from_file(file: Path | None) -> dict[str, Any]:
    path = file or FILE
    if not path.exists():
        if file is not None:
            raise ParameterError(f"There is no file '{file}'. Leave out --config, or name an existing file.")
        return {}
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ParameterError(f"Cannot read '{path}': {error}. Correct it; it is written in TOML.") from error
    table = found.get("serve", {})
    if not isinstance(table, dict):
        raise ParameterError(f"In '{path}', serve is not a table. Write [serve] above its settings.")
    return table


def is_loopback(host: str) -> bool:
    """Whether an address is of this machine only.

    >>> from cometad.serve.settings import is_loopback
    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
