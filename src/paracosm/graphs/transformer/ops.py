"""Ops of a transformer with their work: flops, and bytes that go in and out of memory.

Numbers have two bytes (half precision), those in float8 one, masks of dropout one.
"""

from dataclasses import dataclass

from paracosm.graphs.flops import attention_flops
from paracosm.graphs.graph import Op, TensorArgument, encode_arguments

HALF = 2
"""Bytes of a number in half precision."""

FLASH = "aten._scaled_dot_product_flash_attention"
GROUPED = "aten._grouped_mm.default"
_COLLECTIVE = "_c10d_functional."

Kept = tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Step:
    """An op at its place in the layer."""

    place: str  # "attention.qkv"
    op: Op  # a collective communicates
    # bytes of each result that the backward pass needs, and the place whose backward pass is the
    # last to need it; "" where the next layer's first norm is
    kept: Kept = ()
    during: int = 0  # bytes that it takes while it is computed
    handed: int = 0  # bytes of its result that the next op alone needs
    gradient: int = 0  # bytes of the gradient of weights that it makes
    of_weights: bool = False  # whether nothing but the optimizer waits for it
    overlaps: bool = False  # whether the next step overlaps it, and the one after waits for both
    beside: bool = False  # whether what the step before overlaps goes on beside the next one, too


def product(rows: int, columns: int, inner: int, batch: int = 1, *, float8: str = "") -> Op:
    """Return a matrix product, or `batch` of them: [rows, inner] times [inner, columns].

    `float8` says how numbers of one byte are scaled; empty for those of two.
    """
    shapes: list[tuple[int, ...]] = [(rows, inner), (inner, columns)]
    if batch > 1:
        shapes = [(batch, *shape) for shape in shapes]
    dtype, size = ("float8_e4m3fn", 1) if float8 else ("float16", HALF)
    name = "aten._scaled_mm.default" if float8 else "aten.mm.default"
    return Op(
        "aten.bmm.default" if batch > 1 else name,
        encode_arguments(
            [TensorArgument(shape, dtype) for shape in shapes],
            {"scaling": float8} if float8 else {},
        ),
        flops=2 * batch * rows * columns * inner,
        bytes_read=size * batch * inner * (rows + columns),
        bytes_written=HALF * batch * rows * columns,
    )


def grouped_product(
    rows: int, columns: int, inner: int, groups: int, *, float8: str = "", of_weights: bool = False
) -> Op:
    """Return products of `rows` rows in all with the matrices of `groups` experts.

    With `of_weights` groups divide what is summed over, `inner`, and each makes a matrix: the
    gradients of the experts' weights.
    """
    shapes = [(rows, inner), (inner, columns) if of_weights else (groups, inner, columns)]
    dtype, size = ("float8_e4m3fn", 1) if float8 else ("float16", HALF)
    read = rows + columns if of_weights else rows + groups * columns
    return Op(
        GROUPED,
        encode_arguments(
            [TensorArgument(shape, dtype) for shape in shapes],
            ({"scaling": float8} if float8 else {}) | ({"groups": groups} if of_weights else {}),
        ),
        flops=2 * rows * columns * inner,
        bytes_read=size * inner * read,
        bytes_written=HALF * rows * columns * (groups if of_weights else 1),
    )


def flash(
    batch: int,
    heads: int,
    kv_heads: int,
    queries: int,
    keys: int,
    width: int,
    *,
    backward: bool,
    causal: bool = True,
    value_width: int = 0,
) -> Op:
    """Return attention that keeps its scores on chip, of which it computes half if it is causal.

    Values are as wide as keys where nothing else is said. Its bytes are those of queries, keys,
    values and output, and backward of their gradients.
    """
    of_values = value_width or width
    shapes = (
        (batch, heads, queries, width),
        (batch, kv_heads, keys, width),
        (batch, kv_heads, keys, of_values),
    )
    of_queries, result = (
        HALF * batch * heads * queries * per_head for per_head in (width, of_values)
    )
    of_keys = HALF * batch * kv_heads * keys * (width + of_values)
    return Op(
        f"{FLASH}{'_backward' if backward else ''}.default",
        encode_arguments([TensorArgument(shape, "float16") for shape in shapes], {}),
        flops=attention_flops(shapes[0], keys, of_values, causal=causal, backward=backward),
        bytes_read=of_queries + of_keys + (2 * result if backward else 0),
        bytes_written=of_queries + of_keys if backward else result,
    )


def streaming(name: str, read: int, written: int) -> Op:
    """Return an op that passes over its tensors once; `read` and `written` are bytes."""
    size = TensorArgument((max(read, written) // HALF,), "float16")
    return Op(name, encode_arguments([size], {}), bytes_read=read, bytes_written=written)


def launches(name: str, kernels: int, size: int) -> Op:
    """Return so many small ops, each of which reads and writes `size` bytes, as one."""
    arguments = encode_arguments([TensorArgument((size // 4,), "float32")], {"kernels": kernels})
    return Op(name, arguments, bytes_read=kernels * size, bytes_written=kernels * size)


def all_reduce(size: int) -> Op:
    """Return the sum of a vector of `size` bytes over the ranks that share a layer."""
    return _collective("all_reduce", size, size, "tensor")


def all_gather(size: int, ranks: int, group: str = "tensor") -> Op:
    """Return the exchange after which each of `ranks` has all of a vector of `size` bytes."""
    return _collective("all_gather_into_tensor", size // ranks, size, group)


def reduce_scatter(size: int, ranks: int, group: str = "tensor") -> Op:
    """Return the sum of a vector of `size` bytes, of which each of `ranks` gets a part."""
    return _collective("reduce_scatter_tensor", size, size // ranks, group)


def all_to_all(size: int, group: str = "expert") -> Op:
    """Return an exchange in which each rank sends `size` bytes to the others, of those that share
    experts where nothing else is said."""
    return _collective("all_to_all_single", size, size, group)


def permute(size: int) -> Op:
    """Return a step around the ring of the ranks that share a sequence."""
    return _collective("permute_tensor", size, size, "context")


def _collective(name: str, read: int, written: int, group: str) -> Op:
    tensor = TensorArgument((max(read, 1),), "uint8")
    arguments = encode_arguments([tensor], {"group": group})
    return Op(f"{_COLLECTIVE}{name}.default", arguments, bytes_read=read, bytes_written=written)
