"""Commands. Python finds these modules in the package ``launch``, from which they import."""
