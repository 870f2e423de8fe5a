"""Captions of images, and answers to questions about them, by vision-language models: winobench caption."""
