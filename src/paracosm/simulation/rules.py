"""When gradients become updates and when workers go on: what a schedule needs of an algorithm."""

from typing import Literal, NamedTuple

from paracosm.errors import InputError

MOST_PUSHES = 10**7

ANSWERS = ("each", "all", "gathered")


class Rule(NamedTuple):
    """When gathered gradients become an update, and when a worker continues, without values."""

    pushes: int = 1  # how many gradients make an update
    # whom a server answers: every push at once; all workers after an update; those whose gradients
    # went into it
    answers: Literal["each", "all", "gathered"] = "each"
    # whether a gradient is dropped if its tensor was updated since it was read
    drops_late: bool = False
    # how many gradients a worker may be ahead of the slowest one; None: as many as it can
    slack: int | None = None

    @property
    def needs_all(self) -> bool:
        """Whether every update needs a gradient of every worker."""
        return self.answers == "all"


def asgd() -> Rule:
    """Asynchronous SGD: every gradient is an update."""
    return Rule()


def ssgd(workers: int) -> Rule:
    """Synchronous SGD: an update for a gradient of every worker."""
    return Rule(workers, "all")


def ssp(slack: int) -> Rule:
    """Stale synchronous parallel: nobody is more than `slack` gradients ahead of the slowest."""
    return Rule(slack=slack)


def softsync(workers: int, n: int) -> Rule:
    """n-softsync: an update for every W / n gradients; nobody waits for it."""
    return Rule(workers // n)


def fedbuff(k: int) -> Rule:
    """Buffered asynchronous aggregation: an update for every k gradients; nobody waits for it."""
    return Rule(k)


def backup(workers: int, b: int) -> Rule:
    """Synchronous SGD with b backup workers: the first W - b gradients count, late ones do not."""
    return Rule(workers - b, "gathered", drops_late=True)


def rennala(gradients: int) -> Rule:
    """An update for every so many fresh gradients; older ones do not count, nobody waits."""
    return Rule(gradients, drops_late=True)


def check_rule(rule: Rule, workers: int) -> None:
    """Raise InputError unless a rule, which may be of a user's own algorithm, is possible."""
    counts = (rule.pushes, 0 if rule.slack is None else rule.slack, rule.drops_late)
    if not all(isinstance(count, int) for count in counts):
        raise InputError(f"{rule}: pushes and slack are whole numbers, drops_late True or False")
    if not 1 <= rule.pushes <= MOST_PUSHES or counts[1] < 0:
        raise InputError(f"{rule}: pushes is 1 to {MOST_PUSHES:,}, slack 0 or more")
    if rule.answers not in ANSWERS:
        raise InputError(f"{rule}: answers is one of {', '.join(ANSWERS)}")
    is_short = rule.answers == "all" and rule.pushes < workers
    if rule.answers != "each" and (rule.pushes > workers or is_short):
        raise InputError(f"{rule}: waits for {rule.pushes} of other than {workers} workers")
