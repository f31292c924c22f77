"""Arrays by the type of their numbers, as annotations name them."""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]  # places in tables and lists
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
