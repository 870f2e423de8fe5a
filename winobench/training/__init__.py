"""Training: losses, optimisers, the loop, and the recipe of the embedded model."""
