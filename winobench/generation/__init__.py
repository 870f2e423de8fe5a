"""Runs that generate images, and their page. What they leave behind is read by `winobench.runs.image_runs`."""
