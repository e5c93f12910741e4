"""Bodies are parsed like a plain loop over their readings would, however odd they are."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive_serve
from cometad.connect.bodies import parse_body, parse_mixed
from cometad.connect.contract import UnknownStream
from cometad.data.text import Layout
from cometad.errors import CometadError, InputError
from contract import is_a_sentence

NAMES = ["flow", "level", "heat"]
PLAIN = Layout(NAMES, named=True)
GAPS = Layout(NAMES, named=True, gaps=True)

NUMBERS = st.one_of(st.floats(-1e6, 1e6), st.integers(-1000, 1000))
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(["1.5", " 2 ", "x", "", "NaN", "TRUE", "false", "1_0", "٣", "0007", "-0", "1e400", "9" * 30]),
    st.sampled_from([2**53, 2**53 + 1, -(2**63), 2**64, 10**160, 10**400, 1e149, 1e151, 1e308, -0.0]),
    st.lists(NUMBERS, max_size=2),
    st.dictionaries(st.sampled_from(NAMES), NUMBERS, max_size=2),
)
CELLS = st.one_of(NUMBERS, NUMBERS, NUMBERS, ODD)
TIMES = st.one_of(
    st.floats(0, 2e9), st.integers(0, 2**60), st.sampled_from(["2026-03-01T12:00:00Z", " 7 ", "", None, True, "noon"])
)
SEQUENCES = st.one_of(st.integers(0, 10), st.sampled_from([-1, 2**63 - 1, 2**63, 1.5, True, "3", None]))


@st.composite
def pairs(draw, cells=CELLS):
    """The fields of a reading, in any order, some of them missing or twice."""
    names = draw(st.permutations(NAMES))
    left_out = draw(st.sampled_from([0, 0, 0, 1, 3]))
    values = [(name, draw(cells)) for name in names[left_out:]]
    nested = draw(st.sampled_from(["no", "no", "no", "object", "list", "both"]))
    found = values
    if nested == "object":
        found = [("values", dict(values))]
    elif nested == "list":
        found = [("values", [value for _, value in values])]
    elif nested == "both":
        found = [("values", draw(st.one_of(NUMBERS, st.none(), st.text(max_size=2)))), *values]
    if draw(st.booleans()):
        found = [*found, ("time", draw(TIMES))]
    if draw(st.booleans()):
        found = [*found, ("sequence", draw(SEQUENCES))]
    if draw(st.integers(0, 9)) == 0:
        found = [*found, ("note", draw(st.sampled_from(["ok", "a\u2028b", None, 3])))]
    if draw(st.integers(0, 9)) == 0:
        found = [*found, draw(st.sampled_from(found or [("flow", 1.0)]))]
    return found


def as_json(reading):
    if not isinstance(reading, list) or (reading and not isinstance(reading[0], tuple)):
        return json.dumps(reading, ensure_ascii=False)
    fields = (f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in reading)
    return "{" + ", ".join(fields) + "}"


READINGS = st.one_of(
    pairs(NUMBERS), pairs(), pairs(), st.lists(CELLS, min_size=1, max_size=4), st.sampled_from([7, "x", None])
)
SAME = st.builds(
    lambda rows: [list(zip(NAMES, row, strict=True)) for row in rows], st.lists(st.tuples(CELLS, CELLS, CELLS))
)
BODIES = st.one_of(SAME, st.lists(READINGS, max_size=5))


def tried(parse):
    try:
        return parse()
    except naive_serve.Bad:
        return "refused"
    except InputError as error:
        return "refused" if is_a_sentence(str(error)) else str(error)


def told(batch):
    """A batch in the form of the naive parser, with NaN as None."""
    rows = [[None if math.isnan(value) else value for value in row] for row in batch.values.tolist()]
    return list(zip(rows, batch.times, batch.sequences, strict=True))


def naive(body, form, gaps):
    found = naive_serve.parse(body, form, NAMES, gaps)
    return [([None if math.isnan(v) else v for v in values], time, number) for values, time, number in found]


@settings(max_examples=300)
@given(readings=BODIES, gaps=st.booleans(), form=st.sampled_from(["json", "ndjson"]))
def test_a_json_body_is_read_like_reading_by_reading(readings, gaps, form):
    texts = [as_json(reading) for reading in readings]
    body = ("[" + ",".join(texts) + "]" if form == "json" else "\n".join(texts)).encode()
    layout = GAPS if gaps else PLAIN
    assert tried(lambda: told(parse_body(body, form, "s", layout))) == tried(lambda: naive(body, form, gaps))


@settings(max_examples=150)
@given(
    items=st.lists(st.tuples(st.sampled_from(["a", "b", "c", "gone", None, 7]), READINGS), min_size=1, max_size=6),
    form=st.sampled_from(["json", "ndjson"]),
)
def test_in_a_mixed_body_each_reading_is_taken_or_refused_by_itself(items, form):
    texts = []
    for stream, reading in items:
        is_object = isinstance(reading, list) and (not reading or isinstance(reading[0], tuple))
        texts.append(as_json([("stream", stream), *reading] if is_object and stream is not None else reading))
    body = ("[" + ",".join(texts) + "]" if form == "json" else "\n".join(texts)).encode()
    layouts = {"a": PLAIN, "b": PLAIN, "c": GAPS}

    def layout(name):
        if name not in layouts:
            raise UnknownStream(name)
        return layouts[name]

    batches, refused = parse_mixed(body, form, layout)
    taken, lines = naive_serve.parse_mixed(
        body, form, dict.fromkeys(layouts, NAMES), {name: one.gaps for name, one in layouts.items()}
    )
    assert sorted(one.line for one in refused) == [one.line for one in refused] == lines
    assert all(is_a_sentence(one.reason) for one in refused)
    assert {batch.stream for batch in batches} == set(taken)
    for batch in batches:
        wanted = [[None if math.isnan(v) else v for v in values] for _, values, _, _ in taken[batch.stream]]
        assert [row for row, _, _ in told(batch)] == wanted
        assert list(batch.lines) == [line for line, _, _, _ in taken[batch.stream]]
        assert list(batch.times) == [time for _, _, time, _ in taken[batch.stream]]
        assert list(batch.sequences) == [number for _, _, _, number in taken[batch.stream]]


TEXTS = st.one_of(NUMBERS.map(repr), NUMBERS.map(repr), st.sampled_from(["", "NA", "TRUE", "x", "9" * 30, "1e400"]))


@settings(max_examples=150)
@given(
    header=st.lists(st.sampled_from([*NAMES, "time", "note"]), unique=True, min_size=2).filter(lambda h: "flow" in h),
    data=st.data(),
    gaps=st.booleans(),
)
def test_a_csv_body_is_read_like_row_by_row(header, data, gaps):
    cell = {"time": st.floats(0, 1e6).map(repr), "note": st.just("ok")}
    rows = data.draw(st.lists(st.tuples(*(cell.get(name, TEXTS) for name in header)), max_size=4))
    body = "\n".join(",".join(row) for row in [header, *rows]).encode()
    found = tried(lambda: told(parse_body(body, "csv", "s", GAPS if gaps else PLAIN)))
    assert found == tried(lambda: naive(body, "csv", gaps))


# -- single cases ---------------------------------------------------------------------------------------------------


def refused(body, form="json", layout=PLAIN):
    with pytest.raises(CometadError) as caught:
        parse_body(body, form, "s", layout)
    assert is_a_sentence(str(caught.value))
    return str(caught.value)


@pytest.mark.parametrize("form", ["json", "ndjson", "csv"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" \n\n ",
        b"\xff\xfe",
        b"[",
        b"{}",
        b"[]",
        b"null",
        b"\x00",
        b"[1, 2",
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"\xef\xbb\xbf",
        b'"\x01"',
        b"0" * 5000 + b"1",
        b"flow,level,heat",
        b"flow,flow,heat\n1,2,3",
    ],
)
def test_what_is_no_reading_is_refused_in_a_sentence(form, body):
    refused(body, form)


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("form", ["json", "ndjson"])
def test_constants_that_are_no_json_are_refused(form, constant):
    body = f'{{"flow": {constant}, "level": 1, "heat": 2}}'.encode()
    assert "is not JSON" in refused(body, form, GAPS)


@pytest.mark.parametrize("form", ["json", "csv"])
def test_a_number_with_thousands_of_zeros_is_read_or_refused(form):
    digits = "0" * 5000 + "1"
    row = {"flow": digits, "level": "2", "heat": "3"}
    body = json.dumps(row) if form == "json" else f"flow,level,heat\n{digits},2,3"
    assert parse_body(body.encode(), form, "s", PLAIN).values.tolist() == [[1.0, 2.0, 3.0]]


def test_a_time_in_any_field_is_found_even_if_the_first_is_missing():
    rows = [{"when": when, "flow": 1, "level": 2, "heat": 3} for when in (None, "2026-03-01T12:00:00Z")]
    batch = parse_body(json.dumps(rows).encode(), "json", "s", PLAIN)
    assert list(batch.times) == [None, "2026-03-01T12:00:00Z"]


def test_two_times_in_a_reading_are_refused():
    refused(b'{"time": "2026-03-01T12:00:00Z", "date": "2026-03-02", "flow": 1, "level": 2, "heat": 3}')


def test_a_line_separator_inside_a_text_does_not_end_a_json_line():
    body = '{"note": "a\u2028b\x85", "flow": 1, "level": 2, "heat": 3}\r\n'.encode()
    assert parse_body(body, "ndjson", "s", PLAIN).values.tolist() == [[1.0, 2.0, 3.0]]


def test_a_large_body_is_read_to_the_bit():
    values = np.random.default_rng(0).normal(size=(5000, 3))
    rows = [{"time": i, **dict(zip(NAMES, row, strict=True))} for i, row in enumerate(values.tolist())]
    batch = parse_body(json.dumps(rows).encode(), "json", "s", PLAIN)
    assert np.array_equal(batch.values, values)
    assert batch.lines[-1] == 5000


def test_variables_may_be_named_like_the_fields_of_a_reading():
    layout = Layout(["values", "sequence", "stream"], named=True)
    batch = parse_body(b'[{"values": 1, "sequence": 2, "stream": 3, "time": 4}]', "json", "s", layout)
    assert batch.values.tolist() == [[1.0, 2.0, 3.0]]
    assert batch.sequences == [None]
    assert batch.times == [4]


def test_how_one_stream_writes_its_values_does_not_matter_to_another():
    rows = [{"stream": name, "flow": flow, "level": 2, "heat": 3} for name, flow in (("a", "TRUE"), ("b", "1.5"))]
    batches, refused = parse_mixed(json.dumps(rows).encode(), "json", lambda name: PLAIN)
    assert refused == []
    assert [batch.values.tolist() for batch in batches] == [[[1.0, 2.0, 3.0]], [[1.5, 2.0, 3.0]]]
