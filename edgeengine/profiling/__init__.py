"""Profiling: what subgraphs cost on processors, measured so that it holds when they run for real."""

from edgeengine.profiling.back_to_back import BACK_TO_BACK, measure_back_to_back
from edgeengine.profiling.candidate import Candidate, candidates_of, chain_tensors, shapes_text, timestamp, versions
from edgeengine.profiling.chain import measure_chains, measure_steps
from edgeengine.profiling.store import ProfileStore, export_json

__all__ = [
    "BACK_TO_BACK",
    "Candidate",
    "ProfileStore",
    "candidates_of",
    "chain_tensors",
    "export_json",
    "measure_back_to_back",
    "measure_chains",
    "measure_steps",
    "shapes_text",
    "timestamp",
    "versions",
]
