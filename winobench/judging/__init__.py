"""People's judgements: pages on this computer on which one person labels what is shown, and the labels on disk."""

from winobench.judging.html import Choice, render
from winobench.judging.labels import Labels, read_labels
from winobench.judging.server import Page, serve

__all__ = ["Choice", "Labels", "Page", "read_labels", "render", "serve"]
