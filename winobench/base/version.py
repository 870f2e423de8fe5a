"""The version, which `pyproject.toml` names. `.ci/release` changes it."""

__version__ = "0.4.0.dev0"
