"""Qwen2.5-VL against torch transformers, and several images of one text, also of Qwen3-VL.

Float32, relative to the largest expected value, and bfloat16. Images of a batch differ in shape.
"""

import hashlib
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from flax import nnx

from tests import tiny_language_models
from tests.expectations import raises
from tests.parity import published_configs
from tests.parity.harness import QUICK_COMPILATION, check_close, relative_error
from tests.parity.test_qwen3_vl import TEXTS, asked, make_images
from tests.tiny_vision_language import QWENS, write_vision_language
from winobench import parallel
from winobench.checkpoints import language_models, vision_language, weights
from winobench.data.patches import Patches, PatchProcessor
from winobench.models import decoder_cache
from winobench.models.qwen2_5_vl import Qwen25VLForConditionalGeneration
from winobench.models.qwen2_5_vl_config import Qwen25VLConfig
from winobench.responders import loading
from winobench.responders.vision_language import VisionLanguageModel
from winobench.runs.requests import (
    SEVERAL,
    ImageOptions,
    ImagesOptions,
    ImagesText,
    ImageText,
    ImageTurn,
    InputImage,
    Turn,
)
from winobench.scorers import vqa_score
from winobench.scorers.vqa_score import VQAScore

TOLERANCE = 1e-5
OURS = "qwen2_5_vl"
# Rows and columns of patches. Windows have 4 x 4: whole, cut at one side or at both, in one row, and alone.
GRIDS = ((8, 8), (4, 12), (6, 10), (2, 24), (24, 2), (10, 4), (2, 2), (4, 4))


@pytest.fixture(scope="module", autouse=True)
def _quick():
    step = vqa_score._score_pairs.__wrapped__
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        compiled = jax.jit(step, static_argnames="how", compiler_options=QUICK_COMPILATION)
        patch.setattr(vqa_score, "_score_pairs", compiled)
        tiny_language_models.compile_quickly(patch)
        yield


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {name: write_vision_language(tmp_path_factory.mktemp(name), name) for name in QWENS}


@pytest.fixture(scope="module")
def networks(folders):
    auto = transformers.AutoModelForImageTextToText
    return {name: auto.from_pretrained(folder).eval() for name, folder in folders.items()}


def load(folder, dtype="float32"):
    return vision_language.load_vision_language(folder, dtype, mesh=parallel.make_mesh(jax.devices()[:1]))


@pytest.fixture(scope="module")
def models(folders):
    return {name: load(folder) for name, folder in folders.items()}


def torch_inputs(folder, images, question, system=""):
    """What the published processor makes of pictures, a question and a system's text in the chat template."""
    processor = transformers.Qwen2VLImageProcessorPil.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = processor([image.convert("RGB") for image in images], return_tensors="pt")
    content = [*({"type": "image"} for _ in images), {"type": "text", "text": question}]
    first = [{"role": "system", "content": [{"type": "text", "text": system}]}] if system else []
    turns = [*first, {"role": "user", "content": content}]
    first, *parts = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True).split(
        "<|image_pad|>"
    )
    counts = (inputs["image_grid_thw"].prod(dim=1) // processor.merge_size**2).tolist()
    text = first + "".join("<|image_pad|>" * count + part for count, part in zip(counts, parts, strict=True))
    ids = torch.tensor([tokenizer(text)["input_ids"]])
    is_image = ids == tokenizer.convert_tokens_to_ids("<|image_pad|>")
    return {**inputs, "input_ids": ids, "mm_token_type_ids": is_image.int()}


def logits(loaded, images, question):
    """At each token behind the images, of which each question has one or several."""
    graph, state = loaded.network
    before, (ids,) = loaded.tokens(loaded.form.template, [question])
    between = tuple(loaded.tokenizer(loaded.form.between)["input_ids"])

    def run(state, patches, ids):
        model = nnx.merge(graph, state)
        read = model.encode_images(loaded.processor.normalize(patches), before, between)
        cache = decoder_cache.make_cache(model.config.text_config, 1, ids.shape[1], model.dtype, read)
        first = jnp.sum(read.written, axis=1, dtype=jnp.int32)
        hidden, _ = model.language_model(ids, first[:, None] + jnp.arange(ids.shape[1]), cache)
        return model.language_model.logits(hidden)[0]

    patches = jax.tree.map(lambda *parts: np.stack(parts)[None], *map(loaded.processor, images))
    with jax.default_matmul_precision("highest"):
        return jax.jit(run, compiler_options=QUICK_COMPILATION)(state, patches, np.array([ids], np.int32))


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("family", QWENS)
def test_logits_at_all_places_behind_images(networks, models, folders, family, count):
    images = make_images()[:count]
    expected = networks[family](**torch_inputs(folders[family], images, asked("a red cube"))).logits[0]
    result = logits(models[family], images, asked("a red cube"))
    check_close(result, expected[-len(result) :], TOLERANCE)
    if count > 1:  # their order matters
        other = logits(models[family], images[::-1], asked("a red cube"))
        assert relative_error(other, expected[-len(result) :]) > 0.01


@pytest.mark.slow
def test_vision_tower(networks, models):
    """Windows of images of all shapes, whose patches are padded to one length that no window divides."""
    tower = networks[OURS].model.visual
    graph, state = models[OURS].network
    rng = np.random.default_rng(7)
    length = max(rows * columns for rows, columns in GRIDS) + 4
    pixels = rng.normal(size=(len(GRIDS), length, 48)).astype(np.float32)

    def run(state, patches):
        return nnx.merge(graph, state).visual(patches)[0]

    with jax.default_matmul_precision("highest"):
        states = jax.jit(run, compiler_options=QUICK_COMPILATION)(state, Patches(pixels, np.array(GRIDS, np.int32)))
    assert states.shape == (len(GRIDS), length // 4, 64)
    assert np.isfinite(states).all()
    own = [pixels[row, : rows * columns] for row, (rows, columns) in enumerate(GRIDS)]
    # Torch's order within a patch is channel, frame, row, column.
    frames = [np.repeat(part.reshape(-1, 4, 4, 3).transpose(0, 3, 1, 2)[:, :, None], 2, axis=2) for part in own]
    flat = torch.tensor(np.concatenate([part.reshape(len(part), -1) for part in frames]))
    grid = torch.tensor([[1, *sides] for sides in GRIDS])
    expected = torch.split(tower(flat, grid).pooler_output, (grid.prod(dim=1) // 4).tolist())
    check_close([states[row, : len(part)] for row, part in enumerate(expected)], list(expected), TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_bfloat16(networks, folders, count):
    """No farther from float32 than torch's own bfloat16, but for a half."""
    images, folder = make_images()[:count], folders[OURS]
    inputs = torch_inputs(folder, images, asked("a red cube"))
    exact = networks[OURS](**inputs).logits[0]
    theirs = transformers.AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.bfloat16).eval()
    result = np.asarray(logits(load(folder, "bfloat16"), images, asked("a red cube")))
    places = slice(-len(result), None)
    of_torch = relative_error(theirs(**inputs).logits[0, places].float(), exact[places])
    assert relative_error(result, exact[places]) < 1.5 * of_torch < 0.1


@pytest.mark.slow
def test_published_score(networks, models, folders):
    """The log-odds of "Yes" as the first token, for pairs of several pictures in a batch."""
    loaded = models[OURS]
    yes, no = (loaded.tokenizer(word)["input_ids"] for word in ("Yes", "No"))
    rows = [
        [networks[OURS](**torch_inputs(folders[OURS], [image], asked(text))).logits[0, -1] for text in TEXTS]
        for image in make_images()
    ]
    likely = np.array([[torch.log_softmax(row, dim=-1)[[*yes, *no]].numpy() for row in texts] for texts in rows])
    expected = likely[..., 0] - likely[..., 1]
    scores = VQAScore(loaded, score="log_odds", batch_size=4).score(make_images(), TEXTS)
    assert relative_error(scores, expected) < TOLERANCE
    mesh = parallel.make_mesh(jax.devices()[:4], model_parallel=2)
    shared = VQAScore.from_pretrained(folders[OURS], mesh=mesh, table_rows=2, score="log_odds")
    np.testing.assert_allclose(shared.score(make_images(), TEXTS), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("family", QWENS)
def test_greedy_texts_about_one_and_several_images(networks, models, folders, family):
    writer = VisionLanguageModel(models[family], batch_size=2)
    images = make_images()
    for groups in (
        [(image,) for image in images],
        [(images[0], images[1]), (images[3], images[0]), tuple(images[1:3])],
    ):
        prompts = ["", "Is the ball left of the red cube?", "a cube", ""][: len(groups)]
        expected = []
        for group, prompt in zip(groups, prompts, strict=True):
            inputs = torch_inputs(folders[family], group, prompt or "Describe this image.")
            ids = networks[family].generate(**inputs, do_sample=False, max_new_tokens=12)[0]
            written = ids[inputs["input_ids"].shape[1] :]
            expected.append(models[family].tokenizer.decode(written, skip_special_tokens=True).strip())
        assert writer.write(groups, prompts, max_tokens=12) == expected
        assert len(set(expected)) == len(expected)


@pytest.mark.slow
@pytest.mark.parametrize("family", QWENS)
def test_texts_behind_a_system_turn(networks, models, folders, family, tmp_path):
    """Requests with and without one in a call. Greedy texts equal torch's, and the turns its chat template's."""
    image, question, system = make_images()[0], "a cube", "Be strict {}.\nAlways."
    image.save(path := tmp_path / "a.png")
    shown = InputImage(str(path), hashlib.sha256(path.read_bytes()).hexdigest())
    asked = [ImageText(shown, question, 12), ImageTurn(shown, question, 12, before=(Turn("system", system),))]
    answers = dict(VisionLanguageModel(models[family], batch_size=4).ask(asked))
    for number, text in enumerate(("", system)):
        inputs = torch_inputs(folders[family], [image], question, text)
        ids = networks[family].generate(**inputs, do_sample=False, max_new_tokens=12)[0]
        written = models[family].tokenizer.decode(ids[inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        assert answers[number] == {"text": written.strip()}
    assert answers[0] != answers[1]
    with raises("image-slot-in-text"):
        VisionLanguageModel(models[family]).write([image], "?", system="<|image_pad|>")


@pytest.mark.slow
def test_a_system_turn_needs_turns(tmp_path):
    folder = write_vision_language(tmp_path, "llava")
    with raises("kind-not-answered", "system turn", "Qwen3-VL"):
        VisionLanguageModel.from_pretrained(folder).write(make_images()[:1], "?", system="Be strict.")


@pytest.mark.slow
def test_repetition_penalty_of_the_files(models, folders, tmp_path):
    """Of all tokens of the prompt, the image's included, and of the text. Only texts have it, and their identity."""
    folder = shutil.copytree(folders[OURS], tmp_path / "penalty")
    (folder / "generation_config.json").write_text(json.dumps({"repetition_penalty": 1.6, "eos_token_id": 3}))
    network = transformers.AutoModelForImageTextToText.from_pretrained(folder).eval()
    images = make_images()
    writer, usual = VisionLanguageModel(load(folder), batch_size=4), VisionLanguageModel(models[OURS], batch_size=4)
    for groups in ([(image,) for image in images], [(images[0], images[1]), (images[3], images[0])]):
        inputs = [torch_inputs(folder, group, "Is the ball left of the red cube?") for group in groups]
        ids = [network.generate(**each, do_sample=False, max_new_tokens=16)[0] for each in inputs]
        written = [row[each["input_ids"].shape[1] :] for row, each in zip(ids, inputs, strict=True)]
        expected = [models[OURS].tokenizer.decode(row, skip_special_tokens=True).strip() for row in written]
        asked_for = {"prompts": "Is the ball left of the red cube?", "max_tokens": 16}
        assert writer.write(groups, **asked_for) == expected != usual.write(groups, **asked_for)
    assert writer.fingerprint() == usual.fingerprint() | {"repetition_penalty": 1.6}
    (folder / "generation_config.json").write_text(json.dumps({"repetition_penalty": "much"}))
    with raises("bad-value", "repetition_penalty", "generation_config.json"):
        load(folder)


@pytest.mark.slow
def test_options_about_two_images(networks, models, folders):
    """Log-likelihoods of answers of unlike lengths."""
    images, tokenizer = make_images()[:2], models[OURS].tokenizer
    model = VisionLanguageModel(models[OURS])
    ((_, scores),) = model.iter_option_scores([tuple(images)], ["Are they alike?"], [["Yes", "No a red cube"]])
    for score, answer in zip(scores, ("Yes", "No a red cube"), strict=True):
        inputs = torch_inputs(folders[OURS], images, "Are they alike?")
        start = len(tokenizer("assistant\n")["input_ids"])
        more = tokenizer(f"assistant\n{answer}")["input_ids"][start:]
        ids = torch.cat([inputs["input_ids"], torch.tensor([more])], dim=1)
        types = torch.cat([inputs["mm_token_type_ids"], torch.zeros(1, len(more), dtype=torch.int32)], dim=1)
        theirs = networks[OURS](**inputs | {"input_ids": ids, "mm_token_type_ids": types}).logits[
            0, -len(more) - 1 : -1
        ]
        expected = torch.log_softmax(theirs, dim=-1)[range(len(more)), more].sum()
        np.testing.assert_allclose(score, expected, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("family", QWENS)
def test_requests_about_one_two_and_three_images(models, folders, family, tmp_path):
    """Mixed in one call, each is answered as alone, by the images in their order."""
    images = []
    for number, image in enumerate(make_images()):
        image.save(path := tmp_path / f"{number}.png")
        images.append(InputImage(str(path), hashlib.sha256(path.read_bytes()).hexdigest()))
    asked = [ImageText(images[0], "a cube", 5), ImagesText(images[0], "a cube", 5, more_images=(images[1],))]
    asked += [ImagesText(images[1], "a cube", 5, more_images=(images[0],)), ImageOptions(images[2], "?", ("Yes", "No"))]
    asked += [ImagesOptions(images[2], "?", ("Yes", "No"), more_images=tuple(images[:2]))]
    model = VisionLanguageModel(models[family], batch_size=4)
    smaller = loading.load_responder(str(folders[family]), about_images=True, max_pixels=512)
    assert smaller.fingerprint()["model"] != model.fingerprint()["model"]
    assert model.kinds == loading.answered_kinds(str(folders[family])) > SEVERAL
    answers = [raw for _, raw in sorted(model.ask(asked), key=lambda answer: answer[0])]
    assert len({answer["text"] for answer in answers[:3]}) == 3
    assert answers[3]["scores"] != answers[4]["scores"]
    for request, answer in zip(asked, answers, strict=True):
        ((_, alone),) = model.ask([request])
        assert alone == answer if "text" in answer else np.allclose(alone["scores"], answer["scores"], rtol=1e-4)
        assert model.read(request, answer)


@pytest.mark.slow
def test_layouts_of_the_weights(networks, models, folders, tmp_path):
    """The published names, those of the installed transformers, and a head that is the embeddings."""
    network, loaded = networks[OURS], models[OURS]
    saved = weights.read_weights([str(path) for path in sorted(folders[OURS].glob("*.safetensors"))])
    network.save_pretrained(tmp_path)
    installed = weights.read_weights([str(tmp_path / "model.safetensors")])

    def older(name):  # before transformers 4.52
        return name.replace("model.visual.", "visual.").replace("model.language_model.", "model.")

    published = {older(name): tensor for name, tensor in saved.items()}
    assert {"visual.merger.ln_q.weight", "model.norm.weight", "lm_head.weight"} < published.keys()

    def build(tensors):
        return vision_language.build_vision_language(Qwen25VLForConditionalGeneration, loaded.config, tensors)

    assert len({build(layout)[2] for layout in (saved, installed, published)}) == 1
    without = {name: tensor for name, tensor in published.items() if name != "lm_head.weight"}
    config, (_, state), _ = build(without)
    assert config.text_config.tie_word_embeddings
    assert "lm_head" not in state["language_model"]


def test_one_flat_config(folders, tmp_path):
    """Published files have no text_config, and some others have the same options twice."""
    folder = shutil.copytree(folders[OURS], tmp_path / "flat")
    values = json.loads((folder / "config.json").read_text())
    text = values.pop("text_config")
    del text["layer_types"], text["model_type"]
    rope = text.pop("rope_parameters")
    text |= {
        "rope_theta": rope["rope_theta"],
        "rope_scaling": {"type": "mrope", "mrope_section": rope["mrope_section"]},
    }
    (folder / "config.json").write_text(json.dumps(text | values))
    assert load(folder).fingerprint == load(folders[OURS]).fingerprint
    twice = text | values | {"text_config": text | {"model_type": "qwen2_5_vl_text"}, "hidden_size": 5}
    assert Qwen25VLConfig.from_dict(twice) == Qwen25VLConfig.from_dict(text | values)


PUBLISHED = published_configs.of("qwen2_5_vl")  # of Qwen/Qwen2.5-VL-7B-Instruct and its siblings


@pytest.mark.parametrize(
    ("name", "expected"), [pytest.param("3b", 3_754_622_976, marks=pytest.mark.slow), ("7b", 8_292_166_656)]
)
def test_published_sizes(name, expected):
    """The hub's numbers of parameters, from shapes."""
    config = Qwen25VLConfig.from_dict(PUBLISHED[name])
    assert Qwen25VLConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    network = language_models.abstract_network(Qwen25VLForConditionalGeneration, config)
    assert sum(leaf.size for leaf in jax.tree.leaves(nnx.state(network))) == expected
    assert config.text_config.axes == (0,) * 16 + (1,) * 24 + (2,) * 24
    assert config.vision_config.window == 8


def test_published_preprocessing():
    """The published file allows more pixels than we take by default. Its other name of 2025 means the same."""
    images = {"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}
    images |= {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
    images |= {"image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2_5_VLProcessor"}
    usual = PatchProcessor.from_config(images)
    assert (usual.max_pixels, usual.most_patches) == (1_003_520, 5120)
    both = {
        "image_processor_type": "Qwen2_5_VLImageProcessor",
        "size": {"longest_edge": 12845056, "shortest_edge": 3136},
    }
    assert PatchProcessor.from_config(images | both) == usual
    official = transformers.Qwen2VLImageProcessorPil(**images)
    ours = PatchProcessor.from_config(images, 12845056)
    for image in make_images():
        expected = official(image.convert("RGB"), return_tensors="np")
        result = ours(image)
        count = result.grid.prod()
        assert [1, *result.grid.tolist()] == expected["image_grid_thw"][0].tolist()
        pixels = np.asarray(ours.normalize(Patches(result.pixels[:count], result.grid)).pixels)
        pixels = pixels.reshape(-1, 14, 14, 3).transpose(0, 3, 1, 2)
        theirs = expected["pixel_values"].reshape(count, 3, 2, 14, 14)
        np.testing.assert_array_equal(pixels, theirs[:, :, 0])


def test_bad_configs():
    values = PUBLISHED["7b"]
    tower = values["vision_config"]
    faults = [
        ({"use_sliding_window": True}, ("unsupported-option", "sliding_window")),
        ({"rope_scaling": {"type": "mrope", "mrope_section": [16, 24]}}, ("unsupported-option", "mrope_section", "64")),
        (
            {"rope_scaling": {"mrope_section": [16, 24, 24], "mrope_interleaved": True}},
            ("unsupported-option", "mrope_interleaved"),
        ),
        ({"vision_config": tower | {"window_size": 27}}, ("unsupported-option", "window_size", "28 pixels")),
        ({"vision_config": tower | {"fullatt_block_indexes": [7.5]}}, ("unsupported-option", "fullatt_block_indexes")),
        ({"vision_config": tower | {"hidden_act": "gelu"}}, ("unsupported-option", "hidden_act")),
        ({"vision_config": tower | {"out_hidden_size": 2048}}, ("unsupported-option", "out_hidden_size", "3584")),
        ({"attention_bias": True}, ("unsupported-option", "attention_bias")),
        ({"frames": 3}, ("unknown-option", "frames")),
        ({"model_type": "qwen2_vl"}, ("wrong-kind-of-model", "qwen2_vl")),
    ]
    for fault, message in faults:
        with raises(*message):
            Qwen25VLConfig.from_dict(values | fault)
