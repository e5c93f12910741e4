"""Comet, the composition root: views, their calibration and fusion, trimming, thresholds and streams."""

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from cometad.alerting.alerts import Alerts, Event
from cometad.alerting.budget import Budget
from cometad.alerting.verdicts import Verdict, restored_verdict
from cometad.alerting.watch import Threshold
from cometad.arrays import Flags, Floats, Floats32
from cometad.checkpoint import kind_of
from cometad.data.gaps import Gaps, RefuseGaps
from cometad.data.kinds import DECLARED, STATE, certain_kinds
from cometad.data.prepare import STEADY, Likely, Trends, fit_scaling
from cometad.data.season import Season, check_season
from cometad.detector import RULES as SHARED_RULES
from cometad.detector import Detector
from cometad.errors import InputError, ParameterError, imported_for
from cometad.explain.bands import fit_bands
from cometad.explain.by_views import ViewsExplainer, Voice
from cometad.explain.level import Level
from cometad.explain.reasons import Explanation, stretch_of
from cometad.live.event_verdicts import Verdicts
from cometad.live.stream import Stream
from cometad.parameters import check, check_integer, integer, refusing, require, strategy
from cometad.progress import show_progress
from cometad.saving import Table, array, arrays, counted, each, fact, part, parts, require_state, value
from cometad.scoring.scores import StepScores, Tails, check_tails, usual_pooling
from cometad.scoring.signatures import MARGIN, Signature, Signatures, signatures
from cometad.series import Series
from cometad.views import Activity, Balance, Forecast, Joint, Patterns
from cometad.views.adaptation import KeepFitted, LevelAdaptation
from cometad.views.crossfit import FOLDS, CrossFitted, all_usable, cross_fit, fit_views, score_folds
from cometad.views.panel import Panel, ViewsRun, clipped, gather_signature, score_series
from cometad.views.trim import (
    AGAIN,
    MOST,
    ROUNDS,
    Stretch,
    Times,
    excluded,
    find_misfits,
    merged,
    restored_stretch,
    restored_times,
    saved_times,
    times_of,
    unusable,
)
from cometad.views.view import FittedView, View

if TYPE_CHECKING:
    from cometad.network_comet import NetworkComet

MOST_SMOOTHED = 1_000_000  # time steps
MOST_POOLED = 1_000  # a power mean with this exponent is the maximum
LEAST = 100  # readings of training, if some views need more
MOST_LEARNED = 1_000  # verdicts of a detector: each makes unusual time steps slower to score

DEFAULT_VIEWS = (Patterns(), Joint(), Forecast(), Balance(), Activity())

# Parameters of earlier versions, and where each of them is now.
_OF_NETWORK = (
    *("window", "window_stride", "patch_sizes", "patch_strides", "dim", "core_dim", "codebook_size", "initialization"),
    *("refit", "schedule", "batch_size", "weight_decay", "codebook_weight", "commitment_weight", "device"),
)
_OF_PAPER = ("neighbors", "memory_distance", "score_weight", "calibration", "normalization", "test_batch")
REMOVED = {
    **dict.fromkeys(
        _OF_NETWORK, "It belongs to the network: views=(NetworkView({name}=...),) or Comet.paper({name}=...)."
    ),
    **dict.fromkeys(_OF_PAPER, "It belongs to the published method: Comet.paper({name}=...)."),
    "selection": "Use pooling, the exponent of the power mean over variables, or Comet.paper(selection=...).",
    "validation_share": "Views are cross-fitted instead. The published method still has it: Comet.paper({name}=...).",
}

RULES = {
    **{name: SHARED_RULES[name] for name in ("scaler", "gaps", "threshold", "seed")},
    "pooling": integer(1, MOST_POOLED, optional=True),
    "adaptation": strategy("follow"),
}


_EACH = ("variable",)
_KNOWN = array("known", "known", "variable", unknown=True, optional=True)


class Comet(Detector):
    """Scores readings by how far they are from what several simple views of normal expect.

    `Comet()` is the default and needs no torch. `Comet.paper()` is the published method.

    >>> import numpy as np
    >>> from cometad import Comet
    >>> rng = np.random.default_rng(0)
    >>> normal, fresh = rng.normal(size=(2, 1000, 3))
    >>> fresh[500, 1] = 12.0
    >>> detector = Comet().fit(normal)
    >>> int(detector.decision_function(fresh).argmax()) in range(490, 511)
    True
    >>> int(detector.step_scores(fresh).alerts.argmax())
    500

    Parameters
    ----------
    views
        What is expected, in one or more ways: see `cometad.views`. Your own view works too.
    pooling
        Exponent of the power mean over variables: 1 is their mean; the higher, the more the worst variable counts. None
        is 8, and for more than 90 variables 16, for more than 181 32.
    smoothing
        Time steps of the centered means whose average is the ranking score; () for none. It delays the ranking score,
        not the alert score.
    trim
        Whether `fit` leaves out stretches of the training series that do not fit the rest.
    trends
        Whether `fit` looks for counters, states, clocks and variables that wander, and scores their movement instead of
        their readings. `trends_` says which.
    kinds
        The kinds of variables that you know: {"energy": "counter", "valve": "state", "flow": "sensor"}; the readings of
        a sensor are scored as they are.
    season
        What is usual at each time, and subtracted: "auto" looks for days and weeks where times are known, "1d" and "1w"
        mean all variables, an integer is a number of readings, and "none" turns this off. `season_` has what was found.
    timezone, holidays
        Of the season: a time zone such as "Europe/Berlin", and a country whose public holidays are like Sundays, such
        as "DE", "DE-BY" or "US-CA".
    adaptation
        What a stream or a batch learns from the readings it scores: `KeepFitted` or `FollowLevel`.
    scaler
        "standard" or "min-max".
    gaps
        How missing readings are handled: refused, or imputed and never flagged.
    threshold
        Which alert scores are anomalous: a `Budget` of alerts tracks the scores and holds when they drift; `Quantile`,
        `Conformal` and `Spot` trust the training scores.
    seed, verbose
        Random seed (equal seeds give equal bytes); whether `fit` shows progress.
    """

    can_stream = can_explain = can_adapt = can_take_verdicts = can_export = True
    without_adaptation = KeepFitted()
    # By the names in saved files, for `saved_detector.py`.
    saved: ClassVar[Table] = {
        "view": parts("views_", attrgetter("kept_")),
        "tails.alert": array("alert_tails_", "view", len(Tails._fields), "variable"),
        "tails.ranking": array("ranking_tails_", "view", len(Tails._fields), "variable"),
        "level": array("level_", len(Level._fields), "variable", pack=np.stack, make=lambda own: Level(*own)),
        "bands": array("bands_", "view", "variable", unknown=True),
        "trends": value(
            "trends_", {**arrays(gain=_EACH, usual=_EACH, far=_EACH), "known": _KNOWN}, Trends, Trends.check_state
        ),
        "season": part("season_", lambda own: Season(np.zeros(0, np.int64), own.timezone, own.holidays)),
        "likely": value("likely_", arrays(center=_EACH, precision=2 * _EACH), Likely, Likely.check_state),
        "normal": signatures("normal_"),  # what `learn_normal` adds
    }
    saved_facts: ClassVar[Table] = {
        "left_out": fact("left_out_", each(partial(counted, name="left_out")), optional=True),
        "trimmed": fact("trimmed_", each(restored_stretch), pack=each(list)),
        "trimmed_times": fact("trimmed_times_", each(restored_times), pack=each(saved_times), optional=True),
        "verdicts": fact("verdicts_", each(restored_verdict), pack=each(asdict), optional=True),
    }
    _training_need = "the views need"

    views_: tuple[FittedView, ...]
    alert_tails_: Floats  # (view, 3, variable)  tails of the errors
    ranking_tails_: Floats  # (view, 3, variable)  tails of the errors averaged over the windows that cover a time step
    level_: Level
    likely_: Likely
    bands_: Floats  # (view, variable)  how far a normal reading may be from what is expected, in scaled units
    trimmed_: tuple[Stretch, ...]
    trimmed_times_: tuple[Times, ...] | None = (
        None  # of their first and last readings, if the training series had times
    )
    left_out_: tuple[int, ...] = ()  # places in `views` of those that need a longer history
    verdicts_: tuple[Verdict, ...] = ()
    normal_: tuple[Signature, ...] = ()  # of the verdicts

    @refusing(REMOVED)
    def __init__(
        self,
        *,
        views: Sequence[View] = DEFAULT_VIEWS,
        pooling: int | None = None,
        smoothing: Sequence[int] = (4, 16, 64),
        trim: bool = True,
        trends: bool = True,
        kinds: Mapping[str, str] | None = None,
        season: str | int = "auto",
        timezone: str = "UTC",
        holidays: str | None = None,
        adaptation: LevelAdaptation = KeepFitted(),
        scaler: str = "standard",
        gaps: Gaps = RefuseGaps(),
        threshold: Threshold = Budget(),
        seed: int = 42,
        verbose: bool = False,
    ) -> None:
        self.views = views
        self.pooling = pooling
        self.smoothing = smoothing
        self.trim = trim
        self.trends = trends
        self.kinds = kinds
        self.season = season
        self.timezone = timezone
        self.holidays = holidays
        self.adaptation = adaptation
        self.scaler = scaler
        self.gaps = gaps
        self.threshold = threshold
        self.seed = seed
        self.verbose = verbose

    @classmethod
    def paper(cls, dataset: str | None = None, **changes: Any) -> "NetworkComet":
        """The published method, with the paper's codebook size and dimension for a dataset; it needs torch.

        >>> from cometad import Comet
        >>> detector = Comet.paper("WADI", seed=1)
        >>> detector.codebook_size, detector.dim, detector.patch_sizes
        (32, 64, (2, 4, 6))
        """
        detector: NetworkComet = _network_comet("Comet.paper()").paper(dataset, **changes)
        return detector

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: str | None = None) -> Self:
        """Load a detector that `save` wrote; one that was saved before there were views loads as a `NetworkComet`."""
        if kind_of(path) != "NetworkComet":
            return super().load(path, device=device)
        detector: Self = _network_comet(f"The detector in '{path}'").load(path, device=device)
        return detector

    def fit(self, X: object, y: object = None, *, exclude: Sequence[tuple[Any, Any]] = ()) -> Self:
        """Learn what is normal from a series (time, variable); `y` is ignored.

        Stretches that do not fit the rest are left out, unless `trim` is False; `trimmed_` lists them, and
        `trimmed_times_` has the times of their first and last readings. `exclude` adds your own: pairs (start, stop) of
        time steps or timestamps, without the stop.

        >>> import numpy as np
        >>> from cometad import Comet
        >>> normal = np.random.default_rng(0).normal(size=(1000, 2))
        >>> normal[200:260] = 9.0
        >>> [(stretch.start, stretch.stop) for stretch in Comet(trim=False).fit(normal, exclude=[(200, 260)]).trimmed_]
        [(200, 260)]
        """
        series = self._begin(X)
        self.trimmed_ = excluded(exclude, series)
        kinds = certain_kinds(series, self.kinds or {}, self.trends)
        series = self._filled(series)
        self.trends_ = Trends.fit(series.values, series.imputed, kinds)
        series = replace(series, values=self.trends_(series.values, series.imputed))
        learned = ~unusable(self.trimmed_, len(series))
        self.season_, moved = Season.fit(self.season, self.timezone, self.holidays, series, learned)
        series = replace(series, values=moved)
        scaled, usable, found = self._cross_fit(series)
        most = min(MOST * usable.sum(), usable.sum() - self._least_training_rows())
        looks = ROUNDS if self.trim else 0
        while looks and (misfits := find_misfits(found, self.kept_, series.names, most)):
            count = sum(stretch.stop - stretch.start for stretch in misfits)
            most, looks = most - count, looks - 1 if count > AGAIN * len(series) else 0
            self.trimmed_ = merged((*self.trimmed_, *misfits))
            scaled, usable, found = self._cross_fit(series)
        self.trimmed_times_ = times_of(self.trimmed_, series.times)
        self.views_ = fit_views(self.kept_, found.rows, usable, self.seed)
        self.alert_tails_, self.ranking_tails_ = found.alert, found.ranking
        self.verdicts_ = self.normal_ = ()
        self.level_, self.bands_ = Level.fit(scaled, usable), fit_bands(found)
        self.likely_ = Likely.fit(scaled, usable)
        self.decision_scores_, _, imputed = self._step_scores(self.substituted(scaled, series.doubtful), series)
        self.imputed_ = np.zeros(len(series), bool) if imputed is None else imputed
        # The scores after a stretch that was left out depend on it too.
        self.imputed_ |= ~all_usable(~unusable(self.trimmed_, len(series)), self.panel_.context)
        self.alert_scores_ = score_folds(found, self._exponent)
        self._fit_threshold()
        return self

    def _cross_fit(self, series: Series) -> tuple[Floats32, Flags, CrossFitted]:
        """Scale the series by its usable rows, and cross-fit the views on them."""
        usable = ~unusable(self.trimmed_, len(series))
        if series.doubtful is not None:
            usable &= ~series.doubtful.any(axis=1)
        if usable.sum() < self._least_training_rows():
            raise InputError(
                f"Only {usable.sum():,} of {len(series):,} readings can be learned from, fewer than the views need "
                f"({self._least_training_rows()}). Exclude less or pass a longer series."
            )
        self.left_out_ = tuple(v for v, view in enumerate(self.views) if usable.sum() < FOLDS * view.min_rows)
        scaling = fit_scaling(self.scaler, series.values if usable.all() else series.values[usable])
        self.scaling_ = scaling._replace(unit=np.maximum(scaling.unit, STEADY * np.abs(self.trends_.usual)))
        scaled = self.scaling_(series.values)
        with show_progress("block", self.verbose) as report:
            found = cross_fit(
                self.kept_, clipped(scaled), usable, series.imputed, self.seed, lambda done: report(done, FOLDS, "")
            )
        return scaled, usable, found

    def _stream(self, adaptation: LevelAdaptation | None, alerts: Alerts, late: str) -> Stream:
        adaptation = adaptation or self.adaptation
        check({"adaptation": adaptation}, RULES)
        return Stream(self, adaptation, alerts, late)

    def open_run(self, adaptation: LevelAdaptation) -> tuple[ViewsRun, Verdicts]:
        run = ViewsRun(self.panel_, adaptation)
        return run, Verdicts(run, self._signatures(), self.names_)

    def explainer(self, X: object) -> Callable[[Event | int | Sequence[int], int], Explanation]:
        """A function that explains events of one series, which is checked only once."""
        series = replace(self._checked(X), names=self.names_)
        views = tuple(
            Voice(type(view).__name__.lower(), view.reason, getattr(view, "relation", "")) for view in self.kept_
        )
        states = [self.trends_.kinds.get(i) == STATE for i in range(len(self.names_))]
        trended, moved = self.trends_(series.values, series.imputed), self._moved(series)
        moved = np.where(states, series.values - (trended - moved), moved)
        usually = None if self.season_ is None else self.season_.usually
        fitted = (self.panel_, views, self.level_, self.bands_, self.likely_, self.scaling_)
        return ViewsExplainer(*fitted, series, moved, self._scaled(series), usually)

    def learn_normal(self, X: object, event: object) -> Self:
        """A copy that no longer alerts about what looks like an event, a time, a time step or a pair of a series.

        `verdicts_` lists what it learned, `without_verdict` takes one back. Only alert scores, flags and events change,
        and neither the threshold nor the ranking score does. A stream learns the same from `Stream.verdict`.

        >>> import numpy as np
        >>> from cometad import Comet
        >>> normal, fresh = np.random.default_rng(0).normal(size=(2, 1000, 3))
        >>> fresh[[300, 600], 1] = 12.0
        >>> detector = Comet().fit(normal)
        >>> learned = detector.learn_normal(fresh, 300)
        >>> detector.predict(fresh)[600], learned.predict(fresh)[600]
        (np.int64(1), np.int64(0))
        >>> learned.verdicts_
        (Verdict(number=1, start=300, stop=301, called='normal', variables=('v1',)),)
        """
        series = self._checked(X)
        start, stop = stretch_of(series.located(event), len(series), "learn")
        if len(self.verdicts_) >= MOST_LEARNED:
            raise ParameterError(
                f"A detector holds at most {MOST_LEARNED:,} verdicts. Take one back with without_verdict, or fit a new "
                "detector on readings that contain these events."
            )
        scaled = self._scaled(series)
        found = gather_signature(self.panel_, self.adaptation, scaled, series.imputed, start, stop)
        if not len(found.variables):
            raise InputError(f"Nothing in the time steps {start} to {stop} is unusual enough to learn from.")
        number = max((verdict.number for verdict in self.verdicts_), default=0) + 1
        verdict = Verdict(number, start, stop, "normal", tuple(self.names_[i] for i in found.worst()))
        return self._with_verdicts((*self.verdicts_, verdict), (*self.normal_, found))

    def without_verdict(self, number: int) -> Self:
        """A copy without one of the verdicts in `verdicts_`.

        >>> import numpy as np
        >>> from cometad import Comet
        >>> normal = np.random.default_rng(0).normal(size=(600, 3))
        >>> normal[300, 1] = 12.0
        >>> detector = Comet(trim=False).fit(normal).learn_normal(normal, 300)
        >>> detector.without_verdict(1).verdicts_
        ()
        """
        self._check_fitted()
        kept = [k for k, verdict in enumerate(self.verdicts_) if verdict.number != number]
        if len(kept) == len(self.verdicts_):
            known = ", ".join(str(verdict.number) for verdict in self.verdicts_) or "none"
            raise InputError(f"There is no verdict {number!r} to take back; this detector has {known}.")
        return self._with_verdicts(tuple(self.verdicts_[k] for k in kept), tuple(self.normal_[k] for k in kept))

    def _with_verdicts(self, verdicts: tuple[Verdict, ...], normal: tuple[Signature, ...]) -> Self:
        other = copy.copy(self)
        other.verdicts_, other.normal_, other._digest = verdicts, normal, None
        return other

    def _signatures(self) -> Signatures:
        return Signatures(MARGIN * self.level_.deviation, self.normal_)

    # -- checks -----------------------------------------------------------------------------------------------------

    def check_parameters(self) -> None:
        check(self.get_params(deep=False), RULES)
        some = isinstance(self.views, Sequence) and len(self.views) >= 1
        require(some, "views", "a sequence of one or more views", self.views)
        for view in self.views:
            strategy("fit", "restore", "reason", "min_rows")("views", view)
        for name in ("trim", "trends"):
            require(isinstance(getattr(self, name), bool), name, "True or False", getattr(self, name))
        known = self.kinds is None or (isinstance(self.kinds, dict) and set(self.kinds.values()) <= set(DECLARED))
        require(known, "kinds", f"None or a dict from variables to {', '.join(DECLARED)}", self.kinds)
        check_season(self.season, self.timezone, self.holidays)
        require(isinstance(self.smoothing, Sequence), "smoothing", "a sequence of integers", self.smoothing)
        for span in self.smoothing:
            check_integer("smoothing", span, 1, MOST_SMOOTHED)

    def _least_rows(self) -> int:
        return min(view.min_rows for view in self.views)

    def _least_training_rows(self) -> int:
        needs = [FOLDS * view.min_rows for view in self.views]
        return min(max(needs), max(min(needs), LEAST))

    @property
    def kept_(self) -> tuple[View, ...]:
        """The views that the history was long enough for."""
        return tuple(view for v, view in enumerate(self.views) if v not in self.left_out_)

    # -- scoring ----------------------------------------------------------------------------------------------------

    @property
    def panel_(self) -> Panel:
        tails, excused = (self.alert_tails_, self.ranking_tails_), self._signatures() if self.normal_ else None
        return Panel(self.views_, *tails, self._exponent, tuple(self.smoothing), excused)

    @property
    def _exponent(self) -> int:
        return usual_pooling(self.n_features_in_) if self.pooling is None else self.pooling

    def substituted(self, scaled: Floats32, doubtful: Flags | None) -> Floats32:
        """Scaled readings (time, variable) with likely values for `doubtful` cells, given the others."""
        return self.likely_(scaled, doubtful)

    def _score(self, scaled: Floats32, series: Series) -> Floats:
        return self._step_scores(scaled, series).scores

    def _step_scores(self, scaled: Floats32, series: Series) -> StepScores:
        return score_series(self.panel_, self.adaptation, scaled, series.imputed)

    def _check_state(self) -> None:
        longest = max((FOLDS * view.min_rows for view in self.kept_), default=np.inf)
        require_state(longest <= len(self.decision_scores_), "its 'left_out' are not the views that need more readings")
        for v, view in enumerate(self.views_):
            same = getattr(view, "width", self.n_features_in_) == self.n_features_in_
            require_state(same, f"its view {v} was fitted on another number of variables")
        check_tails(self.alert_tails_, "tails.alert")
        check_tails(self.ranking_tails_, "tails.ranking")
        require_state(bool((self.level_.deviation > 0).all()), "its array 'level' has no positive deviations")
        times = self.trimmed_times_
        same = times is None or len(times) == len(self.trimmed_)
        require_state(same, "its 'trimmed_times' are not those of its stretches")
        require_state(len(self.verdicts_) <= MOST_LEARNED, "it has too many verdicts")
        require_state(len(self.normal_) == len(self.verdicts_), "its verdicts have no signatures")


def _network_comet(user: str) -> Any:
    """`NetworkComet`, imported when it is needed, because torch is optional; `user` is who needs it."""
    return imported_for(user, "cometad.network_comet").NetworkComet
