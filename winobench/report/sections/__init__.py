"""Sections of a report, a module each. ``shared`` has their parts, and `winobench.report.page` their order."""
