"""Trackers of experiments on services: Weights & Biases and Trackio."""
