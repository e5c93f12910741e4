"""`cometad bench list`, `run`, `report` and `pack`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cometad.cli import options as shared
from cometad.cli.exits import add_verb
from cometad.cli.paths import KINDS, FileKind, Output, check_outputs, head

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cometad_bench.runner import Outcome

Folder = Annotated[Path, typer.Option("--results", help="Folder of the results, one file per experiment.")]


def show_experiments() -> None:
    """List the experiments: what each compares, and on which datasets."""
    from rich.table import Table

    from cometad.cli.exits import show
    from cometad_bench.experiments import EXPERIMENTS

    table = Table("experiment", "what", "datasets", "arms", "seeds")
    for name, experiment in EXPERIMENTS.items():
        sizes = (str(len(experiment.arms)), str(len(experiment.seeds)))
        table.add_row(name, experiment.title, " ".join(experiment.datasets), *sizes)
    show(table)


@dataclass(frozen=True)
class TrialOptions:
    """Which trials of an experiment to run, and on what."""

    dataset: Annotated[list[str] | None, typer.Option(help="Dataset such as MSL; repeatable.")] = None
    entity: Annotated[list[str] | None, typer.Option(help="Entity such as machine-1-1; repeatable.")] = None
    arm: Annotated[list[str] | None, typer.Option(help="Arm, a row of the table such as knn; repeatable.")] = None
    seed: Annotated[list[int] | None, typer.Option(help="Seed; repeatable.", min=0)] = None
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu"


@dataclass(frozen=True)
class ProcessOptions:
    """Where the trials run."""

    threads: Annotated[int | None, typer.Option(help="Threads per trial. Default: all cores.", min=1)] = None
    workers: Annotated[int, typer.Option(help="Processes; several use one thread each by default.", min=1)] = 1
    engine: Annotated[
        str, typer.Option(help="local or ray; on ray, each core of the cluster runs one single-threaded trial.")
    ] = "local"
    address: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="With --engine ray: an existing cluster. Default: start one here."),
    ] = None


def run(
    experiment: Annotated[str, typer.Argument(metavar="EXPERIMENT", help="An experiment from cometad bench list.")],
    *,
    trials: TrialOptions,
    processes: ProcessOptions,
    retry: Annotated[bool, typer.Option("--retry", help="Run failed trials again.")] = False,
    show: Annotated[bool, typer.Option("--report", help="Then write the report, and print it as Markdown.")] = False,
    results: Folder = Path("results"),
    data_dir: shared.DataDir = None,
    force: shared.Force = False,
) -> None:
    """Run the trials of an experiment that have no result yet; after an interrupt, the same command continues.

    Several processes may share one results folder; each takes trials that no other is running.
    """
    from cometad.cli.exits import FAILED, MISTAKE, say
    from cometad.fleet.engines import engine_of
    from cometad_bench.experiments import EXPERIMENTS
    from cometad_bench.runner import run as run_trials
    from cometad_bench.runner import run_with_workers
    from cometad_bench.trial import limit_threads

    check = _refusal([experiment], results, force) if experiment in EXPERIMENTS else None
    if show and check is not None and results.is_dir():
        check([results / f"{experiment}.{ending}" for ending in ("md", "html", "tex")])
    threads, workers = processes.threads, processes.workers
    if threads is not None:
        limit_threads(threads)
    options: dict[str, Any] = {"datasets": trials.dataset, "entities": trials.entity, "arms": trials.arm}
    options |= {"seeds": trials.seed, "device": trials.device, "data_dir": data_dir, "folder": results}
    options |= {"retry": retry, "verbose": True, "notify": say}
    on = engine_of(processes.engine, workers if workers > 1 else None, processes.address)
    if processes.engine != "local":
        limit_threads(threads or 1)
        outcome = run_trials(experiment, engine=on, **options)
    elif workers > 1:
        outcome = run_with_workers(experiment, workers=workers, threads=threads or 1, **options)
    else:
        outcome = run_trials(experiment, **options)
    print(_summary(outcome))
    for failed in outcome.failed:
        say(f"{failed['arm']} on {failed['dataset']} {failed['entity']}, seed {failed['seed']}: {failed['error']}")
    if not outcome.requested:
        say("None of the datasets is available, so nothing was run. See cometad data list.")
        raise typer.Exit(MISTAKE)
    if show:
        _print_report(experiment, results, check)
    if outcome.failed:
        raise typer.Exit(FAILED)


def _print_report(experiment: str, results: Path, check: "Callable[[Sequence[Path]], None] | None") -> None:
    from cometad_bench.report import report as write_report

    written = write_report([experiment], folder=results, check=check)
    print()
    print(next(path for path in written if path.suffix == ".md").read_text(encoding="utf-8"), end="")


def _summary(outcome: "Outcome") -> str:
    parts = [f"{outcome.done} done", f"{outcome.done_before} done before", f"{len(outcome.failed)} failed"]
    parts += [f"{outcome.elsewhere} in another process"] if outcome.elsewhere else []
    before = outcome.failed_before
    again = f" {before} failed before; --retry runs {'it' if before == 1 else 'them'} again." if before else ""
    return f"Trials: {', '.join(parts)}.{again}"


def report(
    experiment: Annotated[
        list[str] | None, typer.Argument(metavar="[EXPERIMENT]...", help="Default: all that have results.")
    ] = None,
    results: Folder = Path("results"),
    out: Annotated[Path | None, typer.Option(help="Folder to write to. Default: the results folder.")] = None,
    metric: Annotated[str, typer.Option(help="Metric to rank the arms by.")] = "auc_pr",
    force: shared.Force = False,
) -> None:
    """Turn results into tables (Markdown, LaTeX, HTML) and figures."""
    from cometad_bench.experiments import EXPERIMENTS
    from cometad_bench.report import report as write_report

    known = [name for name in experiment or EXPERIMENTS if name in EXPERIMENTS]
    check = _refusal(known, results, force)
    for path in write_report(experiment, folder=results, out=out, ranked_by=metric, check=check):
        print(path)


def _refusal(names: "Sequence[str]", results: Path, force: bool) -> "Callable[[Sequence[Path]], None]":
    """A function that refuses to replace files that are no reports, or that hold the results."""
    found = [path for name in names for path in _result_files(name, results)]
    kinds = {".png": "picture"}

    def check(paths: "Sequence[Path]") -> None:
        check_outputs([Output(path, kinds.get(path.suffix, f"bench{path.suffix}")) for path in paths], found, force)

    return check


def _result_files(name: str, results: Path) -> list[Path]:
    from cometad_bench.runner import results_of

    found = results_of(name, results)
    return [path for path in (found.path, found.packed) if path.exists()]


def pack(
    experiment: Annotated[
        list[str] | None, typer.Argument(metavar="[EXPERIMENT]...", help="Default: all that have results.")
    ] = None,
    results: Folder = Path("results"),
) -> None:
    """Compress results, for example before committing them; runs and reports read both forms."""
    from cometad_bench.experiments import EXPERIMENTS
    from cometad_bench.runner import results_of

    for name in experiment or EXPERIMENTS:
        found = results_of(name, results)
        found.pack()
        if found.packed.exists():
            print(found.packed)


def _is_page(path: Path) -> bool:
    start = head(path)
    return b'<meta name="generator" content="cometad bench report">' in start or b"<p>cometad benchmark</p>" in start


def _is_text(path: Path) -> bool:
    from cometad_bench.experiments import EXPERIMENTS

    title = head(path).partition(b"\n")[0].decode(errors="replace")
    return title in {f"# {experiment.title}" for experiment in EXPERIMENTS.values()}


def _is_latex(path: Path) -> bool:
    return head(path).startswith(b"% Needs \\usepackage{booktabs,longtable")


KINDS |= {
    "bench.html": FileKind("a page", _is_page),
    "bench.md": FileKind("a page", _is_text),
    "bench.tex": FileKind("a table", _is_latex),
}

app = typer.Typer(no_args_is_help=True)
add_verb(app, "list", show_experiments, "cometad bench list")
add_verb(
    app,
    "run",
    run,
    "cometad bench run main --dataset MSL --arm comet-paper --arm knn",
    "Interrupted; finished trials are kept. Run the same command to continue.",
)
add_verb(app, "report", report, "cometad bench report main entity")
add_verb(app, "pack", pack, "cometad bench pack main")
