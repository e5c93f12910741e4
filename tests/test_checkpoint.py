"""A saved detector is a single file that loads exactly or is refused with a clear message."""

import json
import os
import resource
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from cometad import NetworkComet
from cometad.checkpoint import FORMAT, Checkpoint, from_bytes, to_bytes, write
from cometad.errors import ModelFileError, OutputError
from cometad.network import OneCycle
from contract import is_a_sentence, saved, waves


@pytest.fixture(scope="module")
def detector():
    shape = {"window": 20, "window_stride": 10, "patch_sizes": (2, 4), "patch_strides": (1, 2), "dim": 4, "core_dim": 3}
    return NetworkComet(**shape, codebook_size=8, schedule=OneCycle(3), batch_size=8, test_batch=2).fit(waves(120))


@pytest.fixture(scope="module")
def content(detector):
    return saved(detector)


def refused_content(content, tmp_path, words):
    (tmp_path / "detector").write_bytes(content)
    with pytest.raises(ModelFileError, match=words) as caught:
        NetworkComet.load(tmp_path / "detector")
    assert is_a_sentence(str(caught.value))


def not_written(path, use):
    with pytest.raises(OutputError, match="Cannot write") as caught:
        use(path)
    assert is_a_sentence(str(caught.value))


# -- reading --------------------------------------------------------------------------------------------------------


def test_saving_and_loading_repeatedly_gives_the_same_bytes(detector, content, tmp_path):
    path = tmp_path / "detector"
    for _ in range(3):
        detector.save(path)
        detector = NetworkComet.load(path)
    assert path.read_bytes() == content


def test_a_truncated_file_is_refused_at_any_length(content, tmp_path):
    chance = np.random.default_rng(0)
    lengths = {0, 1, 7, 8, 9, 100, len(content) // 2, len(content) - 1, *chance.integers(0, len(content), 30).tolist()}
    for length in lengths:
        refused_content(content[:length], tmp_path, "is not a complete saved NetworkComet")


def test_trailing_bytes_are_refused(content, tmp_path):
    refused_content(content + b"more", tmp_path, "not a complete saved NetworkComet")


@pytest.mark.parametrize(
    "foreign",
    [
        np.random.default_rng(0).bytes(5000),
        b"\xff" * 64,
        b"time,flow\n0,1\n",
        b"PK\x03\x04" + bytes(200),
        b'{"format": 1}',
        save({"weight": np.zeros(3)}),
        save({"weight": np.zeros(3)}, {"format": "pt"}),
        save({"weight": np.zeros(3)}, {"cometad": "not json"}),
        save({"weight": np.zeros(3)}, {"cometad": "[]"}),
        save({"weight": np.zeros(3)}, {"cometad": "{}"}),
        to_bytes(Checkpoint("NetworkComet", {}, {})),
    ],
    ids=["random", "ones", "csv", "zip", "json", "other", "other's note", "text", "list", "no format", "no facts"],
)
def test_a_file_of_another_format_is_refused(foreign, tmp_path):
    refused_content(foreign, tmp_path, "not a complete saved NetworkComet")


def test_an_older_format_is_refused_with_advice(tmp_path):
    header = {"format": 1, "kind": "NetworkComet", "facts": {}}
    older = save({"anything": np.zeros(3)}, {"cometad": json.dumps(header)})
    refused_content(older, tmp_path, rf"older cometad \(format 1; .* {FORMAT}\)\. Fit and save it again")


def test_the_error_for_a_newer_format_gives_both_versions(detector, tmp_path):
    header = {"format": FORMAT + 1, "kind": "NetworkComet", "facts": {"anything": "else"}}
    newer = save({"weight": np.zeros(3)}, {"cometad": json.dumps(header)})
    refused_content(newer, tmp_path, rf"newer cometad \(format {FORMAT + 1}; this one reads format {FORMAT}\)")


def test_a_file_of_another_kind_is_refused_by_name(detector, tmp_path):
    refused_content(to_bytes(Checkpoint("Forest", {}, {})), tmp_path, "holds a saved Forest, not a NetworkComet")
    refused_content(detector.stream().snapshot(), tmp_path, "holds a saved Stream, not a NetworkComet")


@pytest.mark.parametrize("where", ["missing", "", "missing/detector"])
def test_a_path_without_a_file_is_refused(where, tmp_path):
    with pytest.raises(ModelFileError, match="Cannot read") as caught:
        NetworkComet.load(tmp_path / where)
    assert is_a_sentence(str(caught.value))


def test_arrays_and_facts_are_unchanged_after_reading():
    facts = {"seed": 42, "sizes": [2, 4], "note": "größer", "nothing": None, "small": 1e-300}
    arrays = {
        "float": np.array([0.1, np.nan, np.inf]),
        "flag": np.array([True, False]),
        "count": np.arange(4),
        "empty": np.zeros((0, 3), np.float32),
        "single": np.array(3.0, np.float32),
        "sliced": np.arange(12.0).reshape(3, 4).T,
    }
    found = from_bytes(to_bytes(Checkpoint("NetworkComet", facts, arrays)), "NetworkComet")
    assert found.facts == facts
    for name, array in arrays.items():
        assert found.arrays[name].dtype == array.dtype
        assert found.arrays[name].shape == array.shape
        np.testing.assert_array_equal(found.arrays[name], array)


def test_the_file_contains_no_pickle(content):
    # safetensors: the length of a JSON header, the header, then only numbers.
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    note = json.loads(header.pop("__metadata__")["cometad"])
    assert note["format"] == FORMAT
    assert note["kind"] == "NetworkComet"
    numbers = max(entry["data_offsets"][1] for entry in header.values())
    assert len(content) == 8 + size + numbers
    assert b"torch" not in content[: 8 + size]


@pytest.mark.parametrize(
    "changes",
    [{"dim": np.int64(4)}, {"seed": np.int64(7)}, {"score_weight": np.float32(0.5)}, {"patch_sizes": [2, 4]}],
    ids=str,
)
def test_parameters_from_numpy_are_saved_as_numbers(changes, tmp_path):
    # As in a sweep over np.arange or np.linspace.
    shape = {"window": 20, "window_stride": 10, "patch_sizes": (2, 4), "patch_strides": (1, 2), "dim": 4, "core_dim": 3}
    swept = NetworkComet(**{**shape, "codebook_size": 8, "schedule": OneCycle(3), "batch_size": 8, **changes})
    swept.fit(waves(120)).save(tmp_path / "detector")
    loaded = NetworkComet.load(tmp_path / "detector")
    assert loaded.decision_function(waves(60)).tobytes() == swept.decision_function(waves(60)).tobytes()


# -- writing --------------------------------------------------------------------------------------------------------


def test_saving_leaves_no_other_file_in_the_folder(detector, tmp_path):
    detector.save(tmp_path / "detector.comet")
    detector.save(str(tmp_path / "detector.comet"))
    assert [path.name for path in tmp_path.iterdir()] == ["detector.comet"]


def test_a_path_that_cannot_be_written_is_refused_and_leaves_nothing_behind(detector, tmp_path):
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder").mkdir()
    too_long = tmp_path / ("x" * 300)
    for path in (tmp_path / "missing" / "detector", tmp_path / "folder", tmp_path / "file" / "detector", too_long):
        not_written(path, detector.save)
        assert {path.name for path in tmp_path.iterdir()} == {"file", "folder"}
        assert (tmp_path / "file").read_text() == "kept"
        assert not list((tmp_path / "folder").iterdir())


@pytest.mark.parametrize("path", ["", ".", "/"])
def test_a_path_without_a_name_is_refused(detector, path):
    not_written(path, detector.save)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_refused(detector, tmp_path):
    tmp_path.chmod(0o500)
    try:
        not_written(tmp_path / "detector", detector.save)
        assert not list(tmp_path.iterdir())
    finally:
        tmp_path.chmod(0o700)


@contextmanager
def no_room():
    """Simulate a full disk: no file can grow beyond 1 KiB. Not a fixture, because pytest's own log is a file too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_on_a_full_disk_the_old_file_survives_and_no_partial_file_remains(tmp_path):
    path = tmp_path / "detector"
    write(path, Checkpoint("NetworkComet", {}, {"old": np.zeros(3)}))
    before = path.read_bytes()
    with no_room():
        not_written(path, lambda path: write(path, Checkpoint("NetworkComet", {}, {"new": np.zeros(9999)})))
        not_written(
            tmp_path / "other", lambda path: write(path, Checkpoint("NetworkComet", {}, {"new": np.zeros(9999)}))
        )
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["detector"]


def test_a_reader_sees_the_old_file_or_the_new_one(detector, content, tmp_path):
    # The new file replaces the old one under its name; a reader that has the old one open can finish reading it.
    path = Path(tmp_path / "detector")
    path.write_bytes(b"old")
    with path.open("rb") as reader:
        detector.save(path)
        assert reader.read() == b"old"
    assert path.read_bytes() == content
