"""What goes wrong while a computation runs, and how checkpoints repair it."""

from paracosm.faults.bits import BitFlip, ExponentFlip, SignFlip
from paracosm.faults.checkpoint import CheckpointPolicy, advice, parse_checkpoint
from paracosm.faults.detection import DetectionScore, score
from paracosm.faults.fault import Fault, check_fault, fault_times, mean_time_between_faults
from paracosm.faults.intervals import daly_interval, young_interval
from paracosm.faults.model import DataFault, FaultModel, ProcessorFault
from paracosm.faults.monitor import blocks_to_restore, exceeds
from paracosm.faults.parse import parse_fault, parse_faults
from paracosm.faults.perturbation import UniformPerturbation
from paracosm.faults.processor import Stale, Stop
from paracosm.faults.shuffle import Shuffle
from paracosm.faults.when import At, AtRandom, Every, When
from paracosm.faults.where import (
    Count,
    OnProcessor,
    Rows,
    Share,
    Where,
    choose_components,
    choose_processor,
)

__all__ = [
    "At",
    "AtRandom",
    "BitFlip",
    "CheckpointPolicy",
    "Count",
    "DataFault",
    "DetectionScore",
    "Every",
    "ExponentFlip",
    "Fault",
    "FaultModel",
    "OnProcessor",
    "ProcessorFault",
    "Rows",
    "Share",
    "Shuffle",
    "SignFlip",
    "Stale",
    "Stop",
    "UniformPerturbation",
    "When",
    "Where",
    "advice",
    "blocks_to_restore",
    "check_fault",
    "choose_components",
    "choose_processor",
    "daly_interval",
    "exceeds",
    "fault_times",
    "mean_time_between_faults",
    "parse_checkpoint",
    "parse_fault",
    "parse_faults",
    "score",
    "young_interval",
]
