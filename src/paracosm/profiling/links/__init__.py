"""How long data takes from memory to memory here: copies, and collectives between processes."""

from paracosm.profiling.links.measure import LinkSettings, measure_links, rows, write_table

__all__ = ["LinkSettings", "measure_links", "rows", "write_table"]
