"""Categories of spans, as files have them, and what they mean.

Kineto writes one for each of its `ActivityType`s, and every accelerator has its own: `kernel` and
`gpu_memcpy` for CUDA, HIP and XPU, `mtia_ccp_events`, `privateuse1_driver`, .... A category that is
not known is taken by where its spans are: those on a stream or a device are work of a device.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

CATEGORIES = ("op", "annotation", "runtime", "kernel", "copy", "memset", "sync", "other")
"""An op on the host; a range that the program or the profiler names; a call of the device's runtime
or driver; what runs on the device: a kernel, a copy, a memset; a wait that the profiler has seen
(kind and streams are in `synchronisations`); anything else on the host."""

ON_DEVICE = ("kernel", "copy", "memset", "sync")

ON_STREAM = "gpu_user_annotation"
"""A range of the host once more, from the first to the last kernel that it has launched to a
stream: of these only steps count."""

_CATEGORY_OF = {
    "cpu_op": "op",
    "operator": "op",
    "user_annotation": "annotation",
    ON_STREAM: "annotation",
    "runtime": "runtime",
    "hpu_op": "runtime",
    "kernel": "kernel",
    "concurrent_kernel": "kernel",
    "collective_comm": "kernel",
    "mtia_ccp_events": "kernel",
    "gpu_memcpy": "copy",
    "memcpy": "copy",
    "gpu_memset": "memset",
    "memset": "memset",
    "cuda_sync": "sync",
    "xpu_sync": "sync",
    "cuda_event": "other",
    "mtia_workloadd": "other",
}
"""Category in the file, in small letters: up to 2021 "Operator", "Kernel", since then "cpu_op"."""

_OF_RUNTIME = re.compile(r"\w+_(runtime|driver)$")  # of CUDA, HIP, XPU, MTIA, PrivateUse1, ...

_PASSED_OVER = frozenset(
    (
        *("trace", "python_function", "overhead", "cpu_instant_event"),
        *("external_correlation", "cuda_profiler_range", "gpu_pm_counter", "mtia_counters"),
    )
)
"""What takes no time of a program, or is there a second time."""

_COPIES = re.compile(r"\W*(?:\w*?mem|d2d|h2d|d2h)_?(cpy|copy|set|move)", re.IGNORECASE)


class Category(NamedTuple):
    """What a span is."""

    name: str  # one of `CATEGORIES`; "" for what is passed over
    known: bool  # whether its category is
    always: bool  # whether all spans of that category are the same


def category_of(word: Any, name: Any, place: Any, arguments: Mapping[str, Any]) -> Category:
    """Return what a span is, by its category or None, its name, its thread ("tid"), arguments."""
    small = "" if word is None else str(word).lower()
    if small in _PASSED_OVER:
        return Category("", True, True)
    if (known := _CATEGORY_OF.get(small)) is not None:
        return Category(known, True, True)
    is_call = _OF_RUNTIME.match(small) is not None
    # Backends of third parties have only these two categories, for their calls and their kernels.
    is_mixed = small.startswith("privateuse1")
    on_device = "stream" in arguments or "device" in arguments or str(place).startswith("stream ")
    if is_call and not (is_mixed and on_device):
        return Category("runtime", True, not is_mixed)
    if not on_device:
        return Category("other", False, False)
    copies = _COPIES.match(str(name))
    if copies is None:
        return Category("kernel", is_mixed, False)
    return Category("memset" if copies[1].lower() == "set" else "copy", is_mixed, False)
