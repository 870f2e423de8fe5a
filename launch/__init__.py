"""Entry points: ``python -m launch.<name>``. Thin: flags become a config, and the config one call into winobench."""
