"""Weights of timesteps that `winobench report --fit_timesteps` learns from recorded errors."""
