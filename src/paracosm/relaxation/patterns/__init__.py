"""Which processor updates which rows."""

from paracosm.relaxation.patterns.contiguous import contiguous
from paracosm.relaxation.patterns.coupling import edge_cut, halo_sizes
from paracosm.relaxation.patterns.parse import PATTERNS, parse_pattern, parse_patterns
from paracosm.relaxation.patterns.pattern import Choice, Pattern, pattern_from_blocks

__all__ = [
    "PATTERNS",
    "Choice",
    "Pattern",
    "contiguous",
    "edge_cut",
    "halo_sizes",
    "parse_pattern",
    "parse_patterns",
    "pattern_from_blocks",
]
