"""Formats of `winobench export` for other programs: one module each."""
