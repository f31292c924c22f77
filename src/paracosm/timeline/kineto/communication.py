"""Communication by name: of calls of torch.distributed, and of the kernels of many libraries."""

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from paracosm.errors import InputError, unknown

MESSAGES = ("send", "recv")
"""Kinds of point-to-point operations: the two ends of a message."""

HOST_BACKENDS = ("gloo", "mpi", "ucc")
"""Backends of torch.distributed that mark what they do on the host by ranges: "gloo:all_reduce"."""

ONE_SIDED = "one_sided"
"""What one rank does alone with the memory of another one, which does not wait for it."""

# What torch.distributed, NCCL and libraries like it call their collectives.
_COLLECTIVES = {
    "allreduce": "all_reduce",
    "reducescatter": "reduce_scatter",
    "allgather": "all_gather",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all",
    "sendrecv": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "send": "send",
    "recv": "recv",
    "barrier": "barrier",
}
KINDS = frozenset(_COLLECTIVES.values())
"""Kinds of collectives, and the two of messages."""

_VARIANT = re.compile("base|coalesced|into|single$|tensor$|anysource|^sparse")
_MARKED = re.compile(rf"(?:c10d::|(?:{'|'.join(HOST_BACKENDS)}):)")
_LONGEST_FIRST = sorted(_COLLECTIVES, key=len, reverse=True)

# Words of libraries in front of the kernel's own name, and the kinds that they have beside the
# names above; "" for kernels that only prepare communication on their own device.
_EXPERTS = (("layout|permute|preprocess", ""), ("barrier", "barrier"), ("", "all_to_all"))
_SHMEM = (
    *(("barrier|sync|quiet", "barrier"), ("alltoall", "all_to_all"), ("broadcast", "broadcast")),
    *(("reducescatter", "reduce_scatter"), ("reduce|rdxn", "all_reduce")),
    *(("collect|allgather", "all_gather"), ("", ONE_SIDED)),
)
_PACKAGES: Sequence[tuple[str, Sequence[tuple[str, str]]]] = (
    # DeepSeek's DeepEP and its hybrid branch, AMD's MoRI, Perplexity's kernels, MSCCL++'s.
    ("deep_ep|hybrid_ep|mori::|mori_|pplx|mscclpp::ep::|uccl", _EXPERTS),
    ("ep(dispatch|combine)(intra|inter)node", _EXPERTS),
    ("moe_?(a2a|alltoall)", (("prepare", ""), ("", "all_to_all"))),  # TensorRT-LLM, FlashInfer
    ("nvshmem|roc_?shmem|ishmem|xshmem", _SHMEM),
    (r"(barrier|sync|alltoall|broadcast|rdxn|fcollect|reducescatter)\w*_on_stream_kernel", _SHMEM),
    ("cross_device_reduce_", (("", "all_reduce"),)),  # vLLM, SGLang, AITER
    ("quickreduce|allreduce_prototype_", (("", "all_reduce"),)),
    # FlashInfer and TensorRT-LLM: with a norm and quantization in one kernel, also in MoE layers.
    ("allreduce_?fusion", (("", "all_reduce"),)),
    ("(one|two)_?shot_?(all_?reduce|reduce_?scatter|all_?gather|all_?to_?all)", ()),
    ("(hybridcubemesh|lowprecision|lamport\\w*|multimem_\\w*)_?all_?reduce", (("", "all_reduce"),)),
    ("multimem_", (("gather", "all_gather"), ("scatter", "reduce_scatter"), ("", "all_reduce"))),
    # Symmetric memory of PyTorch, userbuffers of TransformerEngine, halos of Apex.
    ("(put|wait)_signal_kernel|push_pull_halos", (("", ONE_SIDED),)),
    (
        "k?userbuffers_",
        (
            *(("_rs|reducescatter", "reduce_scatter"), ("_ag|allgather", "all_gather")),
            *(("alltoall", "all_to_all"), ("push|pull|inc|dec", ONE_SIDED), ("", "all_reduce")),
        ),
    ),
    # Libraries whose kernels have the names of NCCL's collectives.
    ("nccl|rccl|msccl|hccl|hcom_|xccl|oneccl|cncl|mccl|flagcx|turbomind::comm|ucc_", ()),
)
_KNOWN = tuple(
    (re.compile(rf"(?<![a-z])(?:{package})"), tuple((re.compile(k), kind) for k, kind in kinds))
    for package, kinds in _PACKAGES
)

_ALIKE = re.compile(
    r"all_?reduce|reduce_?scatter|all_?gather|all_?to_?all|send_?recv|shmem|p2p|multimem"
    r"|(?<![a-z])(a2a|comm|ring|peer|remote|nvlink|xgmi|rdma)_|_(comm|peer|rdma)(?![a-z])"
)
_NOT_ALIKE = re.compile(r"(block|warp|thread|cta|group|wave|lane)s?_?all_?reduce")

_NAMESPACE = re.compile(r"\((anonymous namespace)\)|<unnamed>")


def _own_name(kernel: str) -> str:
    """Return the name of a kernel, in small letters, without its arguments and what it returns."""
    name = _NAMESPACE.sub("", kernel).removeprefix("void ")
    return re.split(r"[<(]", name, maxsplit=1)[0].lower()


@cache
def collective_of(name: str) -> str:
    """Return the kind of a collective by the name of its kernel or call; "" for any other name.

    For kernels of known libraries with an unspecific name (`ncclDevKernel_Generic`) it is
    "collective", and `ONE_SIDED` for those with which a rank waits for no other one.
    """
    letters = re.sub(r"[^a-z]", "", _MARKED.sub("", name, count=1).lower())
    plain = _COLLECTIVES.get(_VARIANT.sub("", letters), "")
    if plain:
        return plain
    own = _own_name(name)
    for package, kinds in _KNOWN:
        if (match := package.search(own)) is None:
            continue
        rest = own[match.start() :]
        for words, kind in kinds:
            if words.search(rest):
                return kind
        letters = re.sub(r"[^a-z]", "", rest)
        is_call = letters.startswith(("nccl", "rccl", "msccl")) and "kernel" not in letters
        otherwise = "" if is_call else "collective"
        return next((_COLLECTIVES[word] for word in _LONGEST_FIRST if word in letters), otherwise)
    return ""


@cache
def looks_like_communication(kernel: str) -> bool:
    """Whether the name of a kernel that no library here is known to have has words of one."""
    plain = _own_name(kernel)
    return _ALIKE.search(plain) is not None and _NOT_ALIKE.search(plain) is None


def is_on_gloo_thread(name: str) -> bool:
    """Whether a range is on the thread of gloo that communicates, not on the one that called it."""
    return name.startswith("gloo:") and collective_of(name) not in MESSAGES


@dataclass(frozen=True)
class NamedKernels:
    """What the user says of kernels by patterns, before what their names say; the first counts."""

    patterns: tuple[tuple[str, str], ...] = ()  # a pattern in small letters, and a kind

    def matches(self, pattern: str, name: str) -> bool:
        """Whether a pattern is that of a name, or of it without namespaces and arguments."""
        if "*" not in pattern:
            return pattern in name.lower()
        plain = _own_name(name)
        names = (name.lower(), plain, plain.rpartition("::")[2])
        return any(fnmatch.fnmatchcase(name, pattern) for name in names)

    def kind_of(self, name: str) -> str:
        for pattern, kind in self.patterns:
            if self.matches(pattern, name):
                return "" if kind == NONE else kind
        return collective_of(name)

    def says(self, name: str) -> bool:
        """Whether a pattern is about a name."""
        return any(self.matches(pattern, name) for pattern, _ in self.patterns)


NONE = "none"

BY_NAME = NamedKernels()
"""Nothing beside what names say."""


def named_kernels(texts: Sequence[str]) -> NamedKernels:
    """Return what texts say: "my_ring*", "my_ring*=all_reduce", "ring_attention=none".

    Raises:
        InputError: there is no pattern, or no such kind.
    """
    kernels = []
    for text in texts:
        pattern, equals, kind = (part.strip() for part in text.rpartition("="))
        if not equals:
            pattern, kind = kind, "collective"
        if not pattern.strip("*"):
            raise InputError(
                f'communication "{text}": give a part of the names of kernels, "my_ring*", or with '
                'the kind, "my_ring*=all_reduce"'
            )
        kinds = [*sorted(KINDS - set(MESSAGES)), "collective", ONE_SIDED, NONE]
        if kind not in kinds:
            raise InputError(f'communication "{text}": {unknown("kind", kind, kinds)}')
        kernels.append((pattern.lower(), kind))
    return NamedKernels(tuple(kernels))
