"""Whether what a caption says of a CLEVR-like image holds for a list of objects.

All captions of `clevr_captions` and `clevr_questions` are understood, with any of an object's attributes wherever they
name one, and so are bare numbers ("Two large red cubes."):

    A large red metal cube and a blue sphere.             two different objects. More may be there
    On the left is a red cube and on the right is a ...   the centre is in that half of the image
    There is a red cube, a blue sphere and a ...          as many different objects
    There are three cubes. Two red objects.               exactly so many, whatever else is there
    The red cube is left of the blue sphere.              also right of, in front of, behind. Larger, smaller than
    The red cube is behind both the ... and the ...
    There is no red cube.
    All cubes are red. Some cubes are red and some are not. No cube is red.

"The red cube" must be the only one. "All cubes" needs at least one cube; "no cube is red" none. Of sizes there are two
classes, so an object is larger than another only if it is large and the other small.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from winobench.base import options
from winobench.base.errors import InputError
from winobench.clevr.objects import ATTRIBUTES, SceneObject
from winobench.clevr.questions import NUMBERS

Holds = Callable[[Sequence[SceneObject]], bool]


class Kind(NamedTuple):
    """What a phrase says of one object; None where it states nothing.

    Attributes:
      shape: or any ("object").
      color: of the object.
      size: of the object.
      material: of the object.
      side: ``left`` or ``right`` half of the image.
    """

    shape: str | None = None
    color: str | None = None
    size: str | None = None
    material: str | None = None
    side: str | None = None

    def fits(self, thing: SceneObject, margin: float = 0.0) -> bool:
        """Whether an object is so; ``margin`` as in `holds`."""
        if any(getattr(self, name) not in (None, getattr(thing, name)) for name in ATTRIBUTES):
            return False
        offset = 2.0 * thing.right - 1.0
        return self.side is None or (offset < -margin if self.side == "left" else offset > margin)


# A phrase of one object: attributes in the order of `clevr_captions`, then the shape or "object".
_WORDS = "|".join(word for values in ATTRIBUTES.values() for word in values)
_ONE = rf"((?:(?:{_WORDS}) )*(?:cube|sphere|cylinder|object))"
_MANY = rf"{_ONE[:-1]}s)"
_ITEM = rf"(?:on the (left|right) is )?an? {_ONE}"
_LIST = rf"(?:there is )?{_ITEM}(?:(?:, (?:and )?| and ){_ITEM})*"
_COLORS = f"({'|'.join(ATTRIBUTES['color'])})"
_COUNTS = {"one": 1, **{word: number for number, word in NUMBERS.items()}}

# Direction in words -> whether the first object is so from the second.
_RELATIONS: dict[str, Callable[[SceneObject, SceneObject], bool]] = {
    "left of": lambda one, other: one.right < other.right,
    "right of": lambda one, other: one.right > other.right,
    "in front of": lambda one, other: one.depth < other.depth,
    "behind": lambda one, other: one.depth > other.depth,
    "larger than": lambda one, other: (one.size, other.size) == ("large", "small"),
    "smaller than": lambda one, other: (one.size, other.size) == ("small", "large"),
}


def holds(caption: str, objects: Sequence[SceneObject], *, margin: float = 0.0) -> bool:
    """Whether a caption is true of an image in which these objects are, and no others.

    Args:
      caption: as above, in any case, with or without the full stop.
      objects: of the image.
      margin: how far from the middle, in halves of the image, a centre must be to be "on the left" or "on the right".
        With 0 every object is on one side. The captions of scenes say it from 0.14 on.

    Raises:
      InputError: the caption is none of these.
    """
    return parse(caption, margin=margin)(objects)


def parse(caption: str, *, margin: float = 0.0) -> Holds:
    """The caption as a function of the objects. Arguments and errors as in `holds`."""
    text = " ".join(caption.lower().split()).removesuffix(".") if isinstance(caption, str) else ""
    for pattern, meaning in _FORMS:
        if match := re.fullmatch(pattern, text):
            return meaning(match, margin)
    raise InputError(
        f"the caption {options.shown(caption)} is not one of those about CLEVR scenes that winobench.clevr.claims"
        " lists: word it as they are"
    )


def kind(words: str, side: str | None = None) -> Kind:
    """Reads "large red cube", "red cubes", "object"."""
    found = {}
    for word in words.split():
        for name, values in ATTRIBUTES.items():
            if word in values or word.removesuffix("s") in values:
                found[name] = word if word in values else word.removesuffix("s")
    return Kind(**found, side=side)


def count(wanted: Kind, objects: Iterable[SceneObject], margin: float = 0.0) -> int:
    """How many objects are of a kind."""
    return sum(wanted.fits(thing, margin) for thing in objects)


def all_there(wanted: Sequence[Kind], objects: Sequence[SceneObject], margin: float = 0.0) -> bool:
    """Whether there is an object for each kind, and no object for two of them."""
    if not wanted:
        return True
    first, *rest = wanted
    return any(
        first.fits(thing, margin) and all_there(rest, [*objects[:at], *objects[at + 1 :]], margin)
        for at, thing in enumerate(objects)
    )


def _list(match: re.Match[str], margin: float) -> Holds:
    wanted = [kind(words, side or None) for side, words in re.findall(_ITEM, match[0])]
    return lambda objects: all_there(wanted, objects, margin)


def _number(match: re.Match[str], margin: float) -> Holds:
    number, wanted = _COUNTS[match[1]], kind(match[2])
    return lambda objects: count(wanted, objects) == number


def _none(match: re.Match[str], margin: float) -> Holds:
    wanted = kind(match[1])
    return lambda objects: count(wanted, objects) == 0


def _relation(match: re.Match[str], margin: float) -> Holds:
    subject, direction, *others = match.groups()
    kinds = [kind(subject), *(kind(words) for words in others)]
    related = _RELATIONS[direction]

    def true_of(objects: Sequence[SceneObject]) -> bool:
        found = [[thing for thing in objects if one.fits(thing)] for one in kinds]
        if any(len(things) != 1 for things in found):
            return False
        (first,), *rest = found
        return all(related(first, other) for (other,) in rest)

    return true_of


def _quantifier(quantifier: str) -> Callable[[re.Match[str], float], Holds]:
    def meaning(match: re.Match[str], margin: float) -> Holds:
        whole = kind(match[1])
        part = whole._replace(color=match[2])

        def true_of(objects: Sequence[SceneObject]) -> bool:
            of_kind, so = count(whole, objects), count(part, objects)
            return {"all": of_kind == so > 0, "some": 0 < so < of_kind, "no": so == 0}[quantifier]

        return true_of

    return meaning


_DIRECTIONS = f"({'|'.join(_RELATIONS)})"
_FORMS: tuple[tuple[str, Callable[[re.Match[str], float], Holds]], ...] = (
    (rf"(?:there are )?({'|'.join(NUMBERS.values())}) {_MANY}", _number),
    (rf"(?:there is )?(one) {_ONE}", _number),
    (_LIST, _list),
    (rf"there is no {_ONE}", _none),
    (rf"the {_ONE} is {_DIRECTIONS} the {_ONE}", _relation),
    (rf"the {_ONE} is {_DIRECTIONS} both the {_ONE} and the {_ONE}", _relation),
    (rf"all {_MANY} are {_COLORS}", _quantifier("all")),
    (rf"some {_MANY} are {_COLORS} and some are not", _quantifier("some")),
    (rf"no {_ONE} is {_COLORS}", _quantifier("no")),
)
