"""Classes of diffusers whose code JAX can trace only with changes: one file a family."""
