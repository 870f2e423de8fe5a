"""What every package may use: errors, files, options, JSON, the hub, progress and names."""
