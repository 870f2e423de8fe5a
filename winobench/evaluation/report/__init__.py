"""Reports on finished runs: one self-contained page, and a PNG and a CSV file behind each figure and table."""

from winobench.evaluation.report.page import write_report

__all__ = ["write_report"]
