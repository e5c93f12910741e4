"""Tables read in every way: as a whole and in chunks, which must agree."""

import re

import polars as pl
import pytest

from cometad.data.tables import TableReader
from cometad.errors import InputError
from cometad.series import as_series

SIZES = (None, 1, 2, 4, 100)  # rows of a chunk; None reads the whole table


def everything(frame):
    return frame


def frames_of(path, rows, select=None, **options):
    reader = TableReader(path, **options)
    return [reader.whole(select)] if rows is None else list(reader.chunks(rows, select))


def read(path, **options):
    """The whole table, which its chunks make up."""
    (whole,) = frames_of(path, None, **options)
    for rows in SIZES[1:] if len(whole) < 1000 else (1000,):
        chunks = frames_of(path, rows, **options)
        if all(chunk.schema == whole.schema for chunk in chunks):  # a word makes only its own chunk text
            assert pl.concat(chunks).equals(whole)
    return whole


def _checked(path, rows, select, options):
    for frame in frames_of(path, rows, select, **options):
        as_series(frame)


def refused(path, sentence, select=everything, sizes=SIZES, **options):
    """Check that a table is refused with these words, however it is read; returns the last error."""
    for rows in sizes:
        with pytest.raises(InputError, match=re.escape(sentence)) as caught:
            _checked(path, rows, select, options)
    return caught.value
