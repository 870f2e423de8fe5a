"""Requests that are asked in parts: what several of them have in common is asked once, and fails for all of them."""

import pytest

from tests.expectations import raises
from winobench.runs import asking, requests, responses
from winobench.runs.requests import Generation, Response, Turn


def request_for(text):
    return Generation((Turn("user", text),))


class Voter:
    """Of a request such as ``ab`` it asks ``a`` and ``b``; calls about ``broken`` fail."""

    kinds = frozenset({"generation"})

    def __init__(self, broken=""):
        self.broken, self.asked = broken, []

    def fingerprint(self):
        return {"model": "voter"}

    def parts(self, request):
        return tuple(map(request_for, request.turns[0].text))

    def combine(self, request, answers):
        return Response(text=" ".join(answer.text for answer in answers))

    def ask(self, requests):
        for number, request in enumerate(requests):
            text = request.turns[0].text
            self.asked.append(text)
            failed = text == self.broken
            yield number, {"error": {"kind": "server", "message": text}} if failed else {"text": text.upper()}

    def read(self, request, raw):
        return Response(text=raw["text"])


@pytest.mark.parametrize(("broken", "failed"), [("", ""), ("b", "ab bc"), ("c", "bc cd")])
def test_parts_in_common(tmp_path, broken, failed):
    voter = Voter(broken)
    wanted = {responses.key(voter.fingerprint(), request_for(text)): request_for(text) for text in ("ab", "bc", "cd")}
    texts = {key: request.turns[0].text for key, request in wanted.items()}
    with asking.Session(tmp_path / "run" / "responses", progress=False) as session:
        answers = session.ask(voter, wanted)
    assert sorted(voter.asked) == ["a", "b", "c", "d"]
    assert {texts[key]: reason for key, reason in answers.failed.items()} == dict.fromkeys(
        failed.split(), f"server: {broken}"
    )
    read = {texts[key]: answer.text for key, answer in answers.read.items() if key in texts}
    assert read == {text: " ".join(text.upper()) for text in ("ab", "bc", "cd") if text not in failed.split()}


@pytest.mark.parametrize("answers", [[(0, ["text"])], [(0, "text")], [(1, {"text": "a"})], [(0, {"text": "a"})] * 2])
def test_answers_of_another_form_are_refused(tmp_path, answers):
    voter = Voter()
    voter.ask = lambda requests: iter(answers)
    with asking.Session(tmp_path / "run" / "responses") as session, raises("bad-response", "Voter.ask"):
        session.ask(voter, {"a" * 64: request_for("a")})


def test_a_responder_that_cannot_put_parts_together_is_refused_before_it_is_asked():
    requests.check_responder(Voter())
    halves = type("Halves", (), {name: value for name, value in vars(Voter).items() if name != "combine"})
    with raises("wrong-type", "Halves", "combine"):
        requests.check_responder(halves())
