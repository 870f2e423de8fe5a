"""Networks in Flax NNX with the attribute names, configs and weights of their published torch originals."""
