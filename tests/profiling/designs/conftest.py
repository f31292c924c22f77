"""Where the designs of the paper's reproduction lie."""

import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "examples" / "papers" / "offline_profiling"
sys.path.append(str(EXAMPLE))
