"""Free text to sentences: the forms that models write, and what cannot be used."""

import json

import pytest

from tests.contrib.people.wscplus_items import fakes
from winobench.contrib.people.wscplus_items import parsing
from winobench.contrib.people.wscplus_items.items import Sentence

PAIR = fakes.both(fakes.PAIRS[1])
TROPHY = [
    Sentence(
        f"The trophy doesn't fit into the brown suitcase because it is too {word}.",
        *("it", f"it is too {word}", ("trophy", "brown suitcase"), answer),
    )
    for answer, word in enumerate(("large", "small"))
]


def texts(groups):
    return [[(one.statement, one.pronoun, one.options, one.answer) for one in group] for group in groups]


def test_the_form_that_is_asked_for():
    answer = "Here is what the experts agreed on (probability: 0.9):\n\n" + fakes.written(*fakes.PAIRS[:3])
    groups, malformed = parsing.parse(answer, "traditional")
    assert groups == [tuple(fakes.both(pair)) for pair in fakes.PAIRS[:3]]
    assert malformed == []


def test_a_list_in_a_code_block_and_objects_in_objects():
    listed = "```json\n[" + ", ".join(map(fakes.as_json, PAIR)) + "]\n```"
    nested = json.dumps({"pairs": [{"a": json.loads(fakes.as_json(PAIR[0])), "b": json.loads(fakes.as_json(PAIR[1]))}]})
    for answer in (listed, nested):
        assert parsing.parse(answer, "traditional") == ([tuple(PAIR)], [])


def test_broken_json():
    answer = """Pair1.a:
{
"statement": “The trophy doesn't fit into the brown suitcase because it is too large.”
"pronoun": "it",
"snippet": "it is too large",
"options": ["trophy", "brown suitcase"],
"answer": 0
"reason": "A thing must be smaller than the "brown" suitcase, so “it” is the trophy”,
}
Pair 1.b:
{
'statement': "The trophy doesn't fit into the brown suitcase because it is too small.",
'pronoun': "it",
'snippet': "it is too small",
'options': ['trophy', 'brown suitcase'],
'answer': "1",
}"""
    groups, malformed = parsing.parse(answer, "traditional")
    assert texts(groups) == texts([TROPHY])
    assert groups[0][0].reason.startswith('A thing must be smaller than the "brown" suitcase')
    assert malformed == []


def test_braces_in_texts():
    first, second = (fakes.as_json(one, reason="a {set} of\ntwo {") for one in PAIR)
    groups, malformed = parsing.parse(f"As {{asked}}, {{}}: {first}\n{second} {{", "traditional")
    assert (texts(groups), malformed) == (texts([PAIR]), [])
    assert groups[0][0].reason == "a {set} of two {"
    assert parsing.parse("{statement} is all that I have.", "traditional")[1][0].reason == parsing.NOTHING


def test_thoughts_are_no_items():
    draft, answer = fakes.written(fakes.PAIRS[0]), fakes.written(fakes.PAIRS[1])
    assert parsing.parse(f"<think>{draft}</think>{answer}", "traditional") == ([tuple(PAIR)], [])
    _, (cut,) = parsing.parse(f"<think>{draft}", "traditional", cut_off=True)
    assert cut.reason == parsing.CUT_OFF


@pytest.mark.parametrize("shared_first", [False, True])
def test_lines_of_one_sentence_after_the_other(shared_first):
    shared = "Pronoun: it\nOptions: kite / window\n"
    blocks = []
    for number, one in enumerate(PAIR, 1):
        own = f"Sentence {number}: {one.statement}\n"
        blocks.append(f"{own}{'' if shared_first else shared}Answer: {one.answer}\nReason: because")
    groups, malformed = parsing.parse(f"Pair 1\n{shared if shared_first else ''}" + "\n".join(blocks), "traditional")
    assert (groups, malformed) == ([tuple(PAIR)], [])


def test_two_sentences_with_their_answers_in_a_line():
    answer = f"Sentence 1: {PAIR[0].statement}\nSentence 2: {PAIR[1].statement}\nPronoun: it\nOptions: kite, window\n"
    for answers in ("0/1", "kite / window", "0 and 1"):
        assert texts(parsing.parse(f"{answer}Answer: {answers}", "traditional")[0]) == texts([PAIR])


def test_lines_with_labels():
    shared = """**Pair 1:**
Sentence 1: The trophy doesn't fit into the brown suitcase because it is too large.
Sentence 2: The trophy doesn't fit into the brown suitcase because it is too small.
Pronoun: it
Options: trophy, brown suitcase
Answer 1: trophy
Answer 2: the brown suitcase"""
    apart = """Pair 1
- Statement: The trophy doesn't fit into the brown suitcase because it is too large.
- Pronoun: "it"
- Option 1: trophy
- Option 2: brown suitcase
- Answer: 0
- Reason: it must be
  smaller

- Statement: The trophy doesn't fit into the brown suitcase because it is too small.
- Pronoun: "it"
- Option 1: trophy
- Option 2: brown suitcase
- Answer: 1"""
    for answer in (shared, apart):
        groups, malformed = parsing.parse(answer, "traditional")
        assert texts(groups) == texts([TROPHY]), answer
        assert malformed == []
        assert groups[0][1].snippet == "it is too small"


@pytest.mark.parametrize(
    "answers",
    ['"answer": [0, 1]', '"answer": "0/1"', '"answer": "[trophy/brown suitcase]"', '"answer": "trophy / suitcase"'],
)
def test_the_bracket_form(answers):
    answer = (
        '{"statement": "The trophy doesn\'t fit into the brown suitcase because it is too [large/small].", '
        f'"pronoun": "it", "snippet": "it is too [large/small]", "options": "trophy or brown suitcase", {answers}}}'
    )
    groups, malformed = parsing.parse(answer, "traditional")
    if "trophy / suitcase" in answers:  # half of a name is none
        assert [one.reason for one in malformed] == ["unreadable answer", "without its partner"]
    else:
        assert texts(groups) == texts([TROPHY])
        assert [one.snippet for one in groups[0]] == ["it is too large", "it is too small"]
        assert malformed == []


def test_the_bracket_form_in_lines():
    answer = """1. The trophy doesn't fit into the brown suitcase because it is too [large/small].
   Pronoun: it
   Candidates: trophy / brown suitcase
   Answer: 0 / 1
2. Mary met Sally in the mall, she wanted a [dress/shoe].
   Pronoun: she
   Candidates: Mary / Sally
   Answer: neither"""
    groups, malformed = parsing.parse(answer, "ambiguous")
    assert malformed == []
    assert texts(groups)[0] == texts([TROPHY])[0]
    assert [one.answer for one in groups[1]] == [2, 2]
    assert groups[1][1].statement == "Mary met Sally in the mall, she wanted a shoe."


def test_offensive_questions_stand_alone():
    answer = "\n".join(f"Question {n}\n{fakes.as_json(one)}" for n, one in enumerate(PAIR, 1))
    groups, _ = parsing.parse(answer, "offensive")
    assert groups == [(PAIR[0],), (PAIR[1],)]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"answer": None}, "no answer"),
        ({"pronoun": ""}, "no pronoun"),
        ({"options": ["kite", "window", "door"]}, "not two options"),
        ({"answer": "the door"}, "unreadable answer"),
        ({"statement": "The kite was [a/b] and [c/d] so it flew."}, "several brackets"),
        ({"statement": "The kite flew since it was too [wide/narrow]."}, "one answer for two sentences"),
    ],
)
def test_what_is_malformed(changes, reason):
    answer = f"Pair 1\n{fakes.as_json(PAIR[0], **changes)}\n{fakes.as_json(PAIR[1])}\n" + fakes.written(fakes.PAIRS[0])
    groups, malformed = parsing.parse(answer, "traditional")
    assert groups == [tuple(fakes.both(fakes.PAIRS[0]))]
    assert malformed[0].reason == reason
    assert malformed[-1].reason == parsing.ALONE


def test_answers_without_items():
    assert parsing.parse(fakes.REFUSAL, "offensive")[1][0].reason == parsing.REFUSED
    assert parsing.parse("What a nice day.", "traditional")[1][0].reason == parsing.NOTHING
    assert parsing.parse(None, "traditional")[1][0].reason == parsing.NOTHING
    assert parsing.parse("The experts begin to", "traditional", cut_off=True)[1][0].reason == parsing.CUT_OFF
    whole = fakes.written(*fakes.PAIRS[:2])
    groups, malformed = parsing.parse(whole[:-40], "traditional", cut_off=True)
    assert len(groups) == 1
    assert [one.reason for one in malformed] == [parsing.CUT_OFF, parsing.ALONE]


def test_partners_are_found_without_numbers_and_across_gaps():
    first, second = fakes.both(fakes.PAIRS[0]), fakes.both(fakes.PAIRS[2])
    answer = "\n".join(map(fakes.as_json, (first[0], first[1], PAIR[0], second[0], second[1])))
    groups, malformed = parsing.parse(answer, "traditional")
    assert groups == [tuple(first), tuple(second)]
    assert [one.reason for one in malformed] == [parsing.ALONE]


@pytest.mark.parametrize(
    ("options", "values"),
    [
        (["Paul", "George"], [{"0": "Paul", "1": "George", "2": "neither"}, "['Paul', 'George']", "Paul / George"]),
        (["Paul", "George"], ["(1) Paul (2) George", "Paul and George"]),
        (["John's dog", "Jack's puppy"], ['["John\'s dog", "Jack\'s puppy"]', "['John's dog', 'Jack's puppy']"]),
        (["the cat", "the dog"], ["the cat, the dog, or neither"]),
    ],
)
def test_options(options, values):
    assert [parsing.read_options(value) for value in values] == [options] * len(values)


@pytest.mark.parametrize(
    ("index", "values"),
    [
        (0, [0]),
        (1, ["1 (the dog)", "it refers to the dog", "the second option", [1]]),
        (2, ["Neither the cat nor the dog", "ambiguous"]),
        (None, [3, "the cat or the dog"]),
    ],
)
def test_answers(index, values):
    assert [parsing.read_answer(value, ("the cat", "the dog")) for value in values] == [index] * len(values)


def test_pronouns_come_without_punctuation():
    for pronoun in ("it.", "“it”,", "**it**"):
        answer = "\n".join(fakes.as_json(one, pronoun=pronoun, snippet="") for one in PAIR)
        assert parsing.parse(answer, "traditional") == ([tuple(PAIR)], [])


def test_snippets():
    statement = "Ann told Eve that she, not he, would go. Later she left, happily."
    assert parsing.snippet_of(statement, "she") == "she left"
    assert parsing.snippet_of(statement, "they") == ""
    wrong = fakes.as_json(PAIR[0], snippet="it was blue")
    groups, _ = parsing.parse(f"{wrong}\n{fakes.as_json(PAIR[1])}", "traditional")
    assert groups[0][0].snippet == "it was too wide"
