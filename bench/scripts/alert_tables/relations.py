"""What `Comet()` makes of faults that only break relations, by the width of the plant and what is broken."""

import numpy as np

from alert_tables.judged import DEFAULT, Scores, Worth, judged, summary, worth
from cometad import Comet
from cometad.compute import thread_count_of
from cometad.datasets.dataset import Dataset
from cometad.metrics import auc_pr
from cometad_bench.relations import CHOSEN_ON, JUDGED_ON, RELATIONS, relation_family
from threshold_tables.shared import each, head, row

Result = tuple[Scores, Worth, float, float]  # and the AUC-PR of the alert score and of the ranking score


def relations(asked) -> None:
    """The default on plants of the seeds of a part."""
    family = relation_family(CHOSEN_ON if asked.part == "select" else JUDGED_ON)
    results = list(each(results_of, family, asked.workers))
    head("variables", "plants", "found", "chance", "false", "alert AUC-PR", "ranking AUC-PR")
    for kind in dict.fromkeys(_kind(scores) for scores, *_ in results):
        _show(kind, [result for result in results if _kind(result[0]) == kind])
    _show("all", results)


def results_of(entity: Dataset) -> list[Result]:
    with thread_count_of(1):
        detector = Comet().fit(entity.train)
        scores, ranking = Scores.of(detector, entity), detector.decision_function(entity.test)
    labels = np.asarray(entity.labels, bool)
    areas = (auc_pr(labels, one) for one in (scores.test, ranking))
    return [(scores, worth(scores, judged(scores, DEFAULT)), *areas)]


def _kind(scores: Scores) -> str:
    width = scores.entity.split("-")[0]
    return f"{width[:-1]}, one broken" if width.endswith("s") else f"{width}, half broken"


def _show(what: str, results: list[Result]) -> None:
    one = summary([result[:2] for result in results], (RELATIONS,))
    areas = (f"{100 * np.mean([result[k] for result in results]):.1f}" for k in (2, 3))
    row(what, len(results), f"{one.found:.2f}", f"{one.chance:.2f}", f"{one.false:.2f}", *areas)
