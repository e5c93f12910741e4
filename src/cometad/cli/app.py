"""The command line application. A verb imports torch only when it needs it, so that `--help` is instant."""

import inspect
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Annotated

import typer

from cometad.cli import bench, data, fleet
from cometad.cli.check import check
from cometad.cli.connect import connect
from cometad.cli.demo import demo
from cometad.cli.evaluate import evaluate
from cometad.cli.exits import (
    MISTAKE,
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
from cometad.cli.options import with_options
from cometad.cli.report import report
from cometad.cli.score import score
from cometad.cli.serve import create_token, list_tokens, revoke_token, serve
from cometad.cli.stream import stream

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
    show_version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Find anomalies in multivariate time series, live, and see which variables are behind them.

    Fit a detector on readings of normal operation, then score other readings from a file or as they arrive.
    """
    if show_version:
        print(f"cometad {version('cometad')}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


def _add(
    to: typer.Typer, name: str, verb: Callable[..., None], example: str, interrupted: str = "Interrupted."
) -> None:
    paragraphs = inspect.cleandoc(verb.__doc__ or "").split("\n\n")
    text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)  # typer keeps single line breaks
    to.command(name, help=text, epilog=f"Example: {example}")(guarded(verb, interrupted))


_add(app, "demo", demo, "cometad demo --out demo")
_add(app, "check", with_options(check), "cometad check today.csv plant.comet")
_add(app, "fit", with_options(fit), "cometad fit normal.csv -o plant.comet", "Interrupted; nothing was written.")
_add(
    app,
    "score",
    with_options(score),
    "cometad score plant.comet today.csv -o scores.csv",
    "Interrupted; nothing was written.",
)
_add(app, "explain", with_options(explain), "cometad explain plant.comet today.csv --start 120 --stop 131")
_add(
    app,
    "report",
    with_options(report),
    "cometad report plant.comet today.csv -o report.html",
    "Interrupted; nothing was written.",
)
_add(
    app,
    "export",
    export,
    "cometad export plant.comet -o plant.onnx",
    "Interrupted; nothing was written.",
)
_add(app, "evaluate", with_options(evaluate), "cometad evaluate labels.csv scores.csv")
_add(app, "stream", with_options(stream), "tail -n +1 -f today.csv | cometad stream plant.comet")
_add(app, "serve", serve, "cometad serve --port 8080", "Stopped.")
_add(
    app,
    "connect",
    connect,
    "cometad connect mqtt://localhost/plant/pump --stream pump --detector pump.comet",
    "Stopped; the same command continues.",
)

_token = typer.Typer(help="Create, list and revoke the tokens of the live service.")
_add(_token, "create", create_token, "cometad token create gateway-3 --scope write")
_add(_token, "list", list_tokens, "cometad token list")
_add(_token, "revoke", revoke_token, "cometad token revoke gateway-3")
app.add_typer(_token, name="token", no_args_is_help=True)

_fleet = typer.Typer(help="One detector for each of many entities: fit, score and report them in one go.")
_GOES_ON = "Interrupted; what was fitted is kept. Run the same command to continue."
_add(
    _fleet,
    "fit",
    with_options(fleet.with_detector(fleet.fit)),
    "cometad fleet fit history.parquet --by machine -o fleet",
    _GOES_ON,
)
_add(
    _fleet,
    "score",
    with_options(fleet.score),
    "cometad fleet score fleet today.parquet -o scores.parquet",
    "Interrupted; nothing was written.",
)
_add(_fleet, "report", with_options(fleet.report), "cometad fleet report fleet today.parquet -o fleet.html")
_add(_fleet, "list", fleet.show_list, "cometad fleet list fleet --failed")
_add(_fleet, "check", fleet.check, "cometad fleet check fleet today.parquet")
app.add_typer(_fleet, name="fleet", no_args_is_help=True)

_datasets = typer.Typer(help="Show which benchmark datasets are available and whether they match the published ones.")
_add(_datasets, "list", data.show_list, "cometad data list --data-dir ~/datasets")
_add(_datasets, "check", data.show_check, "cometad data check MSL SMAP")
app.add_typer(_datasets, name="data", no_args_is_help=True)

_bench = typer.Typer(
    help="Compare detectors: run the trials of an experiment, and turn results into tables and figures."
)
_add(_bench, "list", bench.show_experiments, "cometad bench list")
_add(
    _bench,
    "run",
    bench.run,
    "cometad bench run main --dataset MSL --arm comet-paper --arm knn",
    "Interrupted; finished trials are kept. Run the same command to continue.",
)
_add(_bench, "report", bench.report, "cometad bench report main entity")
_add(_bench, "pack", bench.pack, "cometad bench pack main")
app.add_typer(_bench, name="bench", no_args_is_help=True)


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
