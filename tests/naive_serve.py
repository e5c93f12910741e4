"""How bodies are parsed and readings are put in order, as loops, written from the documented rules."""

import csv
import io
import json
import math

MISSING = {"", "na", "n/a", "nan", "null", "none"}
WORDS = {"true": 1.0, "false": 0.0}


class Bad(Exception):
    """A reading or a body is refused."""


class Twice(list):
    """A JSON object as its pairs, so that a repeated field can be seen."""


def parse(body, form, names, gaps):
    """The readings of a body: a list of (values, time, sequence). A bad reading refuses everything."""
    if form == "csv":
        return _csv(body, names, gaps)
    words = {}
    return [_reading(item, names, gaps, words) for item in _items(body, form)]


def parse_mixed(body, form, names_of, gaps_of):
    """The readings of many streams: lists of (line, values, time, sequence) by stream, and the lines refused."""
    taken, refused, words = {}, [], {}
    for line, item in enumerate(_items(body, form), 1):
        try:
            if not isinstance(item, Twice):
                raise Bad
            stream = next((value for name, value in item if name == "stream"), None)
            if not isinstance(stream, str) or stream not in names_of:
                raise Bad
            reading = _reading(item, names_of[stream], gaps_of[stream], words.setdefault(stream, {}))
            taken.setdefault(stream, []).append((line, *reading))
        except Bad:
            refused.append(line)
    return taken, refused


def _items(body, form):
    try:
        text = body.decode("utf-8-sig")
        lines = [line for line in text.split("\n") if line.strip()] if form == "ndjson" else [text]
        items = [json.loads(line, object_pairs_hook=Twice, parse_constant=_refuse) for line in lines]
    except (ValueError, RecursionError) as error:
        raise Bad from error
    if form == "json" and not (isinstance(items[0], list) and not isinstance(items[0], Twice)):
        return items
    items = items[0] if form == "json" else items
    if not items:
        raise Bad
    return items


def _refuse(word):
    raise ValueError(word)


def _reading(item, names, gaps, words):
    if not isinstance(item, list):
        raise Bad
    if not isinstance(item, Twice):
        if len(item) != len(names):
            raise Bad
        return _values(dict(zip(names, item, strict=True)), names, gaps, words), None, None
    fields = _once(item)
    sequence = None if "sequence" in names else fields.get("sequence")
    whole = isinstance(sequence, int) and not isinstance(sequence, bool) and 0 <= sequence < 2**63
    if sequence is not None and not whole:
        raise Bad
    time = fields.get("time")
    if isinstance(time, str):
        time = None if time.strip().lower() in MISSING else time.strip()
    elif isinstance(time, bool | list):
        raise Bad
    found = fields
    if "values" in fields and "values" not in names:
        found = fields["values"]
        if isinstance(found, Twice):
            found = _once(found)
        elif isinstance(found, list) and len(found) == len(names):
            found = dict(zip(names, found, strict=True))
        else:
            raise Bad
    return _values(found, names, gaps, words), time, sequence


def _once(pairs):
    if len({name for name, _ in pairs}) < len(pairs):
        raise Bad
    return dict(pairs)


def _values(fields, names, gaps, words):
    known = [name for name in names if name in fields]
    if len(known) < len(names) and not (gaps and known):
        raise Bad
    row = [_number(name, fields.get(name), gaps, words) for name in names]
    if all(math.isnan(value) for value in row):
        raise Bad
    return row


def _number(name, cell, gaps, words):
    if cell is None or (isinstance(cell, str) and cell.strip().lower() in MISSING):
        if not gaps:
            raise Bad
        return math.nan
    if isinstance(cell, list):
        raise Bad
    if isinstance(cell, str):
        text = cell.strip()
        word = WORDS.get(text.lower())
        if words.setdefault(name, word is not None) != (word is not None):
            raise Bad
        if word is not None:
            return word
        if "_" in text or not text.isascii():
            raise Bad
        digits = text.lstrip("+-")
        if digits.isdigit():
            cell = int(text[: len(text) - len(digits)] + (digits.lstrip("0") or "0"))
    try:
        value = float(cell)
    except (ValueError, OverflowError) as error:
        raise Bad from error
    if math.isnan(value) or abs(value) > 1e150 or (isinstance(cell, int) and int(value) != cell):
        raise Bad
    return value


def _csv(body, names, gaps):
    try:
        rows = [row for row in csv.reader(io.StringIO(body.decode("utf-8-sig"))) if row]
    except ValueError as error:
        raise Bad from error
    if len(rows) < 2:
        raise Bad
    words, found = {}, []
    for row in rows[1:]:
        if len(row) != len(rows[0]):
            raise Bad
        fields = dict(zip(rows[0], row, strict=True))
        time = fields.get("time", "").strip()
        known = [name for name in names if name in fields]
        if len(known) < len(names) and not (gaps and known):
            raise Bad
        values = [_number(name, fields.get(name), gaps, words) for name in names]
        found.append((values, None if time.lower() in MISSING else time, None))
    return found


class Stream:
    """The readings of a stream that were taken, and what became of the others."""

    def __init__(self, late):
        self.late = late
        self.ats, self.last_sequence, self.timed = [], None, None

    def take(self, time, sequence, received):
        """What becomes of a reading: accepted, repeated, dropped or refused."""
        if self.timed is not None and self.timed != (time is not None):
            return "refused"
        at = max([received, *self.ats]) if time is None else time
        if sequence is not None and self.last_sequence is not None and sequence <= self.last_sequence:
            return "repeated"
        if time is not None and time in self.ats:
            return "repeated"
        if time is not None and self.ats and time < self.ats[-1]:
            return "dropped" if self.late == "drop" else "refused"
        self.ats.append(at)
        self.timed = time is not None
        self.last_sequence = self.last_sequence if sequence is None else sequence
        return "accepted"
