"""The clock of simulations that share a network: whole picoseconds, in 64 bits."""

LAST_INSTANT = 2**63 - 1
"""Picoseconds, 106 days; what would be later is there too."""

PICOSECONDS = 1e12
"""A second."""

FAR = 9.2e18
"""Picoseconds that are safely in 64 bits as a float."""

FORGIVEN = 1 / 1024
"""Picoseconds: rounding errors must not cost a whole one."""


def whole_instant(since: int, lasts: float) -> int:
    """Return the first whole picosecond `lasts` after `since`; the last instant if that is far."""
    lasts = max(0.0, lasts)
    if not lasts < FAR - since:
        return LAST_INSTANT
    whole = int(lasts)
    return since + whole + (lasts - whole > FORGIVEN)
