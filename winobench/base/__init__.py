"""Base modules for every package: errors, files, options, JSON, the hub, progress and names."""
