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
from tests.responders.api_server import likely_body, openai_error
from winobench.base import answer_texts
from winobench.responders.hosted import HostedModel, choices, images
from winobench.responders.hosted.providers import anthropic
from winobench.runs import asking, responses
from winobench.runs.requests import Picture, PictureOptions, PictureText

YES_OR_NO = 'Does this figure show "a dog"? Please answer yes or no.'

NUMBERED = "Output either Option 1 or Option 2, whichever is true.\nOption 1: a dog\nOption 2: a cat\nAnswer:"


@pytest.fixture
def picture(tmp_path):
    return written(tmp_path / "red.png", Image.new("RGB", (8, 6), "red"))


def written(path, image, **how):
    image.save(path, **how)
    return Picture(str(path), hashlib.sha256(path.read_bytes()).hexdigest())


def in_base64(picture):
    return base64.b64encode(pathlib.Path(picture.path).read_bytes()).decode()


def make(server, api="openai", **options):
    url = f"{server.address}/v1" if api == "openai" else server.address
    return HostedModel(f"{api}:m@{url}", **{"first_wait": 0.01, "timeout": 5.0, "attempts": 2, **options})


def answers(model, requests):
    return [asking.read(model, requests[index], raw) for index, raw in sorted(model.ask(requests))]


def test_a_picture_goes_out_with_its_question_where_each_guide_wants_it(server, picture):
    content = in_base64(picture)
    requests = [PictureText(picture), PictureText(picture, "What colour?", temperature=0.5)]
    server.answer = lambda prompt: "red"
    for api in ("openai", "anthropic"):
        model = make(server, api, concurrency=1)
        raws = dict(model.ask(requests))
        assert [model.read(one, raws[number]).text for number, one in enumerate(requests)] == ["red"] * 2
        recorded = json.dumps([raws, *map(responses.request_json, requests)])
        assert content not in recorded
        assert picture.sha256 in recorded
    texts = [{"type": "text", "text": text} for text in (choices.CAPTION, "What colour?")]
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{content}"}}
    block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": content}}
    assert server.prompts[:2] == [[text, image] for text in texts]
    assert server.prompts[2:] == [[block, text] for text in texts]
    assert [body["temperature"] for _, _, body in server.calls] == [0.0, 0.5] * 2


def test_another_file_than_is_asked_about_ends_the_run(server, picture):
    for other, code in ((Picture(picture.path, "0" * 64), "file-changed"), (Picture("gone.png", ""), "no-such-file")):
        with raises(code):
            list(make(server).ask([PictureText(other)]))
    assert not server.calls


def test_a_text_only_model_ends_the_run(server, picture):
    said = "Invalid content type. image_url is only supported by certain models."
    server.script = [(400, {}, openai_error(said))]
    with raises("wrong-kind-of-model"):
        list(make(server).ask([PictureText(picture)]))
    server.script = [(400, {}, openai_error("You uploaded an unsupported image."))]
    assert dict(make(server).ask([PictureText(picture)]))[0]["error"]["kind"] == "refused"


def test_files_are_written_anew_only_where_they_must_be(tmp_path):
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 90, 3), np.uint8))
    plain = written(tmp_path / "plain.jpg", noise)
    assert images.encode(plain, anthropic.IMAGES)[1] == in_base64(plain)

    def opened(picture, limits=anthropic.IMAGES):
        media_type, content = images.encode(picture, limits)
        images.encode.cache_clear()
        assert images.encode(picture, limits) == (media_type, content)
        image = Image.open(io.BytesIO(base64.b64decode(content)))
        assert image.format == media_type.removeprefix("image/").upper()
        return image

    exif = Image.Exif()
    exif[0x0112] = 6
    clear = noise.copy()
    clear.putalpha(0)
    for picture, expected in (
        (written(tmp_path / "a.tiff", noise), noise),
        (written(tmp_path / "turned.png", noise, exif=exif), noise.transpose(Image.Transpose.ROTATE_270)),
        (written(tmp_path / "clear.png", clear), Image.new("RGB", noise.size, "white")),
    ):
        np.testing.assert_array_equal(opened(picture), expected)
    small = images.Limits(("PNG", "JPEG"), 5_000, 80)
    shrunk = opened(written(tmp_path / "large.png", noise), small)
    assert 1.4 < shrunk.size[0] / shrunk.size[1] < 1.6
    assert len(base64.b64decode(images.encode(plain, small)[1])) <= 5_000
    photo = images.Limits(("PNG", "JPEG"), 12_000, None)
    assert (opened(plain, photo).format, opened(plain, photo).size) == ("JPEG", (90, 60))


def test_log_likelihoods_of_the_first_token(server, picture):
    probabilities = {"Yes": 0.5, " yes": 0.1, "No": 0.2, "The": 0.05}
    server.answer = lambda _: likely_body("Yes", **probabilities)
    (response,) = answers(make(server), [PictureOptions(picture, YES_OR_NO, ("yes", "no"))])
    np.testing.assert_allclose(np.exp(response.scores), [0.6, 0.2], rtol=1e-12)
    body = server.calls[0][2]
    assert (body["logprobs"], body["top_logprobs"], body["max_tokens"], body["temperature"]) == (True, 20, 1, 1.0)
    assert body["messages"][0]["content"][0]["text"] == YES_OR_NO
    # What is not listed has the most that it can have; where no option is, all are alike.
    np.testing.assert_allclose(np.exp(choices.from_likely([("Yes", math.log(0.9))], ("yes", "no"))), [0.9, 0.1])
    first, second = choices.from_likely([("I", -0.1), ("Sorry", -3.0)], ("yes", "no"))
    assert first == second == pytest.approx(math.log(1 - math.exp(-0.1) - math.exp(-3.0)))
    tokens = [("gre", math.log(0.6)), (" a", math.log(0.1)), ("yell", math.log(0.3)), ("x", -9999.0)]
    np.testing.assert_allclose(np.exp(choices.from_likely(tokens, ("green", "yellow"))), [0.6, 0.3])
    server.answer = lambda _: "Yes"
    with pytest.raises(ValueError, match="no log-probabilities"):
        answers(make(server), [PictureOptions(picture, YES_OR_NO, ("yes", "no"))])


def test_log_likelihoods_behind_what_all_options_begin_with(server, picture):
    likely = [[("Option", 0.9), ("The", 0.1)], [(" ", 0.8), (":", 0.2)], [("2", 0.75), ("1", 0.125), ("3", 0.0625)]]
    places = [[{"token": token, "logprob": math.log(value)} for token, value in place] for place in likely]
    body = likely_body("Option 2", Option=0.9)
    body["choices"][0]["logprobs"]["content"] = [{**place[0], "top_logprobs": place} for place in places]
    server.answer = lambda _: body
    (response,) = answers(make(server), [PictureOptions(picture, NUMBERED, ("Option 1", "Option 2"))])
    np.testing.assert_allclose(np.exp(response.scores), [0.125, 0.75], rtol=1e-12)
    assert [server.calls[0][2][name] for name in ("max_tokens", "temperature")] == [8, 0.0]
    first, second = choices.from_tokens([("The", [("The", -0.1)])], ("Option 1", "Option 2"))
    assert first == second


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
def test_how_options_are_put(picture, question, options, asked, marks):
    assert choices.put(PictureOptions(picture, question, options)) == (asked, marks or options)
    with raises("bad-options"):
        choices.put(PictureOptions(picture, question, ("yes", "Yes ")))


@pytest.mark.parametrize(
    ("text", "number"),
    [("Yes.", 0), ("**no**", 1), (" yes, it does", 0), ("not sure", 2), ("nothing", None), ("It does", None)],
)
def test_which_option_a_text_is(text, number):
    assert answer_texts.mark(text, ("yes", "no", "not sure")) == number


def test_votes_are_kept_one_by_one(server, picture, tmp_path):
    model = make(server, "anthropic", concurrency=1, attempts=1, votes=4, prices={"m": (1.0, 1.0)})
    request = PictureOptions(picture, YES_OR_NO, ("yes", "no"))
    said = iter(["Yes", "No.", "yes", "I cannot tell."])
    server.answer = lambda _: next(said)
    server.script = ["ok", "ok", (500, {}, openai_error("broken"))]
    wanted = {responses.key(model.fingerprint(), request): request}

    def asked():
        with responses.ResponseStore(tmp_path / "responses") as store:
            found = asking.Answers()
            asking.ask(model, store, wanted, found, progress=False)
            return found

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
def test_thoughts_are_no_part_of_an_answer_about_an_image(server, picture, text, answer):
    server.answer = lambda prompt: text
    (response,) = answers(make(server), [PictureText(picture, "Is there a dog?")])
    assert response.text == answer


@pytest.mark.parametrize("text", ["<think>Yes", "<|channel|>analysis<|message|>Yes"])
def test_thoughts_alone_are_an_incomplete_answer(server, picture, text):
    server.answer = lambda prompt: text
    (response,) = answers(make(server), [PictureText(picture, "Is there a dog?")])
    assert (response.text, response.ending) == (None, "empty")
