"""Captions with their words in another order: the perturbations of ARO's order tasks, made by us.

ARO (Yuksekgonul et al. 2023, section 2.2) asks whether a model prefers a caption to four reorderings of it. Here they
depend on a seed and the caption alone, and the words of the cleaned caption change places, so that all candidates have
the same words, letter for letter: of ARO's own ("long - haired") some can be recognised by how they are written.
`winobench.data.published_order` makes theirs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence

import numpy as np

from winobench.base.errors import InputError

Tagger = Callable[[str], list[tuple[str, str]]]
"""A text -> its tokens in order, each with its part of speech as a Penn Treebank tag, e.g. ``("dog", "NN")``."""

Shuffle = Callable[[Sequence[str], np.random.Generator], np.ndarray]
"""(tags of n words, generator) -> which word comes at each place, int64 [n]."""

MAX_WORDS = 30
_MAX_DRAWS = 100
NOUNS = frozenset({"NN", "NNS", "NNP", "NNPS"})
ADJECTIVES = frozenset({"JJ", "JJR", "JJS"})
# Tags of tokens that do not decide the tag of their word: hyphens, possessive 's, symbols, closing emoticons.
_NO_HEADS = frozenset({"HYPH", "POS", "SYM", "NFP"})
_REMOVED = re.compile(r'[.!"()*#:;~]')


def shuffle_nouns_and_adjectives(tags: Sequence[str], rng: np.random.Generator) -> np.ndarray:
    """Nouns change places among themselves and adjectives among themselves. All else stays."""
    return _exchanged([[tag in kind for tag in tags] for kind in (NOUNS, ADJECTIVES)], rng)


def shuffle_all_but_nouns_and_adjectives(tags: Sequence[str], rng: np.random.Generator) -> np.ndarray:
    """Nouns and adjectives stay. All other words change places."""
    return _exchanged([[tag not in NOUNS | ADJECTIVES for tag in tags]], rng)


def _exchanged(kinds: Sequence[Sequence[bool]], rng: np.random.Generator) -> np.ndarray:
    order = np.arange(len(kinds[0]))
    for indices in map(np.flatnonzero, kinds):
        order[indices] = rng.permutation(indices)
    return order


def shuffle_within_trigrams(tags: Sequence[str], rng: np.random.Generator) -> np.ndarray:
    """Words change places within each group of three (the last one may be shorter). The groups stay."""
    return np.concatenate([rng.permutation(group) for group in trigrams(len(tags))])


def shuffle_trigrams(tags: Sequence[str], rng: np.random.Generator) -> np.ndarray:
    """Groups of three (the last one may be shorter) change places. Within each, the order stays."""
    groups = trigrams(len(tags))
    return np.concatenate([groups[index] for index in rng.permutation(len(groups))])


PERTURBATIONS: tuple[Shuffle, ...] = (
    shuffle_nouns_and_adjectives,
    shuffle_all_but_nouns_and_adjectives,
    shuffle_within_trigrams,
    shuffle_trigrams,
)
"""The four of ARO, in its order."""


def clean_caption(caption: str) -> str:
    """Lower case, without ``. ! " ( ) * # : ; ~``, with single spaces, as ARO's ``pre_caption`` leaves it."""
    return " ".join(_REMOVED.sub(" ", caption.lower()).split())


def reordered_captions(
    caption: str, tagger: Tagger, *, seed: int = 0, perturbations: Sequence[Shuffle] = PERTURBATIONS
) -> tuple[str, ...]:
    """A caption and its perturbations, cleaned: the right candidate first, then the wrong ones.

    Unlike in ARO, the words of the cleaned caption are shuffled: all candidates have the same words, with their
    hyphens, apostrophes and commas. It is cut to its first 30 words *before* it is shuffled, and a perturbation that
    gives an earlier candidate again (compared without spaces) is resampled, up to 100 times. If too few words differ,
    the candidate is left out: two equal candidates would be a tie that states nothing of the model.
    """
    caption = _first_words(caption)
    tagged = tagged_words(caption, tagger)
    words, tags = [word for word, _ in tagged], [tag for _, tag in tagged]
    candidates = [" ".join(words)]
    seen = {_without_spaces(candidates[0])}
    digest = hashlib.sha256(f"{seed}\n{caption}".encode()).digest()
    for number, shuffle in enumerate(perturbations if words else ()):
        # One stream each, so that a perturbation does not depend on how often another was sampled.
        rng = np.random.default_rng([number, int.from_bytes(digest)])
        for _ in range(_MAX_DRAWS):
            candidate = " ".join(words[index] for index in shuffle(tags, rng))
            if _without_spaces(candidate) not in seen:
                seen.add(_without_spaces(candidate))
                candidates.append(candidate)
                break
    return tuple(candidates)


def tagged_words(caption: str, tagger: Tagger) -> list[tuple[str, str]]:
    """The words of a cleaned caption, each with its part of speech.

    A word of several tokens, such as "long-haired" or "man's", has the tag of its last token that is not punctuation,
    as the head of a compound comes last in English.
    """
    tagged = tagger(caption)
    spans = token_spans(caption, [token for token, _ in tagged])
    words = []
    # Spaces replace removed characters, so that positions stay.
    for word in re.finditer(r"\S+", _REMOVED.sub(" ", caption)):
        tags = [
            tag
            for (start, end), (_, tag) in zip(spans, tagged, strict=True)
            if start < word.end() and end > word.start()
        ]
        heads = [tag for tag in tags if tag[:1].isalpha() and tag not in _NO_HEADS]
        words.append((word[0].lower(), (heads or tags or [""])[-1]))
    return words


def token_spans(text: str, tokens: Sequence[str]) -> list[tuple[int, int]]:
    spans, end = [], 0
    for token in tokens:
        start = text.find(token, end)
        if start < 0:
            raise ValueError(f"the tagger's token {token!r} is not a part of the text {text!r}")
        end = start + len(token)
        spans.append((start, end))
    return spans


def letters(text: str) -> str:
    """The text without spaces and capital letters: equal for captions that most models read alike."""
    return "".join(text.lower().split())


def spacy_tagger(model: str = "en_core_web_sm", *, with_spaces: bool = False) -> Tagger:
    """The tagger that ARO's authors use: spaCy with its small English model, or with another one."""
    try:
        import spacy

        # Not needed for parts of speech, and slow.
        pipeline = spacy.load(model, exclude=["parser", "ner", "lemmatizer"])
    except (ImportError, OSError) as error:
        what = "spaCy" if isinstance(error, ImportError) else f"spaCy's model {model}"
        raise InputError(
            f"the order perturbations need {what}, which is not installed: run `pip install 'winobench[order]'` and"
            f" then `python -m spacy download {model}`",
            code="missing-package",
        ) from None
    return lambda text: [(token.text, token.tag_) for token in pipeline(text) if with_spaces or not token.is_space]


def trigrams(num_tokens: int) -> list[np.ndarray]:
    """The places of groups of three. The last one may be shorter."""
    return [np.arange(start, min(start + 3, num_tokens)) for start in range(0, num_tokens, 3)]


def _first_words(caption: str) -> str:
    """The longest beginning of the caption that has at most 30 words when it is cleaned."""
    words, num_words = caption.split(), 0
    for end, word in enumerate(words):
        num_words += len(clean_caption(word).split())
        if num_words > MAX_WORDS:
            return " ".join(words[:end])
    return " ".join(words)


def _without_spaces(text: str) -> str:
    return text.replace(" ", "")
