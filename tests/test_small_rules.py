"""Small rules of the report, the fleet and the service, each with the cases that show it."""

import numpy as np
import pytest

from cometad.connect.address import Address
from cometad.connect.out.message import moment_of
from cometad.connect.prometheus import history
from cometad.errors import ParameterError
from cometad.fleet.jobs import problem
from cometad.fleet.local_engine import death
from cometad.fleet.overview import EntityLine, worst_first
from cometad.fleet.pooling import candidates, correlations
from cometad.progress import in_words
from cometad.report.axes import format_number
from cometad.report.gather import trimmed_sentence
from cometad.report.html import rounded
from cometad.serve.api.guards import Rates, moment
from cometad.serve.fleet_streams import stream_name
from cometad.serve.live_stream import seconds_of, top_of
from cometad.serve.models import is_name
from cometad.serve.settings import ConnectSettings, address, is_loopback, load_settings
from cometad.views.trim import Stretch


@pytest.mark.parametrize(
    "shown, expected",
    [
        (
            [format_number(value) for value in (1234.5678, 0.012345, 3.0, 2.5e9, 0.0)],
            ["1,235", "0.0123", "3", "2.5e+09", "0"],
        ),
        ([rounded(value) for value in (12.34, -0.01, 50.0)], ["12.3", "0", "50"]),
        ([in_words(seconds) for seconds in (42, 600, 9000)], ["42 s", "10 min", "2.5 h"]),
        (death(-9, "The worker"), "The worker was killed (SIGKILL), probably because memory ran out."),
        (death(-15, "The worker"), "The worker was ended by SIGTERM."),
        (death(3, "The worker"), "The worker ended early, with exit code 3."),
        (problem(MemoryError()), "Not enough memory for this entity. Use fewer workers, or a shorter series."),
        (problem(KeyError("flow")), "KeyError: 'flow'. This is a bug in cometad or in your own code."),
        (
            trimmed_sentence(Stretch(200, 260, ("flow",), "does not fit the rest")),
            "Left out of training: time steps 200 to 259 (flow): does not fit the rest.",
        ),
    ],
)
def test_numbers_and_facts_are_put_into_words(shown, expected):
    assert shown == expected


def test_a_fleet_lists_the_worst_entity_first_and_failed_ones_last():
    lines = [EntityLine("calm"), EntityLine("lost", error="No readings."), EntityLine("bad", severity=3.0)]
    assert [line.name for line in worst_first(lines)] == ["bad", "calm", "lost"]


def test_entities_with_enough_readings_may_lend_some():
    assert candidates({"new": 20, "old": 5000}, least=2000) == ["old"]
    found = correlations(np.array([[1.0, 2.0, 5.0], [2.0, 4.0, 5.0], [3.0, 6.0, 5.0]]))
    assert found.round(12).tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 0]]


def test_addresses_names_and_times_of_the_service():
    assert (address("0.0.0.0", 8080), address("::1", 8080)) == ("http://127.0.0.1:8080", "http://[::1]:8080")
    assert [is_loopback(host) for host in ("127.0.0.1", "localhost", "0.0.0.0")] == [True, True, False]
    assert [moment(text, 0.0) for text in ("2026-03-01T12:00:00Z", "7.5", None)] == [1772366400.0, 7.5, 0.0]
    assert (stream_name("pump-7"), stream_name("hall 2/pump 7")) == ("pump-7", "hall-2-pump-7-3c93a09d")
    assert (is_name("pump-7"), is_name("../pump"), seconds_of("1min")) == (True, False, 60.0)
    assert ConnectSettings(url="mqtt://plant/pump", stream="pump").address.name == "mqtt-plant-pump-pump"
    assert top_of(["flow", "speed"], np.array([0.5, 2.0]), most=1) == [("speed", 2.0)]


def test_a_client_may_send_as_fast_as_its_bucket_fills():
    rates = Rates(per_second=1.0)
    assert [rates.wait("10.0.0.7", now=0.0) for _ in range(3)] == [0, 0, 1]


def test_a_bad_setting_is_refused_in_one_sentence():
    with pytest.raises(ParameterError, match="Cannot use the setting 'port': Input should be less than"):
        load_settings(port=99999)


@pytest.mark.parametrize(
    "seconds, shown", [(1_772_366_400.25, "2026-03-01T12:00:00.250Z"), (-3.0, "-3"), (3e11, "3e+11")]
)
def test_a_time_outside_the_calendar_is_shown_as_a_number(seconds, shown):
    assert moment_of(seconds) == shown


def test_a_history_of_too_many_steps_is_refused():
    address = Address("prometheus+http://127.0.0.1:1", "web", {"up": "up"}, "1s")
    with pytest.raises(ParameterError, match="Choose a later start or a longer period"):
        history(address, "1970-01-02")
