"""The published code's own perturbations of captions.

ARO's code, which GDBench's takes over, shuffles nouns and adjectives, or all but them, by spaCy's tokens, and trigrams
by NLTK's. Each is then joined with spaces, cleaned, and cut to 30 words. A perturbation may give the caption again.

Source: mertyg/vision-language-models-are-bows 81fdd20 and McGill-NLP/diffusion-itm 7d5a9c0, ``perturbations.py``,
``aro_datasets.py`` and ``pre_caption``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np

from winobench.base.errors import InputError
from winobench.data.word_order import ADJECTIVES, MAX_WORDS, NOUNS, Tagger, clean_caption, trigrams

Tokenizer = Callable[[str], Sequence[str]]  # a text -> its tokens in order


class PublishedShuffles:
    """A caption -> the caption and its four perturbations.

    Two streams continue from caption to caption, NumPy's for the first two perturbations, Python's for the other two:
    the order of calls matters. ``tagger`` is spaCy's with the tokens that are spaces, ``tokenizer`` NLTK's
    ``word_tokenize``.
    """

    def __init__(self, tagger: Tagger, tokenizer: Tokenizer, *, seed: int = 0):
        self._tagger, self._tokenizer = tagger, tokenizer
        self._numpy, self._python = np.random.RandomState(seed), random.Random(seed)

    def __call__(self, caption: str) -> tuple[str, ...]:
        """Five texts, the caption first. They need not differ."""
        tagged = self._tagger(caption)
        tokens, tags = [token for token, _ in tagged], [tag for _, tag in tagged]
        of_kind = {kind: [index for index, tag in enumerate(tags) if tag in kind] for kind in (NOUNS, ADJECTIVES)}
        others = [index for index, tag in enumerate(tags) if tag not in NOUNS | ADJECTIVES]
        within, across = ([list(group) for group in self._trigrams(caption)] for _ in range(2))
        texts = [self._exchanged(tokens, of_kind[NOUNS], of_kind[ADJECTIVES]), self._exchanged(tokens, others)]
        for group in within:
            self._python.shuffle(group)
        self._python.shuffle(across)
        texts += [[token for group in groups for token in group] for groups in (within, across)]
        return tuple(" ".join(clean_caption(text).split(" ")[:MAX_WORDS]) for text in (caption, *map(" ".join, texts)))

    def _exchanged(self, tokens: Sequence[str], *kinds: Sequence[int]) -> list[str]:
        exchanged = list(tokens)
        for indices in kinds:
            for index, other in zip(indices, self._numpy.permutation(np.array(indices, np.int64)), strict=True):
                exchanged[index] = tokens[other]
        return exchanged

    def _trigrams(self, caption: str) -> list[list[str]]:
        tokens = self._tokenizer(caption)
        return [[tokens[index] for index in group] for group in trigrams(len(tokens))]


def nltk_tokenizer() -> Tokenizer:
    how = "run `pip install 'winobench[order_published]'` and then `python -m nltk.downloader punkt_tab`"
    try:
        import nltk

        nltk.word_tokenize("A sentence.")
    except (ImportError, LookupError) as error:
        what = "NLTK" if isinstance(error, ImportError) else "NLTK's data punkt_tab"
        raise InputError(
            f"the published order perturbations need {what}, not installed here: {how}", code="missing-package"
        ) from None
    return nltk.word_tokenize
