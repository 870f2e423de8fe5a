"""Keeps devices busy: items in tables on the device, texts that share work, batch sizes, text states on disk."""
