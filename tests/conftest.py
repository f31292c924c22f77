"""What holds for all tests."""

from hypothesis import settings

# A first example may compile a kernel, and the machine may be busy: time is no reason to fail.
settings.register_profile("paracosm", deadline=None)
settings.load_profile("paracosm")
