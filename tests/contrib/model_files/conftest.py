"""Pipelines of the tests of parity."""

from tests.parity.conftest import folder_of, no_gradients, whole

__all__ = ["folder_of", "no_gradients", "whole"]
