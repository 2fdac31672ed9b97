"""Results as documents, tables and files."""

from edgeengine.reporting.ensemble import ensemble_rows, miss_interval
from edgeengine.reporting.rows import run_document, task_rows, with_basis
from edgeengine.reporting.run_folder import jobs_csv, write_file, write_run_folder

__all__ = [
    "ensemble_rows",
    "jobs_csv",
    "miss_interval",
    "run_document",
    "task_rows",
    "with_basis",
    "write_file",
    "write_run_folder",
]
