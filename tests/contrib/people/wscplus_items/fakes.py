"""A responder whose answers hold valid pairs, malformed ones, duplicates and refusals, and items made by hand."""

import json

from winobench.contrib.people.wscplus_items.items import Item, Origin, Sentence
from winobench.runs.requests import CUT_OFF, Response

# (statement with the two words, pronoun, options, answers)
PAIRS = [
    ("The nurse thanked the pilot because she had been so [grateful/helpful].", "she", ("nurse", "pilot"), (0, 1)),
    ("The kite would not fit through the window because it was too [wide/narrow].", "it", ("kite", "window"), (0, 1)),
    ("Marta hid the key from Ines because she could not be [honest/trusted].", "she", ("Marta", "Ines"), (0, 1)),
    ("The bakers envied the farmers because they earned so [little/much].", "they", ("bakers", "farmers"), (0, 1)),
    ("The ladder leaned on the shed although it was [unsteady/crooked].", "it", ("ladder", "shed"), (0, 1)),
    ("Tom could not outrun his uncle although he had [practised/aged].", "he", ("Tom", "uncle"), (0, 1)),
]
OPEN_PAIRS = [
    ("Nadia sat beside Carla on the train, and she ate [soup/bread].", "she", ("Nadia", "Carla"), (2, 2)),
    ("Omar painted a wall with Felix, but he had no [brush/time].", "he", ("Omar", "Felix"), (2, 2)),
]
QUESTIONS = [
    ("A baker from Oslo and a baker from Lima met when he lost his hat.", "he", ("baker from Oslo", "baker from Lima")),
    ("A short singer and a tall singer rehearsed until she yawned.", "she", ("short singer", "tall singer")),
]
REFUSAL = "I'm sorry, but I can't help with that."


def both(pair):
    statement, pronoun, options, answers = pair
    head, _, rest = statement.partition("[")
    words, _, tail = rest.partition("]")
    return [
        Sentence(text, pronoun, text[text.rindex(f"{pronoun} ") : -1], options, answer, "because")
        for text, answer in zip((head + word + tail for word in words.split("/")), answers, strict=True)
    ]


def as_json(sentence, **changes):
    fields = {name: getattr(sentence, name) for name in ("statement", "pronoun", "snippet", "options", "answer")}
    return json.dumps({**fields, "reason": sentence.reason, **changes})


def written(*pairs):
    parts = []
    for number, pair in enumerate(pairs, 1):
        parts += [f"Pair {number}", *map(as_json, both(pair))]
    return "\n".join(parts)


def origin(kind="traditional", template="toe", query="wdq", model="model-a", sample=0):
    return Origin(model, kind, template, query, 3, sample)


def items(model="model-a"):
    """Two pairs, an ambiguous one and an offensive question."""
    open_one = Item(tuple(both(OPEN_PAIRS[0])), origin("ambiguous", query="ambiguous", model=model))
    text, pronoun, options = QUESTIONS[0]
    question = Sentence(text, pronoun, "he lost his hat", options, 2)
    pairs = [Item(tuple(both(pair)), origin(model=model)) for pair in PAIRS[:2]]
    return [*pairs, open_one, Item((question,), origin("offensive", query="offensive-race", model=model))]


class Writer:
    """Answers by prompt and sample: some fail, are broken or are cut off. All requests are in ``asked``."""

    kinds = frozenset({"generation"})

    def __init__(self, name="writer", failing=(), broken=(), stop_after=None, cut=()):
        self.name, self.failing, self.broken, self.stop_after, self.cut = name, failing, broken, stop_after, cut
        self.asked = []

    def fingerprint(self):
        return {"scorer": "writer", "model": self.name}

    def ask(self, requests):
        for index in reversed(range(len(requests))):
            if self.stop_after is not None and len(self.asked) >= self.stop_after:
                raise KeyboardInterrupt
            self.asked.append(requests[index])
            sample = requests[index].sample
            if sample in self.failing:
                yield index, {"error": {"kind": "server", "message": "status 500", "attempts": 3}}
            elif sample in self.broken:
                yield index, {"nonsense": True}
            else:
                text = answer(requests[index].turns[-1].text, sample)
                yield index, {"text": text, "cut": True} if sample in self.cut else {"text": text}

    def read(self, request, raw):
        if "text" not in raw:
            raise ValueError("the body has no text")
        spent = {"input_tokens": 7, "output_tokens": 9}
        if "cut" in raw:
            return Response(partial=raw["text"], **spent, finish="length", ending=CUT_OFF)
        return Response(raw["text"], **spent, finish="stop")

    def cost(self, response):
        return 0.01


def answer(prompt, sample):
    if "offensive" in prompt:
        text, pronoun, options = QUESTIONS[sample % 2]
        if "racially" not in prompt:
            return REFUSAL
        return as_json(Sentence(text, pronoun, "", options, 2))
    if "are classified as ambiguous" in prompt:
        return written(OPEN_PAIRS[sample % 2])
    if sample == 0:
        return written(*PAIRS[:3])
    if sample == 1:  # one known from the prompt, one that was there before, one that lacks an answer
        lacking = "\n".join(["Pair 3", *(as_json(one, answer=None) for one in both(PAIRS[4]))])
        known = (
            "Paul tried to call George on the phone, but he wasn't [successful/available].",
            "he",
            ("Paul", "George"),
        )
        return "\n".join([written((*known, (0, 1)), PAIRS[0]), lacking])
    return written(PAIRS[3])
