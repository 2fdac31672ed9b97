"""Reports of a run: one page that says in ten seconds why a deadline was missed, and a trace for Perfetto."""

from edgeengine.reporting.report.causes import Explanation, explain
from edgeengine.reporting.report.page import report_html
from edgeengine.reporting.report.perfetto_trace import perfetto_trace
from edgeengine.reporting.report.run import JobRecord, Run, Span, load_run

__all__ = ["Explanation", "JobRecord", "Run", "Span", "explain", "load_run", "perfetto_trace", "report_html"]
