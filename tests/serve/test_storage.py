"""Chunks of readings and scores against a plain list, on SQLite and PostgreSQL; the format of the data."""

import numpy as np
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, event, func, insert, select, text

from cometad.errors import ModelFileError, ParameterError
from cometad.serve.storage import history, schema
from cometad.serve.storage.history import HistoryRows
from cometad.serve.storage.store import StorageError, Store
from contract import is_a_sentence

STREAM, OTHER = 3, 4


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def store(request, tmp_path_factory):
    if request.param == "sqlite":
        store = Store.in_folder(tmp_path_factory.mktemp("store") / "new")
    else:
        store = Store(request.getfixturevalue("postgres")())
    yield store
    store.close()


def cells_of(table, first, count):
    width = 3
    return (np.arange(first * width, (first + count) * width, dtype=float) / 7).reshape(count, width)


def append(connection, table, sizes, gap=1.5):
    """Write chunks of these sizes; returns all rows as a list of (number, time, cells)."""
    rows, first = [], 0
    for size in sizes:
        ats = 1000 + gap * np.arange(first, first + size)
        cells = cells_of(table, first, size)
        chunk = history.chunk(STREAM, HistoryRows(first, ats, cells))
        extra = {"last_time": "null", "last_sequence": first} if table is schema.readings else {}
        connection.execute(insert(table), [chunk | extra, chunk | extra | {"stream_id": OTHER}])
        rows += [(first + i, float(ats[i]), cells[i].tolist()) for i in range(size)]
        first += size
    return rows


def clear(connection):
    for table in schema.metadata.sorted_tables:
        connection.execute(delete(table))


def as_list(rows):
    return [
        (rows.first + i, float(at), cells.tolist())
        for i, (at, cells) in enumerate(zip(rows.ats, rows.cells, strict=True))
    ]


SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=12)
TABLES = st.sampled_from([schema.readings, schema.scores])


@settings(max_examples=25)
@given(sizes=SIZES, table=TABLES, start=st.integers(-5, 60), length=st.integers(0, 60), joined=st.integers(0, 80))
def test_chunks_are_a_list_of_rows_however_they_are_joined(store, sizes, table, start, length, joined):
    with store.write() as connection:
        clear(connection)
        rows = append(connection, table, sizes)
        assert history.next_number(connection, table, STREAM) == len(rows)
        assert history.next_number(connection, table, 99) == 0
        for _ in range(2):
            stop = start + length
            found = history.by_number(connection, table, STREAM, start, stop)
            assert as_list(found) == [row for row in rows if start <= row[0] < stop]
            begin, end = 1000 + 1.5 * start, 1000 + 1.5 * stop
            found = history.by_time(connection, table, STREAM, begin, end)
            assert as_list(found) == [row for row in rows if begin <= row[1] <= end]
            parts = list(history.after(connection, table, STREAM, max(start, 0)))
            assert [row for part in parts for row in as_list(part)] == rows[max(start, 0) :]
            before = chunk_count(connection, table)
            fewer = history.join_chunks(connection, table, STREAM, joined)
            assert chunk_count(connection, table) == before - fewer
            small = select(func.count()).select_from(table).where(table.c.stream_id == STREAM)
            ended = small.where(table.c.first + table.c.count <= joined)
            assert connection.execute(ended).scalar_one() <= 1
        if table is schema.readings:
            newest = select(table.c.last_sequence).where(table.c.stream_id == STREAM).order_by(table.c.first.desc())
            assert connection.execute(newest.limit(1)).scalar_one() == len(rows) - sizes[-1]
        assert history.next_number(connection, table, OTHER) == len(rows)


@settings(max_examples=50)
@given(sizes=SIZES, asked=st.lists(st.integers(-3, 130).map(lambda i: 1000 + 0.75 * i), max_size=40))
def test_known_times_are_those_of_the_rows_in_whatever_order_they_are_asked_for(store, sizes, asked):
    with store.write() as connection:
        clear(connection)
        known = {at for _, at, _ in append(connection, schema.readings, sizes)}
        times = history.KnownTimes(connection, STREAM)
        assert [at in times for at in asked] == [at in known for at in asked]
        assert [at in times for at in sorted(known)] == [True] * len(known)


def test_readings_that_come_again_cost_few_queries(store):
    queries = []
    with store.write() as connection:
        clear(connection)
        rows = append(connection, schema.readings, [3] * 200)
        event.listen(connection, "before_cursor_execute", lambda *arguments: queries.append(arguments[2]))
        times = history.KnownTimes(connection, STREAM)
        assert all(at in times for _, at, _ in rows)
    assert len(queries) < 15


def chunk_count(connection, table, stream=STREAM):
    return connection.execute(select(func.count()).select_from(table).where(table.c.stream_id == stream)).scalar_one()


@settings(max_examples=25)
@given(sizes=SIZES, table=TABLES, at=st.floats(990, 1200), before=st.integers(0, 90))
def test_deleting_keeps_what_is_new_what_a_snapshot_needs_and_the_newest_chunk(store, sizes, table, at, before):
    with store.write() as connection:
        clear(connection)
        rows = append(connection, table, sizes)
        history.delete_before(connection, table, STREAM, at, before)
        left = as_list(history.by_number(connection, table, STREAM, 0, 10**6))
        assert left == rows[len(rows) - len(left) :]
        gone = rows[: len(rows) - len(left)]
        assert all(row[1] < at and row[0] < before for row in gone)
        assert len(left) >= sizes[-1]
        stops = np.cumsum(sizes)[:-1].tolist()  # of all chunks but the newest
        assert len(gone) == max((stop for stop in stops if 998.5 + 1.5 * stop < at and stop <= before), default=0)
        assert chunk_count(connection, table, OTHER) == len(sizes)
        assert history.longest_history(connection) == pytest.approx(1.5 * (len(rows) - 1))  # of the other stream


def test_chunks_of_different_widths_are_never_joined(store):
    with store.write() as connection:
        clear(connection)
        append(connection, schema.scores, [2, 2])
        wide = HistoryRows(4, np.array([2000.0, 2001.0]), np.zeros((2, 5)))
        connection.execute(insert(schema.scores), [history.chunk(STREAM, wide)])
        assert history.join_chunks(connection, schema.scores, STREAM, 100) == 1
        assert chunk_count(connection, schema.scores) == 2


def test_without_rows_there_is_no_longest_history(store):
    with store.write() as connection:
        clear(connection)
        assert history.longest_history(connection) is None


def test_a_full_chunk_is_not_exceeded_by_joining(store, monkeypatch):
    monkeypatch.setattr(history, "FULL", 10)
    with store.write() as connection:
        clear(connection)
        rows = append(connection, schema.scores, [4, 4, 4, 4, 4])
        history.join_chunks(connection, schema.scores, STREAM, 1000)
        counts = select(schema.scores.c.count).where(schema.scores.c.stream_id == STREAM)
        assert max(connection.execute(counts).scalars()) <= 10
        assert as_list(history.by_number(connection, schema.scores, STREAM, 0, 100)) == rows


def test_a_failed_transaction_leaves_nothing(store):
    with store.write() as connection:
        clear(connection)

    def twice():
        with store.write() as connection:
            append(connection, schema.scores, [2])
            append(connection, schema.scores, [2])

    with pytest.raises(StorageError) as caught:
        twice()
    assert is_a_sentence(str(caught.value))
    with store.read() as connection:
        assert chunk_count(connection, schema.scores) == 0


def test_a_new_database_has_exactly_the_tables_of_the_schema(store):
    with store.engine.connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), schema.metadata)
    assert differences == []


def test_data_of_a_newer_format_is_refused(store):
    newer = store.format + 1
    url = store.engine.url
    with store.engine.begin() as connection:
        connection.execute(text(f"UPDATE alembic_version SET version_num = '{newer}'"))
    try:
        with pytest.raises(ModelFileError, match=rf"The data has format {newer}, but .* Upgrade cometad\.") as caught:
            Store(url.render_as_string(hide_password=False))
        assert is_a_sentence(str(caught.value))
    finally:
        with store.engine.begin() as connection:
            connection.execute(text(f"UPDATE alembic_version SET version_num = '{store.format}'"))


def test_data_of_an_unknown_format_is_refused(store):
    with store.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'a3f2'"))
    try:
        with pytest.raises(ModelFileError, match="The data has format a3f2"):
            Store(store.engine.url.render_as_string(hide_password=False))
    finally:
        with store.engine.begin() as connection:
            connection.execute(text(f"UPDATE alembic_version SET version_num = '{store.format}'"))


def test_opening_again_keeps_the_data(tmp_path):
    store = Store.in_folder(tmp_path)
    with store.write() as connection:
        rows = append(connection, schema.scores, [3])
    store.close()
    again = Store.in_folder(tmp_path)
    with again.read() as connection:
        assert as_list(history.by_number(connection, schema.scores, STREAM, 0, 10)) == rows
    again.close()


@pytest.mark.parametrize("url", ["mysql://host/name", "not a url", "oracle+x://h/n", "sqlite+nothing:///x"])
def test_other_databases_are_refused_in_a_sentence(url):
    with pytest.raises(ParameterError) as caught:
        Store(url)
    assert is_a_sentence(str(caught.value))
