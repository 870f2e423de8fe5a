"""Runs in the browser: documents that a static application reads, from a server or from files."""
