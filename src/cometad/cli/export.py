"""`cometad export`."""

from pathlib import Path

from cometad.cli.exits import print_json, say
from cometad.cli.opened import open_detector
from cometad.cli.options import Force, Gaps, Model, Threshold, flag
from cometad.cli.paths import Output, check_ending, check_outputs
from cometad.errors import imported_for


def export(
    model: Model,
    output: Path = flag("The .onnx file to write.", "--output", "-o", default=...),
    as_json: bool = flag("Print variables, state, delay and check results as JSON.", "--json", default=False),
    threshold: Threshold = None,
    gaps: Gaps = None,
    force: Force = False,
) -> None:
    """Export a detector as an ONNX file that scores a stream on a device with nothing but onnxruntime.

    The graph takes one reading (with a season, its local time too) and a state, and returns the alert score, the
    variable scores, the threshold, the flag and the next state; the first state is all zeros. The file is written only
    if it scores generated series like the detector. Only comet can be exported: no views of your own, no adaptation, no
    missing values.
    """
    check_ending(output, ".onnx")
    check_outputs([Output(output, "onnx")], [model], force)
    library = imported_for("cometad export", "cometad.export")
    written = library.to_onnx(open_detector(model, threshold, gaps), output)
    if as_json:
        print_json(written.as_json())
    agreement = written.agreement
    say(
        f"Wrote '{output}' ({written.file_bytes:,} bytes): {len(written.variables)} variables, {written.state_bytes:,} "
        f"bytes of state, delay {written.delay} readings."
    )
    if written.timezone is not None:
        say(f"Each reading needs its local time ({written.timezone}).")
    say(
        f"On {agreement.readings:,} generated readings, its scores differ from the detector's by at most "
        f"{agreement.difference:.1e}, and {agreement.other_flags} flags differ."
    )
