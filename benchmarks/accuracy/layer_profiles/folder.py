"""Folders of measured plans: what they would take by the profiles of their layers, beside what they
took.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from layer_profiles.bandwidth import Network, read_network
from layer_profiles.job import plan_job
from layer_profiles.plan import Measured, Plan, read_plan
from layer_profiles.profiles import Profiles, read_profiles
from layer_profiles.sailor import SailorEstimate, estimate_as_sailor
from layer_profiles.sizes import Sizes, read_sizes
from layer_profiles.strategy import plan_strategy
from paracosm.errors import InputError
from paracosm.jobs.strategies import build_job
from paracosm.simulation.memory import peak_memory_of_ranks
from paracosm.simulation.replay import replay_job
from paracosm.simulation.static import JobSchedule

__all__ = ["Folder", "PlanComparison", "compare_plan", "read_folder"]

PROFILES, SIZES = "profiles_tmp.json", "llm_info.json"
NETWORK = "providers/multizone_bandwidths_het.json"
ALIKE = "providers/multizone_bandwidths.json"  # of GPUs of one kind, of which it has more


@dataclass(frozen=True)
class PlanComparison:
    """A plan as it was measured, as it is predicted, and as Sailor's simulator predicts it.

    Attributes:
        cluster: the folder's name in which those of models are.
        model: the name of the folder in which those of plans are.
        plan: what runs where.
        measured: what it took.
        iteration: seconds.
        all_reduce: seconds of the longest all-reduce of gradients; 0 where there is none.
        memory: bytes on the fullest GPU.
        overlapped: seconds of an iteration by the strategies (`plan_strategy`), whose messages
            do not keep anybody from computing; None where they cannot say it.
        sailor: Sailor's; None where the files lack what its formulas need.
    """

    cluster: str
    model: str
    plan: Plan
    measured: Measured
    iteration: float
    all_reduce: float
    memory: float
    overlapped: float | None
    sailor: SailorEstimate | None


@dataclass(frozen=True)
class Folder:
    """What a folder holds.

    Attributes:
        comparisons: by cluster, model, number of GPUs and name.
        left_out: why a file was not used, by its path within the folder.
    """

    comparisons: tuple[PlanComparison, ...]
    left_out: Mapping[str, str]


def read_folder(path: Path, overhead: float | None = None) -> Folder:
    """Predict every plan below `validation/CLUSTER/MODEL/` in a folder.

    Args:
        path: of profiles (profiles_tmp.json), sizes (llm_info.json), bandwidths
            (providers/multizone_bandwidths_het.json; multizone_bandwidths.json completes it) and
            plans (validation/**/plan*.json).
        overhead: bytes on each GPU besides what the layers need, as in `plan_job`.

    Raises:
        InputError: it is no folder, one of the three files cannot be used, or no plan can; with the
            first plan's reason.
    """
    if not path.is_dir():
        raise InputError(f"{path}: no such folder")
    profiles, sizes = read_profiles(path / PROFILES), read_sizes(path / SIZES)
    alike = [path / ALIKE] if (path / ALIKE).exists() else []
    network = read_network(path / NETWORK, *alike)
    comparisons: list[PlanComparison] = []
    left_out: dict[str, str] = {}
    for file in sorted((path / "validation").rglob("plan*.json")):
        try:
            cluster, model = _names(file.relative_to(path / "validation"))
            plan = read_plan(file)
            comparisons.append(
                compare_plan(cluster, model, plan, profiles, sizes, network, overhead)
            )
        except InputError as error:
            reason = str(error).removeprefix(str(file)).lstrip(":, ")
            left_out[str(file.relative_to(path))] = reason.replace(f"{path}/", "")
    if not comparisons:
        told = "; ".join(f"{file}: {reason}" for file, reason in list(left_out.items())[:1])
        more = f": {told}" if told else ""
        raise InputError(f"{path}: no measured plan (validation/CLUSTER/MODEL/**/plan*.json){more}")
    comparisons.sort(key=lambda each: (each.cluster, each.model, each.plan.gpus, each.plan.name))
    return Folder(tuple(comparisons), left_out)


def compare_plan(
    cluster: str,
    model: str,
    plan: Plan,
    profiles: Profiles,
    sizes: Sizes,
    network: Network,
    overhead: float | None = None,
) -> PlanComparison:
    """Predict one plan and compare it with what it took.

    Raises:
        InputError: nobody says what it took, or what it needs is not in the files.
    """
    if plan.measured is None:
        raise InputError(f"{plan.name}: lacks real, the seconds of an iteration")
    schedule = replay_job(plan_job(plan, model, profiles, sizes, network, overhead))
    return PlanComparison(
        cluster=cluster,
        model=model,
        plan=plan,
        measured=plan.measured,
        iteration=schedule.makespan,
        all_reduce=_longest(schedule, "all-reduce"),
        memory=float(peak_memory_of_ranks(schedule).max()),
        overlapped=_overlapped(plan, model, profiles, sizes, network),
        sailor=_as_sailor(plan, model, profiles, sizes, network),
    )


def _overlapped(
    plan: Plan, model: str, profiles: Profiles, sizes: Sizes, network: Network
) -> float | None:
    """Return the iteration of a plan by the strategies; None where they do not take it."""
    try:
        return replay_job(build_job(*plan_strategy(plan, model, profiles, sizes, network))).makespan
    except InputError:
        return None


def _as_sailor(
    plan: Plan, model: str, profiles: Profiles, sizes: Sizes, network: Network
) -> SailorEstimate | None:
    """Return what Sailor's simulator says; None where it needs what is not there."""
    try:
        return estimate_as_sailor(plan, model, profiles, sizes, network)
    except InputError:
        return None


def _names(file: Path) -> tuple[str, str]:
    """Return cluster and model of "clariden/OPT-350/N4/plan_config_N4_D2.json"."""
    if len(file.parts) < 3:
        raise InputError("does not stand in a folder of a cluster and of a model")
    return file.parts[0], file.parts[1]


def _longest(schedule: JobSchedule, name: str) -> float:
    """Return the longest time, without waiting, of the tasks of a name; 0 where there are none."""
    job = schedule.job
    if name not in job.names:
        return 0.0
    longest = 0.0
    for rank in schedule.representative.tolist():
        tasks = schedule.tasks_of(rank)
        chosen = job.programs[job.program[rank]].name == job.names.index(name)
        took = (schedule.end[tasks] - schedule.begin[tasks])[chosen]
        longest = max(longest, float(took.max(initial=0.0)))
    return longest
