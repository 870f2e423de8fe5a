"""Runs that generate images, and their page. `winobench.runs.image_runs` reads them."""
