"""Flops and bytes of an op that nobody captured, counted as a capture counts them."""

from __future__ import annotations

from dataclasses import replace

from paracosm.errors import InputError
from paracosm.factory import one_line
from paracosm.graphs.op import Op

__all__ = ["counted"]


def counted(op: Op) -> Op:
    """Return the op as the recorder of `graphs.capture` would note it: with its work, in its words.

    It runs once on fake tensors: nothing is computed.

    Raises:
        InputError: PyTorch does not take these arguments.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    from paracosm.graphs.capture.effects import effects_of
    from paracosm.graphs.capture.encode import encode_call
    from paracosm.graphs.capture.work import flops_of, traffic_of
    from paracosm.profiling.instantiate import instantiate, operator_of

    with FakeTensorMode():
        call, function = instantiate(op), operator_of(op)
        arguments = encode_call(function, call.args, call.kwargs, "cpu")
        try:
            outputs = function(*call.args, **call.kwargs)
        except (RuntimeError, TypeError, ValueError, IndexError, ArithmeticError) as error:
            raise InputError(f"{op.name} {op.arguments[:300]}: {one_line(error)}") from None
        effects = effects_of(function, call.args, call.kwargs, outputs)
        read, written = traffic_of(function, effects)
        flops = flops_of(function, call.args, call.kwargs, outputs, effects)
    return replace(op, arguments=arguments, flops=flops, bytes_read=read, bytes_written=written)
