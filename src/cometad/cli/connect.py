"""`cometad connect`."""

import json
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cometad.cli.exits import say, write_output
from cometad.cli.options import Force, flag
from cometad.cli.paths import Output, check_outputs
from cometad.cli.serve import ServiceOptions
from cometad.errors import ParameterError, needs_extra

if TYPE_CHECKING:
    from cometad.connect.address import Address
    from cometad.serve.follow import Line


@dataclass(frozen=True)
class AddressOptions:
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL", help="Source of the readings: mqtt://, nats://, kafka://, opc.tcp://, prometheus+http:// ..."
        ),
    ]
    stream: str | None = flag("Stream of the readings, unless the messages name it.")
    tag: list[str] | None = flag("Topic, node or query of one variable; repeatable.", metavar="VARIABLE=ADDRESS")
    period: str | None = flag("Time between readings, such as 1s, for tags and queries.")
    option: list[str] | None = flag("Option of the connector; repeatable.", metavar="NAME=VALUE")
    user: str | None = flag("User to log in as.")
    password_variable: str | None = flag("Environment variable that holds the password.", metavar="NAME")
    name: str | None = flag("Name of the connection. Default: derived from the URL.")

    def value(self) -> "Address":
        from cometad.connect.address import Address
        from cometad.connect.source import source_of

        tags, options = _pairs(self.tag, "--tag"), _pairs(self.option, "--option")
        address = Address(
            self.url, self.stream, tags, self.period, self.name, self.user, self.password_variable, options
        )
        source_of(address)  # refuses bad addresses before anything is opened
        return address


def connect(
    *,
    address: AddressOptions,
    detector: Path | None = flag("Saved detector; creates the stream if it does not exist."),
    late: str = flag("Late readings of a new stream: refuse (set aside) or drop.", default="drop"),
    output: Path | None = flag(
        "File for the lines; later runs append to it. Default: standard output.", "--output", "-o"
    ),
    to: str | None = flag(
        "Also send events to this topic (mqtt://localhost/events), webhook or Alertmanager.", metavar="URL"
    ),
    only_events: bool = flag(
        "Write only lines on which an event opens, changes or closes.", "--only-events", default=False
    ),
    service: ServiceOptions,
    force: Force = False,
) -> None:
    """Score readings from a broker, historian or monitoring system without the service: JSON lines on standard output.

    A reading is acknowledged once it is on disk, in the data folder. After a stop or a crash, the same command resumes
    where it stopped. After a crash, some lines may repeat on standard output, but never in a file. Events reach the
    --to receiver at least once, even after a crash.

    Unusable messages are set aside in the data folder with their reasons. A lost source is retried until it is back.

    For several sources, or for a dashboard, list the sources in cometad.toml and run cometad serve.
    """
    needs_extra("sqlalchemy", "connect")

    from cometad.live.output import AnswersFile
    from cometad.series import check_late
    from cometad.serve.follow import follow
    from cometad.serve.logs import configure_logs
    from cometad.serve.settings import NotifySettings

    check_late(late)
    source, settings = address.value(), service.settings()
    receivers = settings.notify if to is None else [*settings.notify, NotifySettings(name="to", url=to)]
    settings = settings.model_copy(update={"connect": [], "notify": receivers})
    configure_logs("text", quiet=True)
    # Opening an existing file checks line by line that it is one of ours.
    check_outputs([Output(output, "answers")], [] if detector is None else [detector], force=True)
    with nullcontext() if output is None else closing(AnswersFile(output, overwrite=force)) as file:

        def write(lines: "list[Line]") -> None:
            wanted = [line for line in lines if "events" in line or not only_events]
            if file is None:
                write_output("".join(f"{json.dumps(line)}\n" for line in wanted))
            else:
                file.write_lines(wanted)

        follow(settings, source, write, say, detector=detector, stream_settings={"late": late})


def _pairs(texts: list[str] | None, flag: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not (equals and name and value):
            raise ParameterError(f"The flag {flag} takes NAME=VALUE. Got {text!r} instead.")
        if name in pairs:
            raise ParameterError(f"The flag {flag} names {name!r} twice. Pass it once.")
        pairs[name] = value
    return pairs
