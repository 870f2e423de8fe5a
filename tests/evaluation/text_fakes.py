"""A responder and a text task that need no model: answers follow a script, and calls are counted."""

import hashlib

from winobench.metrics import wilson
from winobench.runs.requests import ANSWERED, FAILED, UNPARSABLE, Generation, Options, Response, Turn
from winobench.tasks.questions import Answer, Protocol, TextQuestion, TextTask

KINDS = ("generation", "options")


class ScriptedResponder:
    """Answers by a rule: the right option's number where a hash of prompt and ``seed`` is below ``skill``."""

    def __init__(self, *, skill=0.6, seed=0, kinds=KINDS, failing=(), silent=(), malformed=(), stop_after=None):
        self.skill, self.seed, self.kinds = skill, seed, frozenset(kinds)
        self.failing, self.silent, self.malformed = failing, silent, malformed
        self.stop_after, self.asked = stop_after, []

    def fingerprint(self):
        return {"scorer": "scripted", "model": str(self.seed), "skill": self.skill}

    def ask(self, requests):
        for index in reversed(range(len(requests))):  # any order will do
            if self.stop_after is not None and len(self.asked) >= self.stop_after:
                raise KeyboardInterrupt
            request = requests[index]
            self.asked.append(request)
            prompt = request.turns[-1].text
            if _mentions(prompt, self.failing):
                yield index, {"error": {"kind": "server", "message": "status 500", "attempts": 3}}
            elif _mentions(prompt, self.malformed):
                yield index, {"body": {"nonsense": True}}
            else:
                yield index, {"body": self._answer(request, prompt)}

    def _answer(self, request, prompt):
        share = int(hashlib.sha256(f"{self.seed} {prompt}".encode()).hexdigest()[:6], 16) / 2**24
        right = int(prompt.rsplit(" ", 1)[1])
        choice = right if share < self.skill else 1 - right
        if request.kind == "options":
            return {"scores": [-1.0 if number == choice else -2.0 for number in range(len(request.options))]}
        return {"text": "I would rather not say" if _mentions(prompt, self.silent) else f"Option {choice + 1}."}

    def read(self, request, raw):
        body = raw["body"]
        if request.kind == "options" and "scores" in body:
            return Response(scores=tuple(body["scores"]), input_tokens=7, output_tokens=0)
        if "text" not in body:
            raise ValueError("the body has no text")
        return Response(text=body["text"], input_tokens=7, output_tokens=3)


class PaidResponder(ScriptedResponder):
    """The same, for a cent an answer."""

    def cost(self, response):
        return 0.01


def text_task(name="colours", pairs=4, **changes):
    """Pairs of questions with the same two options, each asked of two groups; the prompt ends in the right number."""

    def load(data_dir, limit):
        for pair in range(pairs if limit is None else min(pairs, limit)):
            for answer in (0, 1):
                yield TextQuestion(
                    id=f"{pair}-{answer}",
                    texts={"premise": f"The fruit {pair} has the state {answer}"},
                    options=("It is green.", "It is brown."),
                    answer=answer,
                    groups=("even" if pair % 2 == 0 else "odd",),
                    pair=str(pair),
                )

    def metrics(questions, answers):
        known = [(q, a) for q, a in zip(questions, answers, strict=True) if a.status != FAILED]
        entries = {"accuracy": _entry([a.choice == q.answer for q, a in known])}
        for group in dict.fromkeys(g for q, _ in known for g in q.groups):
            entries[f"{group}/accuracy"] = _entry([a.choice == q.answer for q, a in known if group in q.groups])
        return entries

    fields = {
        "version": 1,
        "description": "a test's task",
        "protocols": {protocol.name: protocol for protocol in (generated(), scored(), voted())},
        "chance": {"accuracy": 0.5},
        "load": load,
        "ready": lambda data_dir: None,
        "data_fingerprint": lambda data_dir, limit: f"{name} {limit}",
        "metrics": metrics,
        "count": lambda data_dir: 2 * pairs,
    }
    return TextTask(name=name, **{**fields, **changes})


def generated():
    def requests(question):
        return [Generation(_turns(question))]

    return Protocol("generated", "asks for the option's name", "generation", requests, lambda _, some: _parsed(some))


def voted():
    """Three samples, and what most of them say."""

    def requests(question):
        return [Generation(_turns(question), temperature=1.0, sample=number) for number in range(3)]

    return Protocol("voted", "asks three times", "generation", requests, lambda _, some: _parsed(some))


def scored():
    def read(question, responses):
        (response,) = responses
        if response is None:
            return Answer(FAILED)
        best = max(response.scores)
        tie = response.scores.count(best) > 1
        choice = response.scores.index(best)
        return Answer(ANSWERED, choice, (choice,), response.scores, tie)

    return Protocol("scored", "compares the options", "options", lambda q: [Options(_turns(q), q.options)], read)


def _parsed(responses):
    if any(response is None for response in responses):
        return Answer(FAILED)
    choices = tuple(
        int(response.text[len("Option ")]) - 1 if response.text.startswith("Option ") else None
        for response in responses
    )
    choice = max(set(choices), key=choices.count)
    return Answer(UNPARSABLE if choice is None else ANSWERED, choice, choices)


def _turns(question):
    return (Turn("user", question.texts["premise"]),)


def _entry(right):
    value, low, high = wilson(sum(right), len(right))
    return {"value": value, "low": low, "high": high, "chance": 0.5, "n": len(right), "ties": 0}


def _mentions(prompt, words):
    return any(word in prompt for word in words)
