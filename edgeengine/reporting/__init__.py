"""Results as documents, tables and files."""

from edgeengine.reporting.ensemble import ensemble_rows, miss_interval
from edgeengine.reporting.files import write_file
from edgeengine.reporting.job_lines import jobs_csv, writing_jobs
from edgeengine.reporting.rows import Tally, run_document, tally, task_rows, with_basis
from edgeengine.reporting.run_folder import write_run_folder, writing_run

__all__ = [
    "Tally", "ensemble_rows", "jobs_csv", "miss_interval", "run_document", "tally", "task_rows", "with_basis", "write_file",
    "write_run_folder", "writing_jobs", "writing_run",
]  # fmt: skip
