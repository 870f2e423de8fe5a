"""Configs of the launchers: one module a config, each with ``get_config``."""
