"""The kinds of run: which room has which, and which has more forms of it. Another kind is one entry
here.
"""

from __future__ import annotations

from paracosm.results.kind import Kinds

KINDS = Kinds(
    {
        "train": "paracosm.training.kind:KIND paracosm.planning.kind:TRAIN",
        "plan": "paracosm.planning.kind:KIND",
        "predict": "paracosm.prediction.kind:KIND",
        "emulate": "paracosm.emulation.kind:KIND",
        "replay": "paracosm.replays.kind:KIND",
        "relax": "paracosm.relaxation.kind:KIND",
    }
)
"""By the key of the study, which is the verb of the command line too."""
