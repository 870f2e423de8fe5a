"""What a report says, a module a section; ``shared`` has what they are made of, `winobench.report.page` their order."""
