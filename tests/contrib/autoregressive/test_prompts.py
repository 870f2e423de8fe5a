"""What a model reads: prompts, the text that stands for none, positions, and images as the model's own processor."""

import numpy as np
import pytest
import torch

from tests.contrib.autoregressive.tiny import IMAGE_SIZES, TEXTS, WRITERS, pictures
from tests.expectations import raises
from winobench.contrib.autoregressive.scorer import ImageLikelihood, ImagePreparation
from winobench.models import snapshots

FAMILIES = tuple(WRITERS)


@pytest.mark.quick(1)
@pytest.mark.parametrize("family", FAMILIES)
def test_prompts_are_those_of_generate(load_generator, reference_of, family):
    generator, reference = load_generator(family), reference_of(family)
    prompts = generator.family.prompts(generator.processor, TEXTS)
    inputs = [reference.inputs(text) for text in TEXTS]
    assert prompts == [given["input_ids"][0].tolist() for given in inputs]
    without = [generator.family.unconditional(generator.processor, prompt) for prompt in prompts]
    assert without == [reference.without_text(given)["input_ids"][0].tolist() for given in inputs]


def test_prompts_in_words(load_generator):
    def words(family, text):
        generator = load_generator(family)
        (ids,) = generator.family.prompts(generator.processor, [text])
        return generator.processor.tokenizer.decode(ids)

    assert words("janus", "a dog").replace("> <", "><") == "<bos><|User|>: a dog\n\n<|Assistant|>:<begin_of_image>"
    assert words("emu3", "a dog") == "<|extra_203|>a dog<|image start|>8*8<|image token|>"
    assert words("glm_image", "a dog") == "a dog<sop>4 4<eop><sop>16 16<eop><|image_start|>"


def test_no_text_of_a_janus_is_padding(load_generator, one_device):
    """Its own template would give an empty text, which no training has seen."""
    likelihood = ImageLikelihood(load_generator("janus"), mesh=one_device)
    family = likelihood.model.family
    empty, text = likelihood._tokenize(["", "a dog"])
    number = empty[-1]
    assert empty[:number].tolist() == [family.bos, *[family.pad] * (number - 2), family.boi]
    assert number == text[-1] - len("a dog")
    guided = ImageLikelihood(load_generator("janus"), guidance=5.0, mesh=one_device)
    (row,) = guided._tokenize(["a dog"])
    own, without = np.split(row, 2)
    assert own[-1] == without[-1] == text[-1]
    assert {*without[1 : without[-1] - 1]} == {family.pad}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_that_is_too_long_is_refused(load_generator, one_device, family):
    likelihood = ImageLikelihood(load_generator(family), mesh=one_device)
    longest = 1024 - likelihood.model.family.length
    with raises("too-long", "shorten", f"{longest:,}"):
        likelihood.score(pictures(1), ["a dog", "x" * longest])


def test_positions_of_glm_image(load_generator, reference_of):
    reference, family = reference_of("glm_image"), load_generator("glm_image").family
    model, lengths, rows = reference.model.model, [], []
    for text in TEXTS[:2]:
        inputs = reference.inputs(text)
        model.rope_deltas = None
        shape = inputs["image_grid_thw"], inputs["images_per_sample"], inputs["attention_mask"]
        prompt, _ = model.get_rope_index(inputs["input_ids"], *shape)
        image = model._cached_decode_position_ids.permute(1, 0, 2)[:, :, : family.length]
        rows.append(torch.cat([prompt, image], -1)[:, 0])
        lengths.append(prompt.shape[-1])
    got = family.positions(torch.tensor(lengths), max(lengths) + family.length)
    for number, (length, wanted) in enumerate(zip(lengths, rows, strict=True)):
        assert torch.equal(got[:, number, : length + family.length], wanted)


@pytest.mark.parametrize("family", FAMILIES)
def test_squares_are_prepared_as_by_the_models_own_processor(load_generator, reference_of, family):
    """An image of another shape becomes the same square by squashing, and by cropping its middle."""
    layout, reference = load_generator(family).family, reference_of(family)
    (square,) = pictures(1, side=IMAGE_SIZES[family] or 64)
    wanted = [part["pixel_values"] for part in reference.pixels(square)]
    if family == "glm_image":  # patches [tokens, 3 x 16 x 16] as an image
        wanted = [
            torch.nn.functional.fold(part.T[None], (side, side), kernel_size=16, stride=16)
            for part, side in zip(wanted, layout.sides, strict=True)
        ]
    for name in ("squash", "crop"):
        preparation = ImagePreparation.of(layout, name)
        prepared = preparation.normalize([array[None] for array in preparation(square)])
        for got, array in zip(prepared, wanted, strict=True):
            np.testing.assert_allclose(np.moveaxis(np.asarray(got), -1, 1), array, atol=1e-6)


def test_other_shapes_are_squashed_or_cropped(load_generator):
    layout = load_generator("janus").family
    (square,) = pictures(1, side=64)
    wide = square.resize((128, 64))
    wide_of = {name: ImagePreparation.of(layout, name)(wide)[0] for name in ("squash", "crop")}
    pixels = np.asarray(wide)
    np.testing.assert_array_equal(wide_of["crop"], pixels[:, 32:96])
    np.testing.assert_array_equal(wide_of["squash"], np.asarray(wide.resize((64, 64), 3)))


def test_codes_of_transformers_are_not_the_published_ones(reference_of):
    """transformers compares distances of vectors whose length the published tokenizer takes away."""
    reference, images = reference_of("janus"), pictures()
    theirs = [
        reference.model.model.vqmodel.encode(reference.pixels(image)[0]["pixel_values"]).image_tokens.flatten()
        for image in images
    ]
    agreeing = [(codes == reference.codes(image)).float().mean() for codes, image in zip(theirs, images, strict=True)]
    assert np.mean(agreeing) < 0.9


def test_tied_heads_stay_tied(load_generator, reference_of):
    """Janus's head of words is its table of embeddings."""
    network, reference = load_generator("janus").network, reference_of("janus")
    assert "lm_head.weight" not in network.arrays
    ids = np.arange(12, dtype=np.int32)[None]

    def logits(m, ids):
        return m.lm_head(m.model.language_model(ids, use_cache=False).last_hidden_state)

    structure, params = snapshots.split(network)
    got = structure.module(params).apply(logits, ids)
    wanted = logits(reference.model, torch.tensor(ids).long())
    np.testing.assert_allclose(got, wanted, atol=1e-4 * float(wanted.std()))


@pytest.mark.parametrize(
    ("family", "word"), [("janus", "<image_placeholder>"), ("emu3", "<image>"), ("glm_image", "<|image|>")]
)
def test_texts_with_the_word_for_an_image_are_refused(load_generator, one_device, family, word):
    likelihood = ImageLikelihood(load_generator(family), mesh=one_device)
    with raises("image-slot-in-text", f"a {word}", "image's place"):
        likelihood.score(pictures(1), ["a dog", f"a {word}"])
