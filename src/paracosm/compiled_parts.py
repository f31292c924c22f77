"""What compiled functions alone call: code that is linked into its callers', and only there
optimised and turned into instructions. Numba would do both for each function, with all that it
calls, as it does for those that Python calls; of nested functions that takes longer than all else.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import binding, ir
from numba.core import codegen, compiler

_Library: Any = codegen.JITCodeLibrary  # Numba is not typed
_Compiler: Any = compiler.Compiler
_parse: Any = binding.parse_assembly


class PartLibrary(_Library):  # type: ignore[misc]
    """The code of a part, which nobody can call by its address."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        # Numba writes to these, as it does where a function has instructions.
        environments: Any = ir.Module(name=self.name)
        for variable in self._final_module.global_variables:
            if variable.name.startswith("_ZN08NumbaEnv"):
                pointer = ir.IntType(8).as_pointer()
                made = ir.GlobalVariable(environments, pointer, variable.name)
                made.linkage = "common"
                made.initializer = ir.Constant(pointer, None)
        self._codegen._add_module(_parse(str(environments)))
        self._codegen._engine.finalize_object()
        self._finalized = True

    def serialize_using_object_code(self) -> Any:
        """Return what is kept on disk: what callers are linked with."""
        return self.serialize_using_bitcode()


class PartCompiler(_Compiler):  # type: ignore[misc]
    """Numba's compiler of a part."""

    def __init__(self, typing: Any, target: Any, library: Any, *others: Any) -> None:
        if library is None:
            library = PartLibrary(target.codegen(), "part")
        super().__init__(typing, target, library, *others)


@contextmanager
def loading_parts(target: Any) -> Iterator[None]:
    """Let what is loaded meanwhile be parts."""
    codegen = target.codegen()
    codegen._library_class = PartLibrary
    try:
        yield
    finally:
        del codegen._library_class
