"""Time families of ops at the shapes of a sampling design, and add them to a profile database.

python examples/papers/offline_profiling/grid.py --ops convolution,addmm --db profiles.db
python examples/papers/offline_profiling/grid.py --ops all --design paper --budget 20min
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from designs import DESIGNS, Design, Limits, design
from families import Family, families_named

from paracosm.errors import InputError
from paracosm.profiling import Profile, ProfileDatabase, Settings, profile
from paracosm.profiling.allocator import restart_pinned
from paracosm.units import parse_duration, parse_number, parse_size

REFUSED = 10  # lines about refused ops


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    families = _families(options.ops, options.batch)
    limits = Limits(parse_size(options.limit), parse_number(options.flops))
    settings = Settings(
        options.device,
        options.threads,
        precision=options.precision,
        budget=parse_duration(options.budget),
        seed=options.seed,
    )
    if options.db.exists():  # refused before anything is drawn
        ProfileDatabase.open(options.db).close()
    made = design(options.design, families, options.values, options.seed, limits, options.dtype)
    if not made.ops:
        raise InputError("no point of the design is within --limit and --flops: raise them")
    with ProfileDatabase.open(options.db, create=True) as database:
        measured = profile(made.ops, settings, f"grid {options.design}", database.add)
    show(made, measured)
    print(options.db)
    return 130 if measured.interrupted else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--ops", required=True, help="families, such as convolution,addmm; or all")
    parser.add_argument("--db", type=Path, default=Path("profiles.db"), help="profile database")
    parser.add_argument("--design", default="model-like", help=", ".join(DESIGNS))
    parser.add_argument(
        "--values",
        type=int,
        default=16,
        help="of each argument in the paper's grid; other designs are as large",
    )
    parser.add_argument("--batch", type=int, help="the only batch size (many)")
    parser.add_argument("--dtype", default="float32", help="of floating-point tensors")
    parser.add_argument("--limit", default="512MB", help="memory that one op may read and write")
    parser.add_argument("--flops", default="2e10", help="floating-point operations of one op")
    parser.add_argument("--device", default="cpu", help="such as cuda:0")
    parser.add_argument("--threads", type=int, default=1, help="threads per op, on the CPU")
    parser.add_argument("--precision", type=float, default=0.01, help="relative standard error")
    parser.add_argument("--budget", default="2min", help="total time")
    parser.add_argument("--seed", type=int, default=0, help="points drawn, order of ops")
    return parser


def _families(text: str, batch: int | None) -> list[Family]:
    families = families_named([name for part in text.split(",") if (name := part.strip())])
    if batch is None:
        return families
    if not any(part.name == "batch" for family in families for part in family.arguments):
        raise InputError(f"--batch has no effect: {text} has no batch")
    return [family.fixed({"batch": batch}) for family in families]


def show(made: Design, measured: Profile) -> None:
    """Print how many points of each family were timed, and what was not."""
    environment = measured.environment
    print(
        f"{environment.hardware}; {environment.framework}; threads {environment.threads}; "
        f"{environment.allocator}"
    )
    print(
        f"design {made.name}: {len(made.ops):,} ops, {len(measured.timings):,} timings, "
        f"{measured.stable:.0%} with a standard error under 1 %"
    )
    family_of = {op: family for op, (family, _) in zip(made.ops, made.points, strict=True)}
    timed = Counter(family_of[op] for op in {timing.op for timing in measured.timings})
    for name, count in Counter(family_of.values()).items():
        left_out = made.left_out.get(name, 0)
        beyond = f", {left_out} beyond the limits" if left_out else ""
        print(f"  {name}: {timed[name]} of {count}{beyond}")
    for op, reason in list(measured.refused.items())[:REFUSED]:
        print(f"not timed: {op.name} {op.arguments[:100]}: {reason[:200]}")
    if len(measured.refused) > REFUSED:
        print(f"and {len(measured.refused) - REFUSED} more")
    if measured.interrupted:
        print("Interrupted: the measurements so far are in the database.")


if __name__ == "__main__":
    restart_pinned()
    try:
        raise SystemExit(main())
    except InputError as error:
        raise SystemExit(f"grid.py: {error}") from None
