"""Conversations as tokens: formats, where options begin, what is shared, and what cannot be rendered."""

import json
import sys

import pytest

from tests.expectations import names, raises
from tests.tiny_language_models import CHAT_TEMPLATE, make_tokenizer
from winobench.base.errors import InputError
from winobench.checkpoints import chat_templates as templates
from winobench.checkpoints import fast_tokenizers
from winobench.responders.prompts import Prompts, tokenizer_sha256
from winobench.runs.requests import Turn

ENDLESS = (
    "{% for i in range(100000) %}{% for j in range(100000) %}{{ i }}{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% macro again(n) %}{% for i in range(99999) %}{{ again(n) }}{% endfor %}{% endmacro %}{{ again(1) }}",
)
LARGE = (
    "{{ 'x' * 10**10 }}{{ messages[0].content }}",
    "{% set ns = namespace(x=['x']) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
    "{{ 2**10000000000 }}",
)
HOSTILE = (*ENDLESS, *LARGE)
TURNS = (Turn("system", "Be brief."), Turn("user", "Q1"), Turn("assistant", "A1"), Turn("user", "Q2"))
# In the manner of Mistral's: no system turns, and users and assistants take turns.
STRICT_TEMPLATE = (
    "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% if message['role'] == 'user' %}[INST] {{ message['content'] }} [/INST]"
    "{% else %} {{ message['content'] }}</s>{% endif %}{% endfor %}"
)


@pytest.fixture(scope="module", autouse=True)
def _hostile_ones_in_a_process(templates_tried_here):
    """As outside the tests. Others are tried in this process."""
    launch, try_here = templates_tried_here

    def try_template(request):
        return (launch if json.loads(request)[0] in HOSTILE else try_here)(request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(templates, "_try", try_template)
        yield


@pytest.fixture(scope="module")
def plain():
    return Prompts(make_tokenizer())


@pytest.fixture(scope="module")
def chat():
    return Prompts(make_tokenizer(kind="bare", chat_template=CHAT_TEMPLATE))


def text_of(prompts, ids):
    return prompts._tokenizer.decode(ids)


def test_plain_format(plain):
    assert not plain.chat
    assert plain.text(TURNS) == "Be brief.\n\nQ1\n\nA1\n\nQ2\n\n"
    assert plain.text(TURNS[1:] + TURNS[:1]) == plain.text(TURNS)  # a system's text comes first
    ids = plain.encode(TURNS)
    assert ids[0] == plain._tokenizer.bos_token_id
    assert text_of(plain, ids[1:]) == plain.text(TURNS)


def test_encoder_decoder_format():
    prompts = Prompts(make_tokenizer(kind="t5"), separate=True)
    assert prompts.text(TURNS) == "Be brief.\n\nQ1\n\nA1\n\nQ2"
    assert text_of(prompts, prompts.encode(TURNS)) == prompts.text(TURNS) + "</s>"
    options = prompts.encode_options(TURNS, ["Option 1", "Option 2"])
    assert options.context == prompts.encode(TURNS)
    assert [text_of(prompts, ids) for ids in options.options] == ["Option 1", "Option 2"]


def test_chat_format(chat):
    assert chat.chat
    assert chat.text(TURNS[:2]) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nQ1<|im_end|>\n<|im_start|>assistant\n"
        "<think>\n\n</think>\n\n"
    )
    assert text_of(chat, chat.encode(TURNS)) == chat.text(TURNS)  # no start token besides the template's
    assert not Prompts(make_tokenizer(chat_template=CHAT_TEMPLATE), template="plain").chat


def test_dates_are_always_the_same():
    template = "{{ date_string if date_string is defined else strftime_now('%d %b %Y') }} {{ messages[0]['content'] }}"
    prompts = Prompts(make_tokenizer(chat_template=template))
    assert prompts.text((Turn("user", "Q"),)) == "26 Jul 2024 Q"
    assert prompts.fingerprint()["template_arguments"] == {"date_string": "26 Jul 2024"}


def test_template_without_system_turns():
    prompts = Prompts(make_tokenizer(chat_template=STRICT_TEMPLATE))
    assert prompts.text(TURNS) == "[INST] Be brief.\n\nQ1 [/INST] A1</s>[INST] Q2 [/INST]"
    with raises("conversation-refused"):
        prompts.text((Turn("assistant", "A"),))


def test_options_follow_a_bracket_after_a_space():
    prompts = Prompts(make_tokenizer(chat_template=STRICT_TEMPLATE))
    tokens = prompts.encode_options(TURNS, ["Option 1", "\nOption 2"])
    assert [text_of(prompts, ids) for ids in tokens.options] == [" Option 1", "\nOption 2"]


def test_options_follow_the_prompt(plain, chat):
    for prompts in (plain, chat):
        tokens = prompts.encode_options(TURNS, ["Option 1", "neither of them"])
        assert tokens.context == prompts.encode(TURNS)
        assert [text_of(prompts, ids) for ids in tokens.options] == ["Option 1", "neither of them"]


def test_options_that_are_joined_to_the_prompt(plain):
    """Where one option's first characters are joined to the prompt's last ones, all begin before these."""

    class Joining:
        """Reads characters, but ``\\n\\n\\t`` is one token."""

        bos_token_id = None
        chat_template = None

        def __call__(self, text, add_special_tokens=True):
            return {"input_ids": [ord(letter) for letter in text.replace("\n\n\t", "¶")]}

    prompts = Prompts(Joining())
    turns = (Turn("user", "ab"),)
    tokens = prompts.encode_options(turns, ["xy", "\tz"])
    assert tokens.context == (97, 98)
    assert tokens.options == ((10, 10, 120, 121), (182, 122))
    # Without that option, the others begin where the prompt ends.
    assert prompts.encode_options(turns, ["xy", "z"]).options == ((120, 121), (122,))


@pytest.mark.parametrize("option", ["", " \n"])
def test_empty_options(plain, option):
    with raises("wrong-type", "option"):
        plain.encode_options(TURNS, ["Option 1", option])


def test_what_is_shared(plain, chat):
    other = (*TURNS[:3], Turn("user", "something else"))
    for prompts in (plain, chat):
        shared = prompts.encode_prefix(TURNS, 3)
        assert shared == prompts.encode_prefix(other, 3)
        assert text_of(prompts, shared).rstrip().endswith(("A1", "A1<|im_end|>"))
        assert prompts.encode(TURNS)[: len(shared)] == shared == prompts.encode(other)[: len(shared)]
        assert prompts.encode_prefix(TURNS, 0) == ()
        # Something must be left to be read.
        assert prompts.encode_prefix(TURNS, 4) == ()
    strict = Prompts(make_tokenizer(chat_template=STRICT_TEMPLATE))
    assert strict.encode_prefix(TURNS, 1) == ()  # no conversation of a system turn alone
    assert text_of(strict, strict.encode_prefix(TURNS, 3)).endswith("A1</s>")


def test_fingerprint(plain, chat):
    assert plain.fingerprint()["format"] == "plain"
    assert chat.fingerprint()["template_arguments"] == {"enable_thinking": False}
    assert chat.fingerprint() != Prompts(make_tokenizer(kind="bare", chat_template=STRICT_TEMPLATE)).fingerprint()
    tokenizer = make_tokenizer()
    assert tokenizer_sha256(tokenizer) == plain.fingerprint()["tokenizer"]
    tokenizer(["a", "b c d"], padding=True, truncation=True, max_length=3)  # leaves its mark in the tokenizer
    assert tokenizer_sha256(tokenizer) == plain.fingerprint()["tokenizer"]
    assert tokenizer_sha256(make_tokenizer(kind="bare")) != tokenizer_sha256(tokenizer)


def test_bad_templates():
    with pytest.raises(InputError, match=names("chat_template", "'jinja'")):
        Prompts(make_tokenizer(), template="jinja")
    with raises("no-chat-template"):
        Prompts(make_tokenizer(), template="tokenizer")


@pytest.mark.quick(1)
@pytest.mark.parametrize("template", ENDLESS)
def test_templates_that_do_not_end_are_refused_soon(template):
    before = sys.gettrace()
    with raises("conversation-refused"):
        Prompts(make_tokenizer(chat_template=template)).text(TURNS)
    assert sys.gettrace() is before


@pytest.mark.quick(3)
@pytest.mark.parametrize("template", ["<assistant>", " ", *LARGE])
def test_templates_that_no_conversation_comes_out_of(template):
    with raises("conversation-refused", "--chat_template=plain"):
        Prompts(make_tokenizer(chat_template=template))


@pytest.mark.parametrize(
    ("source", "code"), [(5, "wrong-type"), ([1], "wrong-type"), ({"rag": "x"}, "no-chat-template")]
)
def test_chat_templates_that_are_none(source, code):
    tokenizer = make_tokenizer()
    tokenizer.chat_template = source
    with raises(code):
        Prompts(tokenizer)


def test_system_turns_that_a_template_leaves_out_go_to_the_user():
    template = "{% for m in messages %}{% if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}"
    prompts = Prompts(make_tokenizer(chat_template=template))
    assert prompts.text(TURNS[:2]) == "<user>Be brief.\n\nQ1"
    assert prompts.fingerprint()["system_in_user_turn"]  # earlier records lack the system's text


def test_a_chat_model_that_has_lost_its_template():
    tokenizer = make_tokenizer()  # has <|im_end|>, as base models may
    assert not Prompts(tokenizer, stop_ids=[tokenizer.eos_token_id]).chat
    stop_ids = [tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids("<|im_end|>")]
    with raises("no-chat-template", "<|im_end|>", "--chat_template=plain"):
        Prompts(tokenizer, stop_ids=stop_ids)
    assert not Prompts(tokenizer, template="plain", stop_ids=stop_ids).chat


@pytest.mark.slow
@pytest.mark.parametrize("template", [ENDLESS[0], LARGE[0]])
def test_templates_of_text_encoders_have_the_same_bounds(template):
    tokenizer = make_tokenizer(kind="bare", chat_template=template)
    with raises("conversation-refused", "text encoder"):
        fast_tokenizers.apply_chat_template(tokenizer, ["a dog"])


def test_the_bounds_of_a_template_are_for_each_text():
    template = "{% for i in range(20000) %}{% set x = i %}{% endfor %}{{ messages[0].content }}"
    tokenizer = make_tokenizer(kind="bare", chat_template=template)
    assert fast_tokenizers.apply_chat_template(tokenizer, ["a dog"] * 20) == ["a dog"] * 20
