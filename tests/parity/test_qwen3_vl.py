"""Qwen3-VL against torch transformers: from published folders to pixels, states, logits, scores and texts.

Images of a batch differ in shape. Float32, relative to the largest expected value.
"""

import json
import shutil

import jax
import numpy as np
import pytest
import torch
import transformers
from flax import nnx
from PIL import Image

from tests import tiny_language_models
from tests.expectations import raises
from tests.parity import published_configs
from tests.parity.harness import QUICK_COMPILATION, check_close, relative_error
from tests.tiny_vision_language import QWEN_IMAGES, write_vision_language
from winobench import parallel
from winobench.checkpoints import language_models, models, vision_language, weights
from winobench.data.patches import MAX_PIXELS, PatchProcessor
from winobench.models.qwen3_vl import Qwen3VLForConditionalGeneration
from winobench.models.qwen3_vl_config import Qwen3VLConfig
from winobench.responders.vision_language import VisionLanguageModel
from winobench.rubrics.geneval2 import spellings
from winobench.runs.requests import ImageTurn, InputImage, Turn
from winobench.scorers import loading, vqa_score
from winobench.scorers.vqa_score import VQAScore

TOLERANCE = 1e-5
# Height and width: a grid of 4 x 12 patches, the largest one, one that is enlarged, and a gray one.
SIZES = ((17, 50), (40, 48), (9, 5), (31, 31))
TEXTS = ["a red cube", "the blue ball left of a red cube", ""]
ANSWERS = ((17, 3), (30, 31, 3))


def make_images():
    rng = np.random.default_rng(4)
    *colours, gray = (rng.integers(0, 256, (*size, 3), dtype=np.uint8) for size in SIZES)
    return [*map(Image.fromarray, colours), Image.fromarray(gray[..., 0])]


@pytest.fixture(scope="module", autouse=True)
def _quick():
    step = vqa_score._score_pairs.__wrapped__
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        compiled = jax.jit(step, static_argnames="how", compiler_options=QUICK_COMPILATION)
        patch.setattr(vqa_score, "_score_pairs", compiled)
        tiny_language_models.compile_quickly(patch)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_vision_language(tmp_path_factory.mktemp("qwen3-vl"), "qwen3_vl")


@pytest.fixture(scope="module")
def network(folder):
    return transformers.Qwen3VLForConditionalGeneration.from_pretrained(folder).eval()


@pytest.fixture(scope="module")
def loaded(folder):
    return vision_language.load_vision_language(folder, mesh=parallel.make_mesh(jax.devices()[:1]))


def torch_inputs(folder, image, question, more=()):
    """What the published processor makes of one picture and a question in the chat template, and tokens behind it."""
    images = transformers.Qwen2VLImageProcessorPil.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = images(image.convert("RGB"), return_tensors="pt")
    content = [{"type": "image"}, {"type": "text", "text": question}]
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
    )
    count = int(inputs["image_grid_thw"].prod()) // images.merge_size**2
    ids = tokenizer(text.replace("<|image_pad|>", "<|image_pad|>" * count))["input_ids"]
    ids = torch.tensor([[*ids, *more]])
    is_image = ids == tokenizer.convert_tokens_to_ids("<|image_pad|>")
    return {**inputs, "input_ids": ids, "mm_token_type_ids": is_image.int()}


def asked(text):
    return f'Does this figure show "{text}"? Please answer Yes or No.'


@pytest.mark.slow
def test_states_logits_and_answers(network, loaded, folder):
    """Vision tower and language model, with questions of unlike lengths about pictures of unlike shapes."""
    graph, state = loaded.network
    patches = [loaded.processor(image) for image in make_images()[:3]]
    assert [image_patches.grid.tolist() for image_patches in patches] == [[4, 12], [8, 10], [6, 4]]
    assert loaded.processor.most_patches == 96
    before, result = loaded.tokens(loaded.form.template, [asked(text) for text in TEXTS])
    lengths = np.array([len(ids) for ids in result], np.int32)
    ids = np.array([[*ids, *[7] * (lengths.max() + 2 - len(ids))] for ids in result], np.int32)

    def run(state, patches, ids, lengths):
        model = nnx.merge(graph, state)
        pixels = loaded.processor.normalize(patches)
        states, deep = model.visual(pixels)
        read = (model.ask(model.encode_image(pixels, before)), ids, lengths)
        logits = model.language_model.logits(model.continue_from(*read, 0)[0])
        return [states, *deep], logits, model.answer_log_probabilities(*read, ANSWERS)

    batch = jax.tree.map(lambda *rows: np.stack(rows), *patches)
    with jax.default_matmul_precision("highest"):
        states, logits, answers = jax.jit(run, compiler_options=QUICK_COMPILATION)(state, batch, ids, lengths)
    for row, (image, text) in enumerate(zip(make_images(), TEXTS, strict=False)):
        for number, answer in enumerate(ANSWERS):
            inputs = torch_inputs(folder, image, asked(text), answer[:-1])
            seen = network.model.visual(inputs["pixel_values"], inputs["image_grid_thw"])
            theirs = [seen.pooler_output, *seen.deepstack_features]
            check_close([part[row, : len(theirs[0])] for part in states], theirs, TOLERANCE)
            expected = network(**inputs).logits[0, -len(answer) :]
            likelihoods = torch.log_softmax(expected, dim=-1)[range(len(answer)), list(answer)]
            check_close([logits[row], answers[number][row]], [expected[0], likelihoods], TOLERANCE)
    # Otherwise nothing would show that picture and question are looked at.
    assert np.ptp(np.asarray(logits), axis=0).max() > 0.1


@pytest.mark.slow
def test_published_score(network, loaded, folder):
    """The log-odds of "Yes" as the first token, for pairs of several pictures in a batch."""
    tokenizer = loaded.tokenizer
    yes, no = (tokenizer(word)["input_ids"] for word in ("Yes", "No"))
    assert len(yes) == len(no) == 1
    expected = np.zeros((len(SIZES), len(TEXTS), 2))
    for row, image in enumerate(make_images()):
        for column, text in enumerate(TEXTS):
            logits = network(**torch_inputs(folder, image, asked(text))).logits[0, -1]
            expected[row, column] = torch.log_softmax(logits, dim=-1)[[*yes, *no]]
    scores = expected[..., 0] - expected[..., 1]
    scorer = VQAScore(loaded, score="log_odds", batch_size=4)
    assert relative_error(scorer.score(make_images(), TEXTS), scores) < TOLERANCE
    assert np.ptp(scores, axis=0).min() > 1e-3 * np.abs(scores).max()
    assert np.ptp(scores, axis=1).min() > 1e-3 * np.abs(scores).max()


@pytest.mark.slow
def test_greedy_texts(network, loaded, folder):
    """Texts that grow behind pictures of unlike shapes, as alone."""
    captioner = VisionLanguageModel(loaded, batch_size=2)
    prompts = ["", "Is the ball left of the red cube?", "a cube", ""]
    expected = []
    for image, prompt in zip(make_images(), prompts, strict=True):
        inputs = torch_inputs(folder, image, prompt or "Describe this image.")
        ids = network.generate(**inputs, do_sample=False, max_new_tokens=12)
        written = ids[0, inputs["input_ids"].shape[1] :]
        expected.append(loaded.tokenizer.decode(written, skip_special_tokens=True).strip())
    assert captioner.write(make_images(), prompts, max_tokens=12) == expected
    assert len(set(expected)) == len(expected)
    with raises("image-slot-in-text", "'a <|image_pad|>'"):
        captioner.write(make_images()[:1], "a <|image_pad|>")


@pytest.mark.slow
def test_layouts_of_the_weights(network, loaded, folder, tmp_path):
    """The published names, those of the installed transformers, and a head that is the embeddings."""
    tensors = weights.read_weights([str(path) for path in sorted(folder.glob("*.safetensors"))])
    assert tensors.keys() == network.state_dict().keys()
    shapes = sorted(shape for _, shape in models.torch_names(loaded.module()).values())
    assert shapes == sorted(tuple(tensor.shape) for tensor in network.state_dict().values())
    network.save_pretrained(tmp_path)
    saved = weights.read_weights([str(tmp_path / "model.safetensors")])

    def build(tensors):
        cls = Qwen3VLForConditionalGeneration
        return vision_language.build_vision_language(cls, loaded.config, tensors)

    assert len({build(layout)[2] for layout in (tensors, saved)}) == 1
    without = {name: tensor for name, tensor in tensors.items() if name != "lm_head.weight"}
    assert len(without) == len(tensors) - 1
    config, (_, state), _ = build(without)
    assert config.text_config.tie_word_embeddings
    assert "lm_head" not in state["language_model"]


def test_preprocessing():
    """Pictures of odd shapes, gray, and with an alpha channel that is opaque; transparent ones are on white."""
    options = QWEN_IMAGES | {"size": {"shortest_edge": 4096, "longest_edge": 100_000}}
    official = transformers.Qwen2VLImageProcessorPil(**options)
    ours = PatchProcessor.from_config(options)
    rng = np.random.default_rng(4)
    shapes = ((351, 470), (20, 9), (1, 3), (337, 335), (3, 500))
    images = [Image.fromarray(rng.integers(0, 256, (*shape, 3), dtype=np.uint8)) for shape in shapes]
    images += [Image.fromarray(rng.integers(0, 256, (33, 47), dtype=np.uint8)), images[0].copy()]
    images[-1].putalpha(255)
    for image in images:
        expected = official(image.convert("RGB"), return_tensors="np")
        result = ours(image)
        assert [1, *result.grid.tolist()] == expected["image_grid_thw"][0].tolist()
        count = result.grid.prod()
        side = official.patch_size
        pixels = np.asarray(ours.normalize(result).pixels).reshape(-1, side, side, 3).transpose(0, 3, 1, 2)
        theirs = expected["pixel_values"].reshape(count, 3, 2, side, side)
        for frame in range(2):
            np.testing.assert_array_equal(pixels[:count], theirs[:, :, frame])
        assert not result.pixels[count:].any()
    images[0].putalpha(0)
    result = ours(images[0])
    assert (result.pixels[: result.grid.prod()] == 255).all()


def test_bounds_of_pictures(folder):
    """What is asked for, what files allow, and what is usual; another bound is another model."""
    published = QWEN_IMAGES | {"size": {"shortest_edge": 65536, "longest_edge": 16777216}, "patch_size": 16}
    usual = PatchProcessor.from_config(published)
    assert (usual.max_pixels, usual.most_patches) == (MAX_PIXELS, 4 * 980)
    assert PatchProcessor.from_config(QWEN_IMAGES).max_pixels == 32 * 48
    wide = PatchProcessor.from_config(published, 2**22)
    assert wide(np.zeros((2048, 2048, 3), np.uint8)).grid.tolist() == [128, 128]
    assert usual(np.zeros((2048, 2048, 3), np.uint8)).grid.tolist() == [62, 62]
    for wrong in (1024, 2**25, "many"):
        with raises("bad-value", "max_pixels", "16,777,216"):
            PatchProcessor.from_config(published, wrong)
    with raises("image-too-elongated", "2001 x 10", "200 times"):
        usual(np.zeros((10, 2001, 3), np.uint8))
    few = PatchProcessor.from_config(QWEN_IMAGES)
    with raises("image-too-elongated", "400 x 2", "max_pixels=1536"):
        few(np.zeros((2, 400, 3), np.uint8))
    scorers = [loading.load_scorer(str(folder), max_pixels=bound) for bound in (None, 1024)]
    assert [scorer.processor.max_pixels for scorer in scorers] == [32 * 48, 1024]
    assert len({scorer.fingerprint()["model"] for scorer in scorers}) == 2
    with raises("bad-value", "max_pixels", "1,536"):
        VisionLanguageModel.from_pretrained(folder, max_pixels=2000)


QWEN3_VL = published_configs.of("qwen3_vl")  # of Qwen/Qwen3-VL-4B-Instruct and its siblings


def test_published_sizes():
    """The hub's number of parameters, from shapes."""
    config = Qwen3VLConfig.from_dict(QWEN3_VL["2b"])
    assert Qwen3VLConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    network = language_models.abstract_network(Qwen3VLForConditionalGeneration, config)
    assert sum(leaf.size for leaf in jax.tree.leaves(nnx.state(network))) == 2_127_532_032
    # Of 64 pairs: time has what the others leave, and all that is behind them.
    axes = config.text_config.axes
    assert axes[:7] == (0, 1, 2, 0, 1, 2, 0)
    assert [axes.count(axis) for axis in range(3)] == [24, 20, 20]
    assert axes[-4:] == (0, 0, 0, 0)


def test_bad_configs():
    values = QWEN3_VL["2b"]
    text, tower = values["text_config"], values["vision_config"]
    section = {"mrope_interleaved": True, "mrope_section": [24, 20], "rope_type": "default"}
    faults = [
        ({"text_config": text | {"model_type": "qwen3_vl_moe_text"}}, ("wrong-kind-of-model", "qwen3_vl_moe_text")),
        ({"text_config": text | {"rope_scaling": section}}, ("unsupported-option", "mrope_section", "64 in all")),
        (
            {"text_config": text | {"rope_scaling": section | {"mrope_interleaved": False}}},
            ("unsupported-option", "mrope_interleaved"),
        ),
        ({"vision_config": tower | {"out_hidden_size": 2560}}, ("unsupported-option", "out_hidden_size", "2048")),
        ({"vision_config": tower | {"num_position_embeddings": 2305}}, ("unsupported-option", "a square")),
        ({"vision_config": tower | {"deepstack_visual_indexes": [5, 24]}}, ("unsupported-option", "24")),
        ({"image_token_id": 151936}, ("unsupported-option", "image_token_id", "151936")),
        ({"model_type": "qwen3_vl_moe"}, ("wrong-kind-of-model", "qwen3_vl_moe")),
    ]
    for fault, message in faults:
        with raises(*message):
            Qwen3VLConfig.from_dict(values | fault)


def test_parts_of_other_models(folder, tmp_path):
    """An image's place that the tokenizer lacks, tokens that do not agree, patches of another size, a bad template."""
    copy = shutil.copytree(folder, tmp_path / "copy")

    def changed(name, old, new):
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        text = (folder / name).read_text()
        assert old in text
        (copy / name).write_text(text.replace(old, new))

    changed("config.json", '"image_token_id": 402', '"image_token_id": 7')
    with raises("mismatched-parts", "<|image_pad|>", "image_token_id=7"):
        VQAScore.from_pretrained(copy)
    changed("preprocessor_config.json", '"patch_size": 4', '"patch_size": 14')
    with raises("mismatched-parts", "14 x 14", "4 x 4"):
        VQAScore.from_pretrained(copy)
    for token in ("<|image_pad|>", "<|vision_start|>"):
        changed("tokenizer.json", token, "<|other|>")
        config = (folder / "tokenizer_config.json").read_text().replace(token, "<|other|>")
        (copy / "tokenizer_config.json").write_text(config)
        with raises("mismatched-parts", "tokenizer", f"no token {token}"):
            VQAScore.from_pretrained(copy)
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    (copy / "chat_template.jinja").write_text("{% for message in messages %}{{ message['content'] }}{% endfor %}")
    with raises("mismatched-parts", "chat_template.jinja", "no <|image_pad|>"):
        VisionLanguageModel.from_pretrained(copy)
    for cls, option in ((VQAScore, "question"), (VisionLanguageModel, "template")):
        with raises("bad-template", option, "'Is it {}?'", "<|image_pad|>"):
            cls.from_pretrained(folder, **{option: "Is it {}?"})


@pytest.mark.slow
def test_max_pixels_of_others(tmp_path):
    folder = write_vision_language(tmp_path, "llava")
    with raises("option-of-others", "max_pixels", "one size"):
        VQAScore.from_pretrained(folder, max_pixels=1024)
    for refuses in (loading.load_scorer, loading.check_scorer):
        with raises("option-of-others", "max_pixels", "'clip-vit-b32'"):
            refuses("clip-vit-b32", max_pixels=1024)


@pytest.mark.slow
def test_bfloat16_int8_and_shared_parameters(folder, loaded):
    scorer = VQAScore(loaded, batch_size=4)
    whole = scorer.score(make_images(), TEXTS)
    for options in ({"dtype": "bfloat16"}, {"int8": True}):
        scores = VQAScore.from_pretrained(folder, mesh=scorer.mesh, **options).score(make_images(), TEXTS)
        np.testing.assert_allclose(scores, whole, rtol=0.3)
        assert not np.array_equal(scores, whole)
    mesh = parallel.make_mesh(jax.devices()[:4], model_parallel=2)
    shared = VQAScore.from_pretrained(folder, mesh=mesh, table_rows=2)
    np.testing.assert_allclose(shared.score(make_images(), TEXTS), whole, rtol=1e-4)


def test_starts_of_answers_are_as_likely_as_in_torch(loaded, network, folder):
    """GenEval 2's Soft-TIFA: the sum of the probabilities of the spellings' first tokens."""
    questions = [("Is the ball red? Answer in one word.", spellings("Is the ball red?", "Yes"))]
    questions += [("How many cubes? Answer in one word.", spellings("How many cubes?", "four"))] * 2
    model = VisionLanguageModel(loaded, batch_size=2)
    images = make_images()[: len(questions)]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for (question, starts), image in zip(questions, images, strict=True):
        ((_, score),) = model.iter_start_scores([image], [question], [starts])
        likely = network(**torch_inputs(folder, image, question)).logits[0, -1].softmax(dim=-1)
        expected = sum(float(likely[tokenizer.encode(start)[0]]) for start in starts)
        np.testing.assert_allclose(np.exp(score), expected, rtol=1e-4)
    together = dict(model.iter_start_scores(images[1:], [question] * 2, [starts] * 2))
    np.testing.assert_allclose(together[1], score, rtol=1e-4)
    with raises("cannot-answer", "''"):
        list(model.iter_start_scores(images[:1], [question], [("",)]))


def test_a_conversation_about_an_image_is_the_chat_templates(loaded, folder):
    model = VisionLanguageModel(loaded)
    turns = [("user", "Describe it."), ("assistant", "A ball,\nblue."), ("user", "Is it {} red?")]
    request = ImageTurn(InputImage("a.png", ""), turns[-1][1], before=tuple(Turn(*turn) for turn in turns[:-1]))
    messages = [{"role": role, "content": [{"type": "text", "text": text}]} for role, text in turns]
    messages[0]["content"].insert(0, {"type": "image"})
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    expected = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert model.template.replace("{}", model._asked(request)) == expected
    assert ImageTurn.kind in model.kinds


def test_a_width_at_the_top_of_a_file_has_no_effect(folder):
    """As in the file of UniGenBench-EvalModel-qwen3vl-32b-v1, where the language model's is there once more."""
    values = json.loads((folder / "config.json").read_text())
    assert Qwen3VLConfig.from_dict({**values, "hidden_size": 5120}) == Qwen3VLConfig.from_dict(values)
