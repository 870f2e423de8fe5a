"""Torch modules as networks of winobench: they run under JAX, by torchax. Packages that plug in use them."""
