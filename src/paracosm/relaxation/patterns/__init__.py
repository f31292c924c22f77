"""Which processor updates which rows."""

from paracosm.relaxation.patterns.contiguous import contiguous
from paracosm.relaxation.patterns.coupling import edge_cut, halo_sizes
from paracosm.relaxation.patterns.parse import PATTERNS, Patterns, parse_patterns
from paracosm.relaxation.patterns.pattern import Choice, Pattern, pattern_from_blocks

__all__ = [
    "PATTERNS",
    "Choice",
    "Pattern",
    "Patterns",
    "contiguous",
    "edge_cut",
    "halo_sizes",
    "parse_patterns",
    "pattern_from_blocks",
]
