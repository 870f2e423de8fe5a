"""What the tests of tasks share: quick rendering, and stand-ins for spaCy and NLTK."""

import pytest

from tests.tasks import published_layouts
from winobench.clevr import renderer
from winobench.data import published_order, word_order


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Small chunks of rays are quicker for a few scenes."""
    monkeypatch.setattr(renderer, "_RAYS_PER_CHUNK", 1 << 15)
    monkeypatch.setattr(word_order, "spacy_tagger", lambda **_: published_layouts.stand_in_tagger)
    monkeypatch.setattr(published_order, "nltk_tokenizer", lambda: published_layouts.stand_in_tokenizer)
