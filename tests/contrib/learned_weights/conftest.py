"""Runs of the tests of the report."""

from tests.report.conftest import run_folders, undrawn

__all__ = ["run_folders", "undrawn"]
