"""Runs of every kind to write, those of the viewer's tests."""

from tests.viewer.conftest import viewed

__all__ = ["viewed"]
