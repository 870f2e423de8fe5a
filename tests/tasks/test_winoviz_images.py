"""WinoViz's protocols about pictures: what is asked of each picture, and how the majority decides."""

import pytest

from winobench.runs.requests import ANSWERED, FAILED, UNPARSABLE, InputImage, Response
from winobench.tasks import get_text_task, votes, winoviz_images
from winobench.tasks.questions import Answer, TextQuestion

IMAGES = tuple(InputImage(f"{number}.png", f"{number}" * 64) for number in range(5))
OPTIONS, CAPTIONS = ("The tomato was green.", "The tomato was red."), tuple(f"a {{tomato}} {n}" for n in range(5))
QUESTION = TextQuestion("t#2", {"premise": "The tomato burst."}, OPTIONS, 1, (), "t", IMAGES, CAPTIONS)


def vote(choice, scores=None, tie=False):
    return Answer(UNPARSABLE if choice is None else ANSWERED, choice, scores=scores, tie=tie)


@pytest.mark.parametrize(
    ("given", "choice", "tie"),
    [
        ([1, 1, 0, 0, 1], 1, False),
        ([1, None, None], 1, False),
        ([0, 1, None], 0, True),  # without scores nothing decides
        ([None, None], None, False),
    ],
)
def test_most_votes_win(given, choice, tie):
    found = votes.majority([vote(one) for one in given])
    assert (found.choice, found.tie, found.choices) == (choice, tie, tuple(given))
    assert found.status == (UNPARSABLE if choice is None else ANSWERED)


def test_votes_with_scores():
    """A picture whose scores are equal abstains; as many votes for each are decided by the mean scores."""
    both = [vote(0, (0.3, 0.1)), vote(1, (0.0, 0.9)), vote(0, (0.5, 0.5), tie=True)]
    found = votes.majority(both)
    assert (found.choice, found.choices, found.tie) == (1, (0, 1, None), False)
    assert found.scores == pytest.approx((0.8 / 3, 0.5))
    # Most votes count before scores do.
    assert votes.majority([*both, vote(0, (0.2, 0.1))]).choice == 0
    even = votes.majority([vote(0, (1.0, 0.0)), vote(1, (0.0, 1.0))])
    assert (even.choice, even.tie) == (0, True)
    assert votes.majority([vote(0, (0.5, 0.5), tie=True)]).tie
    assert votes.majority([vote(1), Answer(FAILED)]).status == FAILED
    assert votes.best(Response(scores=(0.1, 0.4, 0.4))) == Answer(ANSWERED, 1, scores=(0.1, 0.4, 0.4), tie=True)


def test_what_is_asked_of_each_picture():
    protocols = winoviz_images.PROTOCOLS
    assert [(one.name, one.kind, one.needs) for one in protocols.values()] == [
        ("vqa", "picture_text", "images"),
        ("vqa_options", "picture_options", "images"),
        ("picture_match", "picture_match", "images"),
        ("captions", "generation", "captions"),
        ("captions_options", "options", "captions"),
    ]
    for protocol in protocols.values():
        requests = protocol.requests(QUESTION)
        assert len(set(requests)) == 5
        assert {request.kind for request in requests} == {protocol.kind}
        for number, request in enumerate(requests):
            if protocol.needs == "images":
                assert request.image == IMAGES[number]
            else:
                assert f"Context: a {{tomato}} {number}\nSentence: The tomato burst." in request.turns[0].text
            if protocol.name.startswith("vqa"):
                assert "Option 2: The tomato was red." in request.question
                assert "burst" not in request.question  # the picture takes the sentence's place
    assert protocols["picture_match"].requests(QUESTION)[0].texts == QUESTION.options
    assert protocols["vqa_options"].requests(QUESTION)[0].options == ("Option 1", "Option 2")


def test_answers_are_read_as_without_pictures():
    said = [Response(text=text) for text in ("Option 2", "it is option 1", "Who knows?", "The tomato was red.", "2")]
    for name in ("vqa", "captions"):
        answer = winoviz_images.PROTOCOLS[name].read(QUESTION, said)
        assert (answer.choice, answer.choices) == (1, (1, 0, None, 1, 1))
        assert winoviz_images.PROTOCOLS[name].read(QUESTION, [*said[:4], None]).status == FAILED
    scored = [Response(scores=(-1.0, -2.0)), Response(scores=(-5.0, -1.0))]
    for name in ("vqa_options", "picture_match", "captions_options"):
        answer = winoviz_images.PROTOCOLS[name].read(QUESTION, scored)
        assert (answer.choice, answer.tie, answer.scores) == (1, False, (-3.0, -1.5))


def test_two_pictures_are_not_two_orders():
    task = get_text_task("winoviz_mini_single")
    assert task.illustrated == "premise"
    asked = [TextQuestion("a#1", {"premise": "p"}, ("x", "y"), 0, ("color",), "a", IMAGES[:2])]
    rows = task.metrics(asked, [Answer(ANSWERED, 0, (0, 1))])
    assert not [name for name in rows if name.startswith("position_bias")]
