"""Configs. Python finds these modules in the package ``configs``, from which they import."""
