"""Profiling: what subgraphs cost on processors, measured so that it holds when they run for real."""

from edgeengine.profiling.back_to_back import BACK_TO_BACK, measure_back_to_back
from edgeengine.profiling.candidate import Candidate, candidates_of, chain_tensors
from edgeengine.profiling.chain import measure_chains, measure_steps
from edgeengine.profiling.paced import Paced, PacedItem, measure_paced, period_condition
from edgeengine.profiling.store import ProfileStore, export_json

__all__ = [
    "BACK_TO_BACK",
    "Candidate",
    "Paced",
    "PacedItem",
    "ProfileStore",
    "candidates_of",
    "chain_tensors",
    "export_json",
    "measure_back_to_back",
    "measure_chains",
    "measure_paced",
    "measure_steps",
    "period_condition",
]
