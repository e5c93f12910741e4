"""Verdicts: what a person calls normal no longer raises alerts, in batches and streams; and how to take it back."""

import warnings
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometad import BASELINES, Alerts, Comet, NetworkComet, Quantile
from cometad.alerting.verdicts import Verdict
from cometad.data import ForwardFill
from cometad.datasets.synthetic import synthetic_plant
from cometad.errors import CometadError, InputError, ModelFileError, ParameterError
from cometad.live import event_verdicts as verdicts
from cometad.network import OneCycle
from cometad.views import Forecast, Patterns
from cometad.views.adaptation import FollowLevel
from contract import is_a_sentence, saved, waves

BUMPS = (108, 216, 324, 432)  # where the harmless pattern begins: whole periods of its variable apart
ROWS = 540


def bump(series, start, variable=1, size=6.0):
    series[start : start + 12, variable] += size * np.hanning(14)[1:-1]


def fresh(seed=1):
    series = waves(ROWS, seed=seed)
    for start in BUMPS:
        bump(series, start)
    return series


@cache
def fitted(**changes):
    views = (Patterns(6, 5), Forecast(3))
    return Comet(**{"views": views, "smoothing": (), "threshold": Quantile(1e-4), **changes}).fit(waves(900))


def touched(events, start, length=12):
    return any(event.start < start + length + 8 and event.stop > start for event in events)


def event_at(detector, series, start):
    return next(event for event in detector.events(series) if event.stop > start)


def stream_events(changes):
    return [change.event for change in changes if change.kind == "closed"]


# -- what a verdict does --------------------------------------------------------------------------------------------


def test_the_same_pattern_is_silent_afterwards():
    detector, series = fitted(), fresh()
    assert all(touched(detector.events(series), start) for start in BUMPS)
    taught = detector.learn_normal(series, event_at(detector, series, BUMPS[0]))
    assert not any(touched(taught.events(series), start) for start in BUMPS)


@pytest.mark.parametrize(
    "change", [{"variable": 0}, {"size": -6.0}, {"size": 40.0}], ids=["another variable", "other way", "far stronger"]
)
def test_something_else_still_raises_an_alert(change):
    detector, series = fitted(), fresh()
    bump(series, 504, **change)
    taught = detector.learn_normal(series, event_at(detector, series, BUMPS[0]))
    assert touched(taught.events(series), 504)


def test_a_repeated_pattern_of_a_plant_is_silent_and_faults_are_still_found():
    plant = synthetic_plant(train_rows=3000, test_rows=3000, faults_per_kind=1, drift=0.0, seed=3)
    detector = Comet(threshold=Quantile(0.002)).fit(plant.train)
    test = plant.test.copy()
    variable = next(i for i in range(24) if not any(i in fault.variables for fault in plant.faults))
    free = [t for t in range(20, 2900, 10) if not plant.labels[max(t - 80, 0) : t + 120].any()]
    starts = [free[0], free[len(free) // 2], free[-1]]
    for start in starts:
        test[start : start + 40, variable] += 5 * plant.train[:, variable].std() * np.hanning(42)[1:-1]
    before = detector.events(test)
    first = next(event for event in before if event.stop > starts[0])
    after = detector.learn_normal(test, first).events(test)
    assert all(touched(before, start, 40) for start in starts)
    assert not any(touched(after, start, 40) for start in starts)
    for fault in plant.faults:
        length = fault.stop - fault.start
        assert touched(after, fault.start, length) == touched(before, fault.start, length)


def test_only_alert_scores_change():
    detector, series = fitted(), fresh()
    taught = detector.learn_normal(series, (108, 120))
    before, after = detector.step_scores(series), taught.step_scores(series)
    assert before.scores.tobytes() == after.scores.tobytes()
    assert (after.alerts <= before.alerts).all()
    assert (after.alerts < before.alerts).any()
    assert taught.threshold_ == detector.threshold_
    assert taught.explain(series, 113).score == pytest.approx(after.alerts[113])


def test_learning_and_taking_back_leave_the_other_detectors_alone():
    detector, series = fitted(), fresh()
    untouched = saved(detector)
    one = detector.learn_normal(series, (108, 120))
    two = one.learn_normal(series, 330)
    assert [(verdict.number, verdict.start, verdict.stop) for verdict in two.verdicts_] == [
        (1, 108, 120),
        (2, 330, 331),
    ]
    assert two.verdicts_[0] == Verdict(1, 108, 120, "normal", ("v1",))
    back = two.without_verdict(1)
    assert back.verdicts_ == two.verdicts_[1:]
    assert back.learn_normal(series, (216, 228)).verdicts_[-1].number == 3  # a number is used once
    assert back.without_verdict(2).verdicts_ == detector.verdicts_ == ()
    assert saved(detector) == saved(one.without_verdict(1)) == untouched


def test_verdicts_are_saved_and_part_of_the_identity(tmp_path):
    detector, series = fitted(), fresh()
    taught = detector.learn_normal(series, (108, 120))
    taught.save(tmp_path / "taught")
    loaded = Comet.load(tmp_path / "taught")
    assert loaded.verdicts_ == taught.verdicts_
    assert loaded.step_scores(series).alerts.tobytes() == taught.step_scores(series).alerts.tobytes()
    assert saved(loaded) == saved(taught)
    with pytest.raises(ModelFileError, match="from another detector"):
        taught.stream(detector.stream().snapshot())
    assert taught.fit(waves(900)).verdicts_ == ()


# -- streams --------------------------------------------------------------------------------------------------------


def test_a_stream_learns_what_a_detector_learns():
    detector, series = fitted(), fresh()
    stream = detector.stream()
    changes = stream.update_many(series[:150]).changes
    event = stream_events(changes)[0]
    said = stream.verdict(event, "normal")
    assert stream.verdicts == (said,)
    assert said == Verdict(1, event.start, event.stop, "normal", ("v1",))
    closed = next(change.step for change in changes if change.kind == "closed")
    taught = detector.learn_normal(series, (event.start, closed + 1))  # its quiet end belongs to it in a stream
    later = stream.update_many(series[150:])
    assert later.alert_scores.tobytes() == taught.step_scores(series).alerts[150:].tobytes()
    assert not any(touched(stream_events(later.changes), start) for start in BUMPS[1:])


@settings(max_examples=15)
@given(st.data())
@pytest.mark.parametrize("adaptation", [None, FollowLevel(every=64)], ids=["fitted", "following"])
def test_chunks_and_snapshots_change_nothing(adaptation, data):
    series, alerts = fresh(), Alerts(min_length=2, merge_gap=3)
    bump(series, 216, variable=0)  # still an event once the others are normal
    series[[112, 230], 0] = np.nan
    detector = fitted(gaps=ForwardFill(limit=2))

    def run(cuts, resume):
        stream, parts = detector.stream(adaptation=adaptation, alerts=alerts), []
        for k, chunk in enumerate(np.split(series, sorted({*cuts, 150, 222, 330}))):
            before = stream.seen
            parts.append(stream.update_many(chunk))
            for at, event, called in ((150, 1, "normal"), (222, 2, "fault"), (330, 2, "normal")):
                if before < at == stream.seen:
                    stream.verdict(event, called)
            if resume and k % 2:
                stream = detector.stream(stream.snapshot(), adaptation=adaptation, alerts=alerts)
        parts.append(stream.finish())
        scores = np.concatenate([part.alert_scores for part in parts])
        return scores.tobytes(), [change for part in parts for change in part.changes], stream.snapshot()

    cuts = data.draw(st.lists(st.integers(1, ROWS - 1), max_size=8))
    assert run(cuts, resume=data.draw(st.booleans())) == run([], resume=False)


def test_a_fault_wins_and_a_verdict_can_be_replaced_and_withdrawn():
    detector, series = fitted(), fresh()
    plain = detector.stream().update_many(series).alert_scores

    def later(*said):
        stream = detector.stream()
        stream.update_many(series[:250])  # two events
        for event, called in said:
            stream.verdict(event, called)
        return stream.update_many(series[250:]).alert_scores, stream.verdicts

    silent, listed = later((1, "normal"))
    assert (silent < plain[250:]).any()
    assert [verdict.called for verdict in listed] == ["normal"]
    replaced, listed = later((1, "normal"), (1, "fault"))
    assert [verdict.called for verdict in listed] == ["fault"]
    withdrawn, listed = later((1, "normal"), (1, None))
    assert listed == ()
    assert replaced.tobytes() == withdrawn.tobytes() == plain[250:].tobytes()
    shielded, listed = later((2, "fault"), (1, "normal"))
    assert [verdict.number for verdict in listed] == [1, 2]
    assert silent.max() <= detector.threshold_ < shielded.max()


def test_an_open_event_can_be_called_normal():
    detector, series = fitted(), waves(400, seed=1)
    series[200:300, 1] += 6.0
    stream = detector.stream()
    stream.update_many(series[:260])
    assert stream._judge.alerts.event is not None
    said = stream.verdict(1, "normal")
    assert (said.start, said.stop) == (200, 260)
    assert not stream.update_many(series[260:290]).flags.any()


def test_a_stream_without_verdicts_has_the_scores_of_a_batch():
    detector, series = fitted(), fresh()
    scored = detector.stream().update_many(series)
    assert scored.alert_scores.tobytes() == detector.step_scores(series).alerts.tobytes()


def test_a_reset_stream_forgets_verdicts():
    stream = fitted().stream()
    stream.update_many(fresh())
    stream.verdict(1, "normal")
    stream.reset()
    assert stream.verdicts == ()


def test_the_last_event_gets_a_verdict_after_the_stream_is_finished():
    stream, series = fitted().stream(), waves(300, seed=1)
    series[290:, 1] += 6.0
    stream.update_many(series)
    stream.finish()
    assert stream.verdict(1, "normal").stop == 300


# -- errors ---------------------------------------------------------------------------------------------------------


def refused(kind, match, function, *arguments):
    with pytest.raises(kind, match=match) as caught:
        function(*arguments)
    assert is_a_sentence(str(caught.value))


def test_a_verdict_on_what_does_not_exist_gets_one_sentence():
    stream = fitted().stream()
    refused(InputError, "This stream has had no event; there is no event 1.", stream.verdict, 1, "normal")
    stream.update_many(fresh()[:350])
    refused(InputError, "This stream has had 3 events; there is no event 7.", stream.verdict, 7, "normal")
    refused(InputError, "there is no event 0", stream.verdict, 0, None)
    refused(InputError, "There is no verdict on event 2 to withdraw", stream.verdict, 2, None)
    refused(ParameterError, 'A verdict is "normal", "fault", or None', stream.verdict, 2, "harmless")
    refused(ParameterError, "Cannot give a verdict on 'x'", stream.verdict, "x", "normal")
    assert stream.verdicts == ()


def test_what_cannot_be_learned_gets_one_sentence():
    detector, series = fitted(), fresh()
    refused(InputError, "Cannot learn {'x'}. Pass an event", detector.learn_normal, series, {"x"})
    refused(InputError, "The series has no times, so 'x' cannot be found", detector.learn_normal, series, "x")
    refused(InputError, "outside the series", detector.learn_normal, series, 9000)
    refused(InputError, "Nothing in the time steps 0 to 1 is unusual enough", detector.learn_normal, series, 0)
    refused(InputError, "There is no verdict 1 to take back; this detector has none", detector.without_verdict, 1)


def test_verdicts_and_remembered_events_are_bounded(monkeypatch):
    monkeypatch.setattr(verdicts, "REMEMBERED", 2)
    monkeypatch.setattr(verdicts, "MOST", 1)
    stream = fitted().stream()
    stream.update_many(fresh()[:150])
    stream.verdict(1, "normal")
    stream.verdict(1, None)
    stream.update_many(fresh()[150:])
    refused(InputError, "Event 1 is too long ago: a stream remembers its last 2 events", stream.verdict, 1, "normal")
    stream.verdict(4, "normal")
    refused(ParameterError, "A stream holds at most 1 verdicts", stream.verdict, 3, "fault")
    assert stream.verdict(4, "fault").called == "fault"


def test_a_forgotten_event_with_a_verdict_can_get_another(monkeypatch):
    monkeypatch.setattr(verdicts, "REMEMBERED", 1)
    stream = fitted().stream()
    stream.update_many(fresh()[:150])
    stream.verdict(1, "fault")
    stream.update_many(fresh()[150:])
    assert stream.verdict(1, "normal").called == "normal"


def test_a_detector_holds_a_bounded_number_of_verdicts(monkeypatch):
    monkeypatch.setattr("cometad.comet.MOST_LEARNED", 1)
    taught = fitted().learn_normal(fresh(), 113)
    refused(ParameterError, "A detector holds at most 1 verdicts", taught.learn_normal, fresh(), 222)


def test_detectors_that_take_no_verdicts_say_so():
    series = waves(200)
    plain = BASELINES["squared-norm"]().fit(series)
    assert not plain.can_take_verdicts
    refused(CometadError, "SquaredNorm cannot take verdicts. Use a Comet", plain.learn_normal, series, 3)
    with warnings.catch_warnings():
        stream = NetworkComet(schedule=OneCycle(2)).fit(series).stream()
    refused(CometadError, "NetworkComet cannot take verdicts. Use a Comet", stream.verdict, 1, "normal")
    assert stream.verdicts == ()
