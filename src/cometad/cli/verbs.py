"""The command line application. A verb imports torch only when it needs it, so that `--help` is instant."""

import importlib
from collections.abc import Sequence
from importlib.metadata import version

import typer

from cometad.cli import fleet
from cometad.cli.check import check
from cometad.cli.connect import connect
from cometad.cli.demo import demo
from cometad.cli.evaluate import evaluate
from cometad.cli.exits import (
    MISTAKE,
    add_verb,
    explain_system,
    flush_output,
    guarded,
    open_standard_streams,
    say,
    silence_output,
)
from cometad.cli.explain import explain
from cometad.cli.export import export
from cometad.cli.fit import fit
from cometad.cli.options import flag
from cometad.cli.report import report
from cometad.cli.score import score
from cometad.cli.serve import create_token, list_tokens, revoke_token, serve
from cometad.cli.stream import stream
from cometad.errors import missing_extra

app = typer.Typer(
    name="cometad",
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: cometad demo",
)


@app.callback(invoke_without_command=True)
def cometad(
    context: typer.Context,
    show_version: bool = flag("Show the version and exit.", "--version", default=False),
) -> None:
    """Find anomalies in multivariate time series, live, and see which variables are behind them.

    Fit a detector on readings of normal operation, then score other readings from a file or as they arrive.
    """
    if show_version:
        print(f"cometad {version('cometad')}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


UNWRITTEN = "Interrupted; nothing was written."
KEPT = "Interrupted; what was fitted is kept. Run the same command to continue."

add_verb(app, "demo", demo, "cometad demo --out demo")
add_verb(app, "check", check, "cometad check today.csv plant.comet")
add_verb(
    app,
    "fit",
    fit,
    "cometad fit normal.csv -o plant.comet",
    UNWRITTEN,
    order="output detector preset dataset views exclude trim trends counter state time_column drop resample",
)
add_verb(
    app, "score", score, "cometad score plant.comet today.csv -o scores.csv", UNWRITTEN, order="output events threshold"
)
add_verb(app, "explain", explain, "cometad explain plant.comet today.csv --start 120 --stop 131")
add_verb(
    app,
    "report",
    report,
    "cometad report plant.comet today.csv -o report.html",
    UNWRITTEN,
    order="output most_events threshold",
)
add_verb(app, "export", export, "cometad export plant.comet -o plant.onnx", UNWRITTEN)
add_verb(app, "evaluate", evaluate, "cometad evaluate labels.csv scores.csv")
add_verb(
    app,
    "stream",
    stream,
    "tail -n +1 -f today.csv | cometad stream plant.comet",
    order="form output snapshot snapshot_every threshold only_events resample late time_column gaps",
)
add_verb(app, "serve", serve, "cometad serve --port 8080", "Stopped.")
add_verb(
    app,
    "connect",
    connect,
    "cometad connect mqtt://localhost/plant/pump --stream pump --detector pump.comet",
    "Stopped; the same command continues.",
    order="stream detector",
)

_token = typer.Typer(help="Create, list and revoke the tokens of the live service.")
add_verb(_token, "create", create_token, "cometad token create gateway-3 --scope write")
add_verb(_token, "list", list_tokens, "cometad token list")
add_verb(_token, "revoke", revoke_token, "cometad token revoke gateway-3")
app.add_typer(_token, name="token", no_args_is_help=True)

_fleet = typer.Typer(help="One detector for each of many entities: fit, score and report them in one go.")
add_verb(
    _fleet,
    "fit",
    fleet.fit,
    "cometad fleet fit history.parquet --by machine -o fleet",
    KEPT,
    order="output by engine address workers pool",
)
add_verb(_fleet, "score", fleet.score, "cometad fleet score fleet today.parquet -o scores.parquet", UNWRITTEN)
add_verb(_fleet, "report", fleet.report, "cometad fleet report fleet today.parquet -o fleet.html")
add_verb(_fleet, "list", fleet.show_list, "cometad fleet list fleet --failed")
add_verb(_fleet, "check", fleet.check, "cometad fleet check fleet today.parquet")
app.add_typer(_fleet, name="fleet", no_args_is_help=True)


def _research(name: str, help: str) -> None:
    """Add the verbs of the distribution cometad-bench, or one that says how to install it."""
    try:
        app.add_typer(importlib.import_module(f"cometad_bench.verbs.{name}").app, name=name, help=help)
    except ModuleNotFoundError as error:
        if error.name != "cometad_bench":
            raise
        anything = {"allow_extra_args": True, "ignore_unknown_options": True}

        def missing() -> None:
            raise missing_extra(f"cometad {name}", "cometad_bench")

        app.command(name, help=help, context_settings=anything)(guarded(missing, ""))


_research("data", "Show which benchmark datasets are available and whether they match the published ones.")
_research("bench", "Compare detectors: run the trials of an experiment, and turn results into tables and figures.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code."""
    open_standard_streams()
    try:
        code = app(args=arguments, prog_name="cometad", standalone_mode=False)
        flush_output()
    except BrokenPipeError:
        silence_output()  # as in `cometad --help | head -1`
        return 0
    except OSError as error:  # of --help and --version; verbs are guarded
        return explain_system(error)
    except Exception as error:
        # A usage error. Depending on the version of typer, its class is click's or typer's own.
        if not hasattr(error, "format_message"):
            raise
        context = getattr(error, "ctx", None)
        sentence = " ".join(error.format_message().split())
        if sentence:  # empty if the help was shown instead
            end = "" if sentence[-1] in ".?!" else "."
            say(f"{sentence}{end} See {context.command_path if context else 'cometad'} --help.")
        return MISTAKE
    return code if isinstance(code, int) else 0
