"""Further files of models: single files of the original layout, GGUF, quantised weights, and learned words."""
