"""Where an error of the user's code comes from."""

import pyarrow
import pytest

from paracosm.factory import users_place


def test_frames_of_a_compiled_library_are_not_the_users() -> None:
    """Cython names a file where PyArrow was compiled, which lies in no folder of libraries."""
    with pytest.raises(KeyError) as raised:
        _ = pyarrow.table({"a": [1]})["b"]
    assert str(raised.traceback[-1].path).endswith(".pxi")
    place = users_place(raised.value)
    assert place is not None
    assert place.file == __file__
    assert place.raises
