"""Text-to-image pipelines of diffusers that have no port: their torch modules run under JAX, by torchax."""
