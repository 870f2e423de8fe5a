"""Noise schedules, samplers, and the bundle of text encoder, VAE, denoiser and schedule."""
