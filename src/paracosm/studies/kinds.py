"""The kinds of run: which room has which, and which has more forms of it. Another kind is one entry
here.
"""

from __future__ import annotations

from collections.abc import Mapping

from paracosm.results import ProfileSummary, Summary
from paracosm.results.kind import Answer, Kinds

KINDS = Kinds(
    {
        "train": "paracosm.training.kind:KIND paracosm.planning.kind:TRAIN",
        "plan": "paracosm.planning.kind:KIND",
        "predict": "paracosm.prediction.kind:KIND",
        "emulate": "paracosm.emulation.kind:KIND",
        "replay": "paracosm.replays.kind:KIND",
        "relax": "paracosm.relaxation.kind:KIND",
        "tune": "paracosm.studies.tuning.kind:KIND",
    }
)
"""By the key of the study, which is the verb of the command line too."""

OTHER_ANSWERS: Mapping[str, Answer] = {
    "profile": Answer(ProfileSummary, sentence="paracosm.profiling.view:sentence"),
}
"""How summaries are shown that are not of a kind of run, by their own kinds."""


def answer_to(summary: Summary) -> Answer:
    """Return how a summary is shown."""
    kind = KINDS.get(summary.verb)
    if kind is None:
        return OTHER_ANSWERS.get(summary.kind) or Answer(type(summary))
    return kind.answer_of(summary.kind)
