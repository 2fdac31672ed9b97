"""Profiling: what subgraphs cost on processors, measured so that it holds when they run for real."""

from edgeengine.profiling.back_to_back import BACK_TO_BACK, WIDTH, measure_back_to_back
from edgeengine.profiling.budgeted import HANDOVER_NS, Search, best_chain, equivalent
from edgeengine.profiling.candidate import Candidate, candidates_of, shapes_text
from edgeengine.profiling.chain import measure_chains, measure_steps
from edgeengine.profiling.conditions import timestamp, versions
from edgeengine.profiling.features import Configuration
from edgeengine.profiling.machine import Machine, measure_machine
from edgeengine.profiling.predictor import Prediction, Predictor
from edgeengine.profiling.reference import reference_tensors
from edgeengine.profiling.resume import resume
from edgeengine.profiling.roofline import Bound, bound, moved_bytes
from edgeengine.profiling.store import ProfileStore, export_json, read_profile
from edgeengine.profiling.within import measure_within
from edgeengine.spec.profile import PREDICTED

__all__ = [
    "BACK_TO_BACK",
    "HANDOVER_NS",
    "PREDICTED",
    "WIDTH",
    "Bound",
    "Candidate",
    "Configuration",
    "Machine",
    "Prediction",
    "Predictor",
    "ProfileStore",
    "Search",
    "best_chain",
    "bound",
    "candidates_of",
    "equivalent",
    "export_json",
    "measure_back_to_back",
    "measure_chains",
    "measure_machine",
    "measure_steps",
    "measure_within",
    "moved_bytes",
    "read_profile",
    "reference_tensors",
    "resume",
    "shapes_text",
    "timestamp",
    "versions",
]
