"""Hosted models and pictures, against the server of `tests.responders.api_server`."""

import base64
import hashlib
import io
import json
import math
import pathlib

import numpy as np
import pytest
from PIL import Image

from tests.expectations import raises
from tests.responders.api_server import anthropic_error, likely_body, openai_body, openai_error
from winobench.base import answer_texts
from winobench.responders.hosted import HostedModel, choices, images
from winobench.responders.hosted.providers import anthropic
from winobench.runs import asking, responses
from winobench.runs.requests import (
    ImageOptions,
    ImagesOptions,
    ImageStarts,
    ImagesText,
    ImageText,
    ImageTurn,
    InputImage,
    Turn,
)

YES_OR_NO = 'Does this figure show "a dog"? Please answer yes or no.'

NUMBERED = "Output either Option 1 or Option 2, whichever is true.\nOption 1: a dog\nOption 2: a cat\nAnswer:"


@pytest.fixture
def image(tmp_path):
    return written(tmp_path / "red.png", Image.new("RGB", (8, 6), "red"))


def written(path, image, **how):
    image.save(path, **how)
    return InputImage(str(path), hashlib.sha256(path.read_bytes()).hexdigest())


def in_base64(image):
    return base64.b64encode(pathlib.Path(image.path).read_bytes()).decode()


def make(server, api="openai", **options):
    url = f"{server.address}/v1" if api == "openai" else server.address
    return HostedModel(f"{api}:m@{url}", **{"first_wait": 0.01, "timeout": 5.0, "attempts": 2, **options})


def answers(model, requests):
    return [asking.read(model, requests[index], raw) for index, raw in sorted(model.ask(requests))]


def test_a_picture_goes_out_with_its_question_where_each_guide_wants_it(server, image):
    content = in_base64(image)
    requests = [ImageText(image), ImageText(image, "What colour?", temperature=0.5)]
    server.answer = lambda prompt: "red"
    for api in ("openai", "anthropic"):
        model = make(server, api, concurrency=1)
        raws = dict(model.ask(requests))
        assert [model.read(one, raws[number]).text for number, one in enumerate(requests)] == ["red"] * 2
        recorded = json.dumps([raws, *map(responses.request_json, requests)])
        assert content not in recorded
        assert image.sha256 in recorded
    texts = [{"type": "text", "text": text} for text in (choices.CAPTION, "What colour?")]
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{content}"}}
    block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": content}}
    assert server.prompts[:2] == [[text, image] for text in texts]
    assert server.prompts[2:] == [[block, text] for text in texts]
    assert [body["temperature"] for _, _, body in server.calls] == [0.0, 0.5] * 2


def test_a_conversation_about_a_picture_goes_out_in_turns(server, image):
    request = ImageTurn(image, "Why?", before=(Turn("user", "What?"), Turn("assistant", "A cat.")))
    server.answer = lambda prompt: "so"
    for api in ("openai", "anthropic"):
        assert [response.text for response in answers(make(server, api), [request])] == ["so"]
    for _, _, body in server.calls:
        first, *others = body["messages"]
        assert [part["text"] for part in first["content"] if part["type"] == "text"] == ["What?"]
        assert others == [{"role": "assistant", "content": "A cat."}, {"role": "user", "content": "Why?"}]
    keys = {responses.key({}, one) for one in (request, ImageText(image, "Why?"), ImageTurn(image, "Why?"))}
    assert len(keys) == 3


@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_a_system_turn_goes_out_before_the_picture(server, image, api):
    request = ImageTurn(image, "Why?", before=(Turn("system", "Be strict."),))
    server.answer = lambda prompt: "so"
    assert [response.text for response in answers(make(server, api), [request])] == ["so"]
    ((_, _, body),) = server.calls
    system = {"openai": {"role": "system", "content": "Be strict."}}.get(api)
    *first, last = body["messages"]
    assert first == ([system] if system else [])
    assert body.get("system") == (None if system else "Be strict.")
    assert last["role"] == "user"
    assert sorted(part["type"] for part in last["content"]) == sorted(
        ["text", {"openai": "image_url"}.get(api, "image")]
    )
    most = make(server, api).most_tokens(request, [(8, 6)])
    assert most["output"] == request.max_tokens


@pytest.mark.parametrize("roles", [("user",), ("user", "system"), ("system", "system"), ("assistant", "user")])
def test_other_turns_before_a_question_are_refused(server, image, roles):
    request = ImageTurn(image, "Why?", before=tuple(Turn(role, "So?") for role in roles))
    with raises("conversation-refused", "system turn"):
        list(make(server).ask([request]))
    assert not server.calls


def test_several_pictures_go_out_in_their_order(server, image, tmp_path):
    other = written(tmp_path / "blue.jpg", Image.new("RGB", (4, 9), "blue"))
    asked = ImagesText(other, "What has changed?", more_images=(image, other))
    server.answer = lambda prompt: "all"
    kinds = ("image/jpeg", "image/png", "image/jpeg")
    encoded = [*zip(kinds, map(in_base64, (other, image, other)), strict=True)]
    for api in ("openai", "anthropic"):
        model = make(server, api)
        assert [response.text for response in answers(model, [asked])] == ["all"]
    urls = [f"data:{kind};base64,{content}" for kind, content in encoded]
    text = {"type": "text", "text": "What has changed?"}
    assert server.prompts[0] == [text, *({"type": "image_url", "image_url": {"url": url}} for url in urls)]
    sources = [{"type": "base64", "media_type": kind, "data": content} for kind, content in encoded]
    assert server.prompts[1] == [*({"type": "image", "source": source} for source in sources), text]


def test_options_about_several_pictures_are_voted_on_or_read_from_likelihoods(server, image, tmp_path):
    other = written(tmp_path / "blue.png", Image.new("RGB", (4, 9), "blue"))
    asked = ImagesOptions(image, YES_OR_NO, ("yes", "no"), more_images=(other,))
    server.answer = lambda prompt: "Yes"
    model = make(server, logprobs=False, votes=3)
    parts = model.parts(asked)
    assert {(type(part), part.image, part.more_images) for part in parts} == {(ImagesText, image, (other,))}
    (response,) = answers(model, [asked])
    assert response.scores[0] > response.scores[1]
    assert {sum(part["type"] == "image_url" for part in prompt) for prompt in server.prompts} == {2}
    assert len(server.prompts) == 3
    sent = make(server)._server.body(asked)
    assert sent["top_logprobs"]
    assert sum(part["type"] == "image_url" for part in sent["messages"][0]["content"]) == 2


def test_another_file_than_is_asked_about_ends_the_run(server, image):
    for other, code in (
        (InputImage(image.path, "0" * 64), "file-changed"),
        (InputImage("gone.png", ""), "no-such-file"),
    ):
        with raises(code):
            list(make(server).ask([ImageText(other)]))
    assert not server.calls


def test_a_text_only_model_ends_the_run(server, image):
    said = "Invalid content type. image_url is only supported by certain models."
    server.script = [(400, {}, openai_error(said))]
    with raises("wrong-kind-of-model"):
        list(make(server).ask([ImageText(image)]))
    server.script = [(400, {}, openai_error("You uploaded an unsupported image."))]
    assert dict(make(server).ask([ImageText(image)]))[0]["error"]["kind"] == "blocked"


AZURE = "The response was filtered due to the prompt triggering Azure OpenAI's content management policy."
GEMINI = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 9}}
BLOCKED = {
    "azure": (400, openai_error(AZURE, "content_filter")),
    "azure, inside": (403, {"error": {"message": "no", "innererror": {"code": "ResponsibleAIPolicyViolation"}}}),
    "policy": (400, openai_error("Your request was rejected.", "content_policy_violation")),
    "moderation": (403, openai_error("Request blocked.", "moderation_blocked")),
    "flagged": (403, {"error": {"code": 403, "message": 'Your input was flagged for "violence".'}}),
    "guidelines": (403, {"error": "Content violates usage guidelines. Failed check: SAFETY_CHECK_TYPE_BIO"}),
    "inspection": (400, openai_error("Input data may contain inappropriate content.", "data_inspection_failed")),
    "risk": (400, openai_error("Content Exists Risk")),
    "gateway": (500, openai_error("ContentPolicyViolationError: rejected", None)),
    "of 200": (200, openai_error("Output blocked by content filtering policy")),
    "image": (400, openai_error("Could not process image")),
    "image, named": (400, openai_error("Invalid.", "image_parse_error")),
    "image, 500": (500, openai_error("cannot identify image file <_io.BytesIO object>")),
    "image, size": (413, openai_error("image exceeds 5 MB maximum: 6 MB > 5 MB")),
    "gemini": (200, GEMINI),
    "gemini, ended": (200, {"candidates": [{"finishReason": "PROHIBITED_CONTENT", "index": 0}]}),
    "finish": (200, openai_body("A d", "content_filter")),
    "two names": (200, openai_body(None, "content_filter: PROHIBITED_CONTENT")),
    "gemini's name": (200, openai_body(None, "FinishReason.RECITATION")),
    "vertex's name": (200, openai_body(None, "FINISH_REASON_SAFETY")),
    "refusal": (200, openai_body(None, refusal="I can't help with that.")),
    "refusal, part": (200, openai_body([{"type": "refusal", "refusal": "I can't help."}])),
}


@pytest.mark.parametrize("case", BLOCKED)
def test_what_a_filter_holds_back_is_one_failed_call(server, image, case):
    status, body = BLOCKED[case]
    server.script = [(status, {}, body)] * 3
    server.answer = lambda _: "Yes"
    model, requests = make(server, concurrency=1, attempts=3, failures_in_a_row=2), [ImageText(image, "?")] * 4
    raws = dict(model.ask(requests))
    assert [raws[index]["error"]["kind"] for index in range(3)] == ["blocked"] * 3
    assert [raws[index]["error"]["attempts"] for index in range(3)] == [1] * 3
    assert model.read(requests[3], raws[3]).text == "Yes"
    assert len(server.calls) == 4


def test_a_refusal_of_another_protocol_is_blocked(server, image):
    server.script = ["refusal", (400, {}, anthropic_error("Output blocked by content filtering policy"))]
    raws = dict(make(server, "anthropic", concurrency=1).ask([ImageText(image, "?")] * 2))
    assert [raws[index]["error"]["kind"] for index in range(2)] == ["blocked"] * 2
    assert len(server.calls) == 2


def test_a_blocked_vote_blocks_the_question(server, image, tmp_path):
    model = make(server, votes=3, logprobs=False, concurrency=1)
    request = ImageOptions(image, YES_OR_NO, ("yes", "no"))
    key = responses.key(model.fingerprint(), request)
    server.script = ["ok", "refusal", "ok"]
    server.answer = lambda _: "Yes"
    with asking.Session(tmp_path / "responses", progress=False) as session:
        found = session.ask(model, {key: request})
    assert (set(found.failed), found.blocked, found.read.keys() & {key}) == ({key}, {key}, set())


@pytest.mark.parametrize(
    ("status", "words", "code"),
    [
        (403, "Your account was flagged for violations of our usage policies.", "account-refused"),
        (403, "Your organization must be verified.", "account-refused"),
        (403, "not in your country", "account-refused"),
        (400, "Unsupported parameter: 'temperature' is not supported by the moderation model.", "field-refused"),
    ],
)
def test_what_every_call_would_meet_is_not_blocked(server, image, status, words, code):
    server.script = [(status, {}, openai_error(words))]
    with raises(code):
        list(make(server).ask([ImageText(image, "?")]))


def test_files_are_written_anew_only_where_they_must_be(tmp_path):
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 90, 3), np.uint8))
    plain = written(tmp_path / "plain.jpg", noise)
    assert images.encode(plain, anthropic.IMAGES)[1] == in_base64(plain)

    def opened(image, limits=anthropic.IMAGES):
        media_type, content = images.encode(image, limits)
        images.encode.cache_clear()
        assert images.encode(image, limits) == (media_type, content)
        image = Image.open(io.BytesIO(base64.b64decode(content)))
        assert image.format == media_type.removeprefix("image/").upper()
        return image

    exif = Image.Exif()
    exif[0x0112] = 6
    clear = noise.copy()
    clear.putalpha(0)
    for image, expected in (
        (written(tmp_path / "a.tiff", noise), noise),
        (written(tmp_path / "turned.png", noise, exif=exif), noise.transpose(Image.Transpose.ROTATE_270)),
        (written(tmp_path / "clear.png", clear), Image.new("RGB", noise.size, "white")),
    ):
        np.testing.assert_array_equal(opened(image), expected)
    small = images.Limits(("PNG", "JPEG"), 5_000, 80)
    shrunk = opened(written(tmp_path / "large.png", noise), small)
    assert 1.4 < shrunk.size[0] / shrunk.size[1] < 1.6
    assert len(base64.b64decode(images.encode(plain, small)[1])) <= 5_000
    photo = images.Limits(("PNG", "JPEG"), 12_000, None)
    assert (opened(plain, photo).format, opened(plain, photo).size) == ("JPEG", (90, 60))


def test_log_likelihoods_of_the_first_token(server, image):
    probabilities = {"Yes": 0.5, " yes": 0.1, "No": 0.2, "The": 0.05}
    server.answer = lambda _: likely_body("Yes", **probabilities)
    (response,) = answers(make(server), [ImageOptions(image, YES_OR_NO, ("yes", "no"))])
    np.testing.assert_allclose(np.exp(response.scores), [0.6, 0.2], rtol=1e-12)
    body = server.calls[0][2]
    assert (body["logprobs"], body["top_logprobs"], body["max_tokens"], body["temperature"]) == (True, 20, 1, 1.0)
    assert body["messages"][0]["content"][0]["text"] == YES_OR_NO
    assert response.unlisted == pytest.approx(0.15)
    # What is not listed has nothing, and its share is the bound of the error.
    scores, unlisted = choices.from_likely([("Yes", math.log(0.9))], ("yes", "no"))
    np.testing.assert_allclose([*np.exp(scores), unlisted], [0.9, 1e-9, 0.1])
    scores, unlisted = choices.from_likely([("I", math.log(0.9)), ("Sorry", math.log(0.05))], ("yes", "no"))
    np.testing.assert_allclose([*np.exp(scores), unlisted], [1e-9, 1e-9, 0.05])
    scores, unlisted = choices.from_likely([("\n", math.log(0.3)), ("No", math.log(0.6))], ("yes", "no"))
    np.testing.assert_allclose([*np.exp(scores), unlisted], [1e-9, 0.6, 0.4])
    tokens = [("gre", math.log(0.6)), (" a", math.log(0.1)), ("yell", math.log(0.3)), ("x", -9999.0)]
    scores, unlisted = choices.from_likely(tokens, ("green", "yellow"))
    np.testing.assert_allclose([*np.exp(scores), unlisted], [0.6, 0.3, 0.0], atol=1e-12)
    server.answer = lambda _: "Yes"
    (raw,) = dict(make(server).ask([ImageOptions(image, YES_OR_NO, ("yes", "no"))])).values()
    assert (raw["error"]["kind"], "logprobs=false" in raw["error"]["message"]) == ("unusable", True)


def test_log_likelihoods_behind_what_all_options_begin_with(server, image):
    likely = [[("Option", 0.9), ("The", 0.1)], [(" ", 0.8), (":", 0.2)], [("2", 0.75), ("1", 0.125), ("3", 0.0625)]]
    places = [[{"token": token, "logprob": math.log(value)} for token, value in place] for place in likely]
    body = likely_body("Option 2", Option=0.9)
    body["choices"][0]["logprobs"]["content"] = [{**place[0], "top_logprobs": place} for place in places]
    server.answer = lambda _: body
    (response,) = answers(make(server), [ImageOptions(image, NUMBERED, ("Option 1", "Option 2"))])
    np.testing.assert_allclose(np.exp(response.scores), [0.125, 0.75], rtol=1e-12)
    assert [server.calls[0][2][name] for name in ("max_tokens", "temperature")] == [8, 0.0]
    scores, unlisted = choices.from_tokens([("The", [("The", -0.1)])], ("Option 1", "Option 2"))
    assert (scores, unlisted) == ((choices.LEAST, choices.LEAST), 0.0)


def asking_for_likely(model, request):
    """The answer to one request, or the message of the failed call."""
    (raw,) = dict(model.ask([request])).values()
    return raw["error"]["message"] if "error" in raw else model.read(request, raw)


FEWER = {
    "Invalid value for 'top_logprobs': must be less than or equal to 5.": 5,
    "Requested sample logprobs of 20, which is is greater than max allowed: 5": 5,
    "top_logprobs: Input should be less than or equal to 5": 5,
    "20 is greater than the maximum of 5 - 'top_logprobs'": 5,
    "The requested logprobs value 20 exceeds the maximum of 8.": 8,
    "`top_logprobs` must be between 0 and 5, inclusive. Got 20": 5,
    "Only up to 5 logprobs are supported": 5,
    "top_logprobs is only supported with a value of 1": 1,
    "top_logprobs should be in [1, 8] for model v2.5-2024-08": 8,
    "Value of parameter top_logprobs is too large": 5,
    "logprobs is too large: cannot exceed 3": 3,
    "Log probabilities: at most 2 per token": 2,
}


@pytest.mark.parametrize("words", FEWER)
@pytest.mark.parametrize("status", [400, 422])
def test_a_server_is_asked_for_as_many_likely_tokens_as_it_gives(server, image, words, status):
    numbers = []

    def reply(body):
        numbers.append(body["top_logprobs"])
        return (200, likely_body("Yes", Yes=0.9)) if numbers[-1] <= FEWER[words] else (status, openai_error(words))

    server.reply = reply
    model, request = make(server, concurrency=1), ImageOptions(image, YES_OR_NO, ("yes", "no"))
    raws = dict(model.ask([request] * 2))
    assert [math.exp(model.read(request, raws[index]).scores[0]) for index in range(2)] == pytest.approx([0.9] * 2)
    assert (numbers[0], numbers[-2:], numbers == sorted(numbers, reverse=True)) == (20, [FEWER[words]] * 2, True)


@pytest.mark.parametrize(
    "error",
    [
        openai_error("logprobs is not supported with this model.", "unsupported_parameter"),
        openai_error("This model does not support logprobs"),
        {"detail": [{"loc": ["body", "top_logprobs"], "msg": "Extra inputs are not permitted"}]},
        {"error": {"message": "Invalid request.", "param": "logprobs"}},
    ],
)
def test_a_server_without_log_probabilities_ends_the_run_with_the_remedy(server, image, error):
    server.script = [(400, {}, error)] * 9
    with raises("field-refused", "--api.logprobs=false"):
        list(make(server, concurrency=1).ask([ImageOptions(image, YES_OR_NO, ("yes", "no"))] * 9))


def place(*listed, own=None):
    """A body with one token, as (token, log-probability, more fields)."""
    top = [{"token": token, "logprob": value, **more} for token, value, *rest in listed for more in [dict(*rest)]]
    body = openai_body(str(listed[0][0]).strip("\u0120\u2581 "))
    own = {"token": own[0], "logprob": own[1]} if own else top[0]
    body["choices"][0]["logprobs"] = {"content": [{**own, "top_logprobs": top}]}
    return body


def saying(text, body):
    body["choices"][0]["message"]["content"] = text
    return body


LOG = {share: math.log(share) for share in (0.9, 0.8, 0.5, 0.3, 0.1)}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (place(("\u0120Yes", LOG[0.9]), ("\u0120No", LOG[0.1])), (0.9, 0.1, 0.0)),
        (place(("\u2581yes", LOG[0.8]), ("No", LOG[0.1])), (0.8, 0.1, 0.1)),
        (place((" Yes", LOG[0.5]), ("Yes", LOG[0.3]), ("\n", LOG[0.1])), (0.8, 0.0, 0.2)),
        (place(("Yes", LOG[0.9], {"bytes": [32, 89, 101, 115]}), ("No", LOG[0.1], {"bytes": None})), (0.9, 0.1, 0.0)),
        (place(("token_id:9454", LOG[0.9], {"bytes": [89, 101, 115]})), None),
        (place(("Yes", 0.0), ("No", -9999.0)), (1.0, 0.0, 0.0)),
        (place(("Yes", -0.0), ("No", -math.inf)), (1.0, 0.0, 0.0)),
        (place(("Yes", 0.0005), ("No", -20.0)), (1.0, 0.0, 0.0)),
        (place(("Yes", LOG[0.9]), ("Yes", LOG[0.9])), (0.9, 0.0, 0.1)),
        (place(("Yes", LOG[0.9]), own=("Yes", LOG[0.9])), (0.9, 0.0, 0.1)),
        (place(("Yes", LOG[0.8]), own=("Yes.", LOG[0.1])), None),
        (place(("Yes", -0.05), ("No", 0.7)), None),
        (place(("Yes", 0.9), ("No", 0.1)), None),
        (place(("Yes", 0.0), ("No", 0.0)), None),
        (place(("Yes", math.nan), ("No", -1.0)), None),
        (place(("Yes", "-0.1"), ("No", "-3.0")), None),
        (place(("Yes", None), ("No", -3.0)), None),
        (place(("Yes", True), ("No", -3.0)), None),
        (place(("token_id:9454", -0.1), ("token_id:2753", -3.0)), None),
        (place((9454, -0.1), (2753, -3.0)), None),
        (saying("Yes", place(("9454", -0.1), ("2753", -3.0))), None),
        (openai_body("Yes"), None),
    ],
)  # fmt: skip
def test_log_probabilities_are_read_rightly_or_refused_with_the_remedy(server, image, body, expected):
    server.reply = lambda _: (200, body)
    found = asking_for_likely(make(server), ImageOptions(image, YES_OR_NO, ("yes", "no")))
    if expected is None:
        assert "logprobs=false" in found
    else:
        np.testing.assert_allclose([*np.exp(found.scores), found.unlisted], expected, atol=1e-3)


def test_one_likely_token_alone_is_enough(server, image):
    body = likely_body("Yes", Yes=0.9)
    body["choices"][0]["logprobs"]["content"][0]["top_logprobs"] = []
    server.reply = lambda _: (200, body)
    found = asking_for_likely(make(server), ImageOptions(image, YES_OR_NO, ("yes", "no")))
    np.testing.assert_allclose([*np.exp(found.scores), found.unlisted], [0.9, 0.0, 0.1], atol=1e-8)


def test_many_unusable_answers_in_a_row_end_the_run(server, image):
    server.answer = lambda _: "Yes"
    with raises("all-calls-failed", "--api.logprobs=false"):
        requests = [ImageOptions(image, YES_OR_NO, ("yes", "no"))] * 9
        list(make(server, concurrency=1, failures_in_a_row=3).ask(requests))
    assert len(server.calls) == 3


TWO, TEN = ("two", "Two", " two", " Two", "2", " 2"), ("ten", "Ten", " ten", " Ten", "10", " 10")


@pytest.mark.parametrize(
    ("starts", "likely", "expected"),
    [
        (TWO, {"2": 0.9, "two": 0.05, " Two": 0.01, "3": 0.03}, (0.96, 0.01)),
        (TWO, {"tw": 0.5, "t": 0.2, "TWO": 0.1, "20": 0.1}, (0.5, 0.1)),
        (TWO, {"I": 0.9, "Sorry": 0.1}, (0.0, 0.0)),
        (TEN, {"10": 0.9, "1": 0.05}, (0.9, 0.1)),
        (TEN, {"2": 0.6, "1": 0.4}, (0.0, 0.4)),
        (TEN, {"1": 0.9, "2": 0.1}, (0.72, 0.0)),
    ],
)
def test_how_an_answer_starts(server, image, starts, likely, expected):
    body = likely_body(next(iter(likely)), **likely)
    if "1" in likely and next(iter(likely)) == "1":
        second = {"token": "0", "logprob": math.log(0.8)}
        body["choices"][0]["logprobs"]["content"].append({**second, "top_logprobs": [second]})
        body["choices"][0]["message"]["content"] = "10"
    server.reply = lambda _: (200, body)
    request = ImageStarts(image, "How many dogs? Answer in one word.", starts)
    found = asking_for_likely(make(server), request)
    np.testing.assert_allclose([math.exp(found.scores[0]), found.unlisted], expected, atol=1e-8)
    sent = server.calls[0][2]
    assert (sent["max_tokens"], sent["messages"][0]["content"][0]["text"]) == (1 + (starts == TEN), request.question)


def test_only_log_probabilities_tell_how_an_answer_starts(server, image):
    assert "picture_starts" in make(server).kinds
    assert "picture_starts" not in make(server, logprobs=False).kinds
    assert "picture_starts" not in make(server, "anthropic").kinds


@pytest.mark.parametrize(
    ("question", "options", "asked", "marks"),
    [
        (YES_OR_NO, ("yes", "no"), YES_OR_NO, ("yes", "no")),
        (NUMBERED, ("Option 1", "Option 2"), NUMBERED, ("Option 1", "Option 2")),
        ("Which letter?", ("B", "A"), "Which letter?", ("B", "A")),
        ("Colour?", ("red", "dark blue"), "Colour?\nAnswer with one of these and nothing else: red; dark blue.", None),
        ("?", ("a dog", "a cat"), "?\nA) a dog\nB) a cat\nAnswer with one letter and nothing else.", ("A", "B")),
    ],
)
def test_how_options_are_put(image, question, options, asked, marks):
    assert choices.put(ImageOptions(image, question, options)) == (asked, marks or options)
    with raises("bad-options"):
        choices.put(ImageOptions(image, question, ("yes", "Yes ")))


@pytest.mark.parametrize(
    ("text", "number"),
    [("Yes.", 0), ("**no**", 1), (" yes, it does", 0), ("not sure", 2), ("nothing", None), ("It does", None)],
)
def test_which_option_a_text_is(text, number):
    assert answer_texts.mark(text, ("yes", "no", "not sure")) == number


def test_votes_are_kept_one_by_one(server, image, tmp_path):
    model = make(server, "anthropic", concurrency=1, attempts=1, votes=4, prices={"m": (1.0, 1.0)})
    request = ImageOptions(image, YES_OR_NO, ("yes", "no"))
    said = iter(["Yes", "No.", "yes", "I cannot tell."])
    server.answer = lambda _: next(said)
    server.script = ["ok", "ok", (500, {}, openai_error("broken"))]
    wanted = {responses.key(model.fingerprint(), request): request}

    def asked():
        with asking.Session(tmp_path / "responses", progress=False) as session:
            return session.ask(model, wanted)

    first = asked()
    assert (list(first.failed), first.asked) == (list(wanted), 4)
    second = asked()  # the one that failed is asked again, and no other
    assert (second.failed, second.asked, len(server.calls)) == ({}, 1, 5)
    (key,) = wanted
    np.testing.assert_allclose(np.exp(second.read[key].scores), [0.5, 0.25], rtol=1e-12)
    assert second.read[key].input_tokens == 4 * 15
    assert model.cost(second.read[key]) == pytest.approx(4 * 20e-6)
    # Without a store, all at once.
    server.answer = lambda _: "No"
    assert [math.exp(score) for score in answers(model, [request])[0].scores] == pytest.approx([0, 1], abs=1e-8)
    assert {body["temperature"] for _, _, body in server.calls} == {1.0}


def test_who_votes(server):
    assert "votes" not in make(server).fingerprint()
    assert {"votes": 7, "logprobs": False}.items() <= make(server, votes=7, logprobs=False).fingerprint().items()
    with raises("option-of-others", "logprobs"):
        make(server, "anthropic", logprobs=True)
    assert not HostedModel("openai:gpt-5-mini", base_url=server.address)._logprobs
    assert HostedModel("openai:gpt-4o", base_url=server.address)._logprobs


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>No, wait.</think>\n\nYes", "Yes"),
        ("No, wait.</think>Yes", "Yes"),
        ("[THINK]No[/THINK] Yes", "Yes"),
        ("<|channel|>analysis<|message|>No.<|end|><|start|>assistant<|channel|>final<|message|>Yes<|return|>", "Yes"),
        ("No", "No"),
        (" No <b>", " No <b>"),
    ],
)
def test_thoughts_are_no_part_of_an_answer_about_an_image(server, image, text, answer):
    server.answer = lambda prompt: text
    (response,) = answers(make(server), [ImageText(image, "Is there a dog?")])
    assert response.text == answer


@pytest.mark.parametrize("text", ["<think>Yes", "<|channel|>analysis<|message|>Yes"])
def test_thoughts_alone_are_an_incomplete_answer(server, image, text):
    server.answer = lambda prompt: text
    (response,) = answers(make(server), [ImageText(image, "Is there a dog?")])
    assert (response.text, response.ending) == (None, "empty")
