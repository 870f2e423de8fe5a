"""Runs that generate images or collect them from files, and their page. `winobench.runs.image_runs` reads them."""
