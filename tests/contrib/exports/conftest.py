"""Runs of the tests of the report."""

from tests.report.conftest import run_folders
from tests.report.test_exports import odd_run, text_run

__all__ = ["odd_run", "run_folders", "text_run"]
