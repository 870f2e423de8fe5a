"""Rubrics of generative benchmarks: the questions to a judge about each image, and the scores of answers."""
