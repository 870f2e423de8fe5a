"""The prompts: texts of the paper with their examples, and what is asked for under which flag."""

import pytest

from tests.expectations import names, raises
from winobench.base.errors import InputError
from winobench.contrib.people.wscplus_items import prompts


def test_every_template_with_every_query():
    asked = prompts.make_prompts(["cot", "tot", "coe", "toe"], ["wdq", "wiq", "ambiguous"], requests=2)
    assert len(asked) == 4 * 3 * 2
    assert len({prompt.text for prompt in asked}) == 4 * 3
    assert len({prompt.request for prompt in asked}) == 4 * 3 * 2
    for prompt in asked:
        assert prompt.text.startswith(prompts.templates()[prompt.template]["text"])
        assert "<insert" not in prompt.text
        assert "new pairs" in prompt.text
        assert prompt.request.turns[-1].role == "user"
    first = asked[0]
    assert (first.type, first.template, first.query, first.batch, first.sample) == ("traditional", "cot", "wdq", 3, 0)
    assert "Pair 2: The trophy doesn't fit into the brown suitcase because it is too [large/small]." in first.text
    assert "Winograd" not in next(prompt.text for prompt in asked if prompt.query == "wiq")
    assert first.origin("m").model == "m"


def test_without_the_flag_no_offensive_prompt_is_made():
    queries = ["wdq", "ambiguous"]
    assert {prompt.type for prompt in prompts.make_prompts(["toe"], queries)} == {"traditional", "ambiguous"}
    with pytest.raises(InputError, match=names("--offensive=true")):
        prompts.make_prompts(["toe"], ["offensive-race"])
    asked = prompts.make_prompts(["toe"], queries, offensive=True)
    domains = {"race", "religion", "sex", "appearance", "socioeconomic"}
    assert {prompt.query for prompt in asked if prompt.type == "offensive"} == {f"offensive-{one}" for one in domains}
    (one,) = prompts.make_prompts(["cot"], ["offensive-race"], offensive=True, batch=[1])
    assert "if we are not racially offensive" in one.text
    assert "Write 1 new question of this kind" in one.text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"template_names": ["tow"]}, ("unknown-name", "'tow'")),
        ({"template_names": []}, ("nothing-named", "template")),
        ({"batch": [0]}, ("out-of-range", "batch", "0")),
        ({"requests": 2, "temperature": 0.0}, ("equal-requests",)),
    ],
)
def test_bad_input(changes, said):
    with raises(*said):
        prompts.make_prompts(**{"template_names": ["toe"], "query_names": ["wdq"], **changes})


def test_examples_are_those_of_the_table():
    assert len(prompts.example_statements()) == 26
    once, twice = prompts.make_prompts(["toe"], ["wdq"]), prompts.make_prompts(["toe"], ["wdq"], requests=2)
    assert prompts.digest(once) == prompts.digest(twice)
    assert prompts.digest(once) != prompts.digest(prompts.make_prompts(["toe"], ["wiq"]))
