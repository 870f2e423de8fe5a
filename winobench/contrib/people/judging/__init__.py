"""People's judgements: pages on this computer on which one person labels items, and the labels on disk."""

from winobench.contrib.people.judging.html import Choice, render
from winobench.contrib.people.judging.labels import Labels, check_name, read_labels
from winobench.contrib.people.judging.server import Page, page_answer, serve

__all__ = ["Choice", "Labels", "Page", "check_name", "page_answer", "read_labels", "render", "serve"]
