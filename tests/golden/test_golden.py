"""What users and their files see stays as it was recorded; see golden_case.py for how to record anew."""

import io
import json
import re
import shlex
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnx
import polars as pl
import pytest
import typer

from cli_case import table_of_readings
from cometad import BASELINES, Comet, Detector
from cometad.cli import main
from cometad.cli.verbs import app
from cometad.data import ForwardFill
from cometad.export import to_onnx
from fleet_case import machines
from golden_case import FOLDER, RECORD, TOLERANCE, as_lines, compare, digest, fingerprint, replay, rounded
from golden_series import CASES, parts
from serve_case import as_readings, faulty, frame, in_process, plant, until

SENSITIVE = ("network", "paper", "drifting plant, followed")  # to the last bit: training, and steps taken or undone
THIN = 2  # every second value is kept for other machines
PASSING = re.compile(r"Compiling for this machine|^(block|table|entity) \d+/\d+")  # lines that depend on the time taken


@pytest.fixture(autouse=True)
def same_terminal(monkeypatch):
    """The same width and no colors, wherever the tests run."""
    monkeypatch.setenv("COLUMNS", "100")
    for name, value in {"MAX_WIDTH": 100, "FORCE_TERMINAL": False, "COLOR_SYSTEM": None}.items():
        monkeypatch.setattr(f"typer.rich_utils.{name}", value)


def called(*words: str, given: str = "") -> tuple[int, str, str]:
    """The exit code of a verb, and what it printed on standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        code = main(words)
    said = "\n".join(line for line in err.getvalue().splitlines() if not PASSING.search(line))
    return code, out.getvalue(), said


# -- help --------------------------------------------------------------------------------------------------------------


def verbs(command: Any, words: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The words of every verb and every group of verbs."""
    inner = getattr(command, "commands", {})
    return [words, *(found for name, one in inner.items() for found in verbs(one, (*words, name)))]


VERBS = verbs(typer.main.get_command(app))


def help_file(words: tuple[str, ...]) -> str:
    return f"help/{'-'.join(('cometad', *words))}.txt"


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_help(words):
    code, out, err = called(*words, "--help")
    assert (code, err) == (0, "")
    compare(help_file(words), "".join(f"{line.rstrip()}\n" for line in out.splitlines()))


def test_every_verb_that_was_recorded_is_there():
    assert {str(file.relative_to(FOLDER)) for file in FOLDER.glob("help/*.txt")} == set(map(help_file, VERBS))


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def plants(tmp_path, monkeypatch):
    """A folder with tables, detectors and damaged ones, and we are in it."""
    monkeypatch.chdir(tmp_path)
    normal = table_of_readings(400, seed=1)
    normal.write_csv("normal.csv")
    normal.drop("time").write_csv("untimed.csv")
    table_of_readings(60, seed=2).write_csv("today.csv")
    normal[:3].write_parquet("three.parquet")
    detector = Comet().fit(normal)
    detector.save("plant.comet")
    Comet(gaps=ForwardFill(2)).fit(normal).save("gappy.comet")
    BASELINES["knn"]().fit(normal).save("knn.comet")
    content = Path("plant.comet").read_bytes()
    Path("half.comet").write_bytes(content[: len(content) // 2])
    Path("flipped.comet").write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    stream = detector.stream()
    stream.update_many(normal[:100])
    Path("state.snapshot").write_bytes(stream.snapshot())
    Path("folder").mkdir()
    return tmp_path


def written() -> dict[str, int]:
    """The files of the current folder, with the times of their last changes."""
    return {path.name: path.stat().st_mtime_ns for path in Path().iterdir() if path.is_file()}


def test_what_the_command_line_refuses(plants):
    def answer(call: str) -> str:
        command, _, given = call.partition(" <<< ")
        given = given.replace(r"\n", "\n")
        verb, *words = shlex.split(command)
        if verb == "write":
            Path(words[0]).write_text(given, "utf-8")
            return ""
        before = written()
        code, out, err = called(*words, given=given)
        assert code != 2 or written() == before  # nothing is written by mistake
        said = "\n".join(part.rstrip("\n") for part in (f"exit {code}", err, out) if part)
        return re.sub(r"\d+\.\d{7,}", lambda found: f"{float(found[0]):.6g}", said).replace(str(plants), "FOLDER")

    replay("refused_commands.txt", "$ ", answer)


def test_what_python_refuses(plants):
    names: dict[str, Any] = {}

    def answer(call: str) -> str:
        try:
            exec(call, names)
        except Exception as error:
            return f"{type(error).__name__}: {str(error).replace(str(plants), 'FOLDER')}"
        return ""

    replay("refused_calls.txt", ">>> ", answer)


# -- the service -------------------------------------------------------------------------------------------------------

CLOCK = ("created", "created_at", "opened_at", "closed_at", "verdict_at", "last_received", "since", "lag")
# On a slow machine, a stream falls silent between two requests.
STATE, SILENCE = re.compile(r'(?<=state)"?: "(normal|event|silent)"'), re.compile(r'"No reading for [^"]+"')
UNSTABLE = dict.fromkeys(CLOCK, "CLOCK") | {"sha256": "HASH", "bytes": "BYTES", "version": "VERSION"}


def shown(response: httpx.Response) -> str:
    """What a response says: JSON without unstable fields, or the outline of something else."""
    kind = response.headers.get("content-type", "").partition(";")[0]
    if kind == "application/json" and response.content:
        found = response.json()
        if "openapi" in found:
            found = sorted(f"{method.upper()} {path}" for path, one in found["paths"].items() for method in one)
            return "\n".join([str(response.status_code), *found])
        text = SILENCE.sub("null", as_lines(rounded(found, UNSTABLE)))
        return f"{response.status_code} {STATE.sub(': LIVE', text)}"
    if kind.endswith("parquet"):
        table = pl.read_parquet(response.content)
        return f"{response.status_code} {kind} {table.height} rows, {dict(table.schema)}"
    names = sorted(set(re.findall(r"^# TYPE (\w+ \w+)", response.text, re.MULTILINE)))
    return "\n".join([f"{response.status_code} {kind}", *names]).strip()


def test_what_the_service_answers(tmp_path, monkeypatch):
    # Otherwise a closed event may be explained before the readings after it have come.
    monkeypatch.setattr("cometad.serve.upkeep.EVERY", 3600.0)
    Comet().fit(frame(plant(600))).save(tmp_path / "pump.comet")
    BASELINES["knn"]().fit(frame(plant(200))).save(tmp_path / "knn.comet")
    readings = as_readings(faulty(300))
    (tmp_path / "first.json").write_text(json.dumps(readings[:150]))
    (tmp_path / "rest.ndjson").write_text("\n".join(map(json.dumps, readings[150:])))
    (tmp_path / "normal.csv").write_text(frame(plant(300)).write_csv())
    tokens: dict[str, str] = {}
    with in_process(tmp_path / "data") as (_, client):

        def answer(call: str) -> str:
            line, _, given = call.partition(" <<< ")
            content = (tmp_path / given[1:]).read_bytes() if given.startswith("@") else given.replace(r"\n", "\n")
            method, path, *rest = line.split()
            if method == "TOKEN":
                _, out, _ = called("token", "create", path, "--scope", *rest, "--data-dir", str(tmp_path / "data"))
                tokens[path] = out.split()[-1]
                return ""
            is_json = given and not path.startswith("/v1/detectors")
            headers = {"content-type": "application/json"} if is_json else {}
            if method != "UNTIL":
                headers |= dict(each.split("=", 1) for each in rest if "=" in each)
                for token in (each for each in rest if "=" not in each):
                    headers["authorization"] = f"Bearer {tokens.get(token, token)}"
                return shown(client.request(method, path, content=content, headers=headers))
            field, value = " ".join(rest).split("=")
            with suppress(TimeoutError):  # the difference shows what it is instead
                until(lambda: str(client.get(path).json().get(field)) == value)
            return shown(client.get(path))

        replay("http.txt", "> ", answer)


# -- numbers -----------------------------------------------------------------------------------------------------------


def outline(content: bytes) -> list[str]:
    """Facts and arrays in a saved file, one per line."""
    size = int.from_bytes(content[:8], "little")
    arrays = json.loads(content[8 : 8 + size])
    facts = json.loads(arrays.pop("__metadata__")["cometad"])
    facts = rounded(facts.pop("facts") | facts, {"detector": "HASH", "sha256": "HASH"})
    return [*as_lines(facts).splitlines(), *(f"{name} {one['dtype']} {one['shape']}" for name, one in arrays.items())]


def streamed(detector: Detector, series: Any, alerts: Any) -> tuple[bytes, np.ndarray, np.ndarray, list[str]]:
    """A snapshot halfway, and the ranking scores, alert scores and changes of a stream that is resumed from it."""
    stream, half = detector.stream(alerts=alerts), len(series) // 2
    first = stream.update_many(series[:half])
    snapshot = stream.snapshot()
    stream = detector.stream(snapshot, alerts=alerts)
    all_parts = [first, stream.update_many(series[half:]), stream.finish()]
    changes = [f"{each.kind} {json.dumps(each.event.as_json())}" for part in all_parts for each in part.changes]
    return snapshot, np.concatenate(all_parts), np.concatenate([part.alert_scores for part in all_parts]), changes


@pytest.mark.parametrize("name", CASES)
def test_numbers(name):
    detector, series, alerts = CASES[name]()
    scored, content = detector.step_scores(series), detector.to_bytes()
    judged = detector.judge(alerts).push(scored.alerts, scored.imputed)
    events = [each.as_json() for each in detector.events(series, alerts)]
    values = {"scores": scored.scores, "alerts": scored.alerts, "thresholds": judged.thresholds}
    exact = {field: array.tobytes() for field, array in values.items()}
    exact |= {"flags": judged.flags.tobytes(), "events": json.dumps(events).encode(), "saved": content}
    lines = [*outline(content), *(f"event {json.dumps(rounded(each))}" for each in events)]
    if detector.can_explain and events:
        explained = detector.explain(series, (events[0]["start"], events[0]["stop"]), context=2).as_json()
        exact["explanation"] = json.dumps(explained).encode()
        values["normal"] = np.array(explained["normal"], float).ravel()
        for reason in rounded(explained["reasons"]):
            lines.append(f"reason {json.dumps({key: one for key, one in reason.items() if type(one) is not list})}")
    if detector.can_stream:
        snapshot, ranked, alert_scores, changes = streamed(detector, series, alerts)
        lines += ["snapshot", *outline(snapshot)]
        exact |= {"snapshot": snapshot, "streamed": ranked.tobytes() + alert_scores.tobytes()}
        exact["changes"] = "\n".join(changes).encode()
    file = f"numbers/{re.sub('[^a-z0-9]+', '-', name)}"
    hashes = [f"machine {fingerprint()}", *(f"exact {field} {digest(found)}" for field, found in exact.items())]
    recorded = (FOLDER / f"{file}.txt").read_text("utf-8").splitlines() if not RECORD else hashes
    if hashes[0] in recorded:
        compare(f"{file}.txt", "\n".join([*lines, *hashes]) + "\n")
    elif name not in SENSITIVE:  # another machine
        compare(f"{file}.txt", "\n".join([*lines, *recorded[len(lines) :]]) + "\n")
    kept = {field: array[::THIN] for field, array in values.items()}
    if RECORD:
        np.savez_compressed(FOLDER / f"{file}.npz", **kept)
    elif name not in SENSITIVE or hashes[0] in recorded:
        for field, array in np.load(FOLDER / f"{file}.npz").items():
            np.testing.assert_allclose(kept[field], array, rtol=TOLERANCE, atol=TOLERANCE * np.nanmax(np.abs(array)))


# -- fleets and exports ------------------------------------------------------------------------------------------------


def test_a_fleet_in_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    unstable = UNSTABLE | dict.fromkeys(("finished", "source", "length", "offset"), "HASH")
    unstable["seconds"] = "CLOCK"
    machines(3).with_columns(pl.col("flow", "level").round(4)).write_csv("history.csv")
    code, out, _ = called("fleet", "fit", "history.csv", "--by", "machine", "-o", "fleet")
    lines = [f"exit {code}", *out.splitlines()]
    for file in sorted(Path("fleet").rglob("*")):
        lines.append(str(file))
        if file.suffix == ".parquet":
            rows = pl.read_parquet(file).sort("name").to_dicts()
            lines += [json.dumps(rounded(row, unstable)) for row in rows]
        if file.suffix in (".json", ".jsonl"):
            texts = [file.read_text()] if file.suffix == ".json" else file.read_text().splitlines()
            lines += [as_lines(rounded(json.loads(text), unstable)) for text in texts]
    compare("fleet.txt", "\n".join(lines) + "\n")


def test_an_export(tmp_path):
    to_onnx(Comet().fit(parts("modes")[0]), tmp_path / "plant.onnx")
    model = onnx.load(tmp_path / "plant.onnx")
    lines = [f"ir {model.ir_version} {[(one.domain, one.version) for one in model.opset_import]} {model.producer_name}"]
    lines += [
        re.sub(r'"difference": [^,]+', '"difference": SMALL', f"{one.key}: {one.value}") for one in model.metadata_props
    ]
    for kind in ("input", "output", "initializer"):
        for one in getattr(model.graph, kind):
            size = one.dims if kind == "initializer" else [each.dim_value for each in one.type.tensor_type.shape.dim]
            of = one.data_type if kind == "initializer" else one.type.tensor_type.elem_type
            lines.append(f"{kind} {one.name} {onnx.TensorProto.DataType.Name(of)} {list(size)}")
    lines += [f"{one.op_type} {' '.join(one.input)} -> {' '.join(one.output)}" for one in model.graph.node]
    compare("export.txt", "\n".join(lines) + "\n")
