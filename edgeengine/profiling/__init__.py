"""Profiling: what subgraphs cost on processors, measured so that it holds when they run for real."""

from edgeengine.profiling.back_to_back import BACK_TO_BACK, measure_back_to_back
from edgeengine.profiling.budgeted import HANDOVER_NS, Search, best_chain, equivalent
from edgeengine.profiling.candidate import Candidate, candidates_of, chain_tensors, shapes_text, timestamp, versions
from edgeengine.profiling.chain import measure_chains, measure_steps
from edgeengine.profiling.features import Configuration
from edgeengine.profiling.predictor import Prediction, Predictor
from edgeengine.profiling.store import ProfileStore, export_json
from edgeengine.profiling.within import PREDICTED, measure_within

__all__ = [
    "BACK_TO_BACK",
    "HANDOVER_NS",
    "PREDICTED",
    "Candidate",
    "Configuration",
    "Prediction",
    "Predictor",
    "ProfileStore",
    "Search",
    "best_chain",
    "candidates_of",
    "chain_tensors",
    "equivalent",
    "export_json",
    "measure_back_to_back",
    "measure_chains",
    "measure_steps",
    "measure_within",
    "shapes_text",
    "timestamp",
    "versions",
]
