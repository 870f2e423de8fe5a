"""Images by generators that predict tokens, against transformers' own `generate` and decoders."""

import functools
import shutil

import jax
import numpy as np
import pytest
import torch

from tests import launching
from tests.contrib.autoregressive.test_generate import GENERATED
from tests.contrib.autoregressive.tiny import IMAGE_SIZES, TEXTS
from tests.expectations import raises
from winobench import parallel
from winobench.base import memory, random_numbers
from winobench.base.errors import InputError
from winobench.checkpoints import sources
from winobench.contrib.autoregressive import loading, network
from winobench.contrib.autoregressive.emu3 import Emu3
from winobench.contrib.autoregressive.generation import TokenGeneration
from winobench.contrib.autoregressive.scorer import ImageLikelihood
from winobench.diffusion import pure_functions
from winobench.diffusion.generation import image_keys
from winobench.generation import generate
from winobench.generation.loading import make_generators
from winobench.prompts.prompt_files import Prompt
from winobench.runs import image_runs, provenance
from winobench.scorers import pairs

FAMILIES = ("janus", "emu3")
ROWS = 8  # of an Emu3 image's tokens


@pytest.fixture(scope="module")
def made(write_generator):
    """Family -> its generator, on as few devices as a test needs."""

    @functools.cache
    def load(family, devices=1, sharing=1, **options):
        mesh = parallel.make_mesh(jax.local_devices()[:devices], model_parallel=sharing)
        return TokenGeneration.from_pretrained(
            write_generator(family), image_size=IMAGE_SIZES[family], mesh=mesh, **options
        )

    return load


def most_likely(reference, text, guidance):
    """The codes of an image by transformers' `generate`, int [codes]."""
    more = {} if reference.family == "janus" else {"negative": Emu3.NEGATIVE}
    return GENERATED[reference.family](reference, reference.inputs(text), guidance, **more)[0].numpy()


def guided_logits(made, texts, codes, guidance):
    """Logits of all codes of images, with the earlier codes known, by torch: [n, codes, entries]."""
    model, family = made.model, made.model.family
    prompts, without = loading.prompts(model, made.tokenizing, texts)
    if family.NEGATIVE is not None:
        without = family.prompts(made.tokenizing, [family.NEGATIVE]) * len(texts)

    def of(m, *inputs):
        states = family.before_head(m, network.states_of(family, m, *inputs, places=family.scored_places()))
        weight, bias = family.last_layer(m)
        return torch.nn.functional.linear(states, weight, bias)

    logits = []
    for ids in (prompts, without):
        rows = pairs.token_rows(ids, 0, model.longest_prompt)
        logits.append(model.apply_in_torch(of, rows[:, :-1], rows[:, -1], codes))
    return logits[1] + guidance * (logits[0] - logits[1])


@pytest.mark.quick(1)
@pytest.mark.parametrize("family", FAMILIES)
def test_most_likely_codes_are_those_of_transformers(made, reference_of, family):
    texts = [text for text in TEXTS if text]
    greedy, guidance = made(family, temperature=0), {"janus": 5.0, "emu3": 3.0}[family]
    wanted = np.stack([most_likely(reference_of(family), text, guidance) for text in texts])
    assert len(np.unique(wanted, axis=0)) == len(texts)
    for batch_size in (1, 3):
        np.testing.assert_array_equal(greedy.sample_codes(texts, batch_size=batch_size), wanted)


@pytest.mark.slow
def test_most_likely_codes_without_guidance(made, reference_of):
    greedy = made("emu3", temperature=0)
    wanted, guided = (most_likely(reference_of("emu3"), TEXTS[0], guidance) for guidance in (None, 3.0))
    assert (wanted != guided).any()
    np.testing.assert_array_equal(greedy.sample_codes(TEXTS[:1], guidance_scale=1.0)[0], wanted)


@pytest.mark.quick(1)
@pytest.mark.parametrize("family", FAMILIES)
def test_sampled_codes_follow_the_logits_under_the_codes_before(made, family):
    """The sampler's noise added to torch's logits, with the sampled codes known, gives the sampled codes."""
    sampling, numbers = made(family), [4, 0, 9, 2, 7]
    how = {"guidance_scale": 2.0, "seed": 3}
    codes = sampling.sample_codes(TEXTS, numbers=numbers, batch_size=5, **how)
    logits = guided_logits(sampling, TEXTS, codes, 2.0)
    keys, places = image_keys(3, numbers, len(TEXTS))[0], sampling.model.family.scored_places()
    noise = np.stack(
        [[random_numbers.gumbel(jax.random.fold_in(key, place), logits.shape[2:]) for place in places] for key in keys]
    )
    np.testing.assert_array_equal(np.argmax(logits + noise, axis=-1), codes)
    assert len({tuple(row) for row in codes}) == len(TEXTS)
    # Noise decides, so that a sampler without any would fail.
    assert (np.argmax(logits, axis=-1) != codes).mean() > 0.2


@pytest.mark.slow
def test_first_codes_have_the_distribution_of_the_logits(made):
    """Pearson's chi-square of 800 first codes in 8 groups of codes. It exceeds 29.9 once in 10,000 times."""
    sampling, number = made("janus", temperature=1.5), 800
    codes = sampling.sample_codes(["a dog"] * number, guidance_scale=2.0, batch_size=200)
    logits = guided_logits(sampling, ["a dog"], codes[:1], 2.0)[0, 0] / 1.5
    chances = np.exp(logits - logits.max())
    chances /= chances.sum()
    order = np.argsort(chances)
    group = np.empty(len(order), int)
    group[order] = np.minimum(np.cumsum(chances[order]) * 8, 7.999).astype(int)
    expected = np.bincount(group, chances, 8) * number
    seen = np.bincount(group[codes[:, 0]], minlength=8)
    kept = expected > 5
    assert kept.sum() >= 4
    assert np.sum((seen - expected)[kept] ** 2 / expected[kept]) < 29.9


@pytest.mark.slow
def test_codes_outside_the_largest_logits_are_never_sampled(made):
    codes = made("janus", top_k=3).sample_codes(TEXTS[:2], guidance_scale=2.0, batch_size=2)
    logits = guided_logits(made("janus"), TEXTS[:2], codes, 2.0)
    ranks = (logits > np.take_along_axis(logits, codes[..., None], -1)).sum(-1)
    assert ranks.max() == 2
    assert (ranks > 0).any()


def test_an_image_depends_on_its_seed_and_number_alone(made):
    one, several = made("janus"), made("janus", devices=4)
    together = one.sample_codes(TEXTS, seed=5, numbers=[10, 11, 12, 13, 14], batch_size=5)
    np.testing.assert_array_equal(several.sample_codes(TEXTS, seed=5, numbers=range(10, 15), batch_size=8), together)
    alone = one.sample_codes([TEXTS[3]], seed=[5], numbers=[13], batch_size=1)
    np.testing.assert_array_equal(alone[0], together[3])
    assert (one.sample_codes([TEXTS[3]], seed=6, numbers=[13], batch_size=1) != alone).mean() > 0.5
    assert (one.sample_codes([TEXTS[3]], seed=5, numbers=[14], batch_size=1) != alone).mean() > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_devices_that_share_a_model_generate_the_same(made, family):
    """In bytes of an image, rounding may be one step. Two heads are divided by two devices, and not by eight."""
    one = made(family)
    codes = one.sample_codes(TEXTS, seed=5, batch_size=5)
    images = one.decode(codes).images.astype(int)
    for devices, sharing in ((4, 2), (8, 8)):
        shared = made(family, devices=devices, sharing=sharing)
        np.testing.assert_array_equal(shared.sample_codes(TEXTS, seed=5, batch_size=5), codes)
        assert np.abs(shared.decode(codes).images - images).max() <= 1
        held = sum(shard.data.nbytes for array in shared._params for shard in array.addressable_shards[:1])
        assert held < 1.2 / sharing * memory.array_bytes(one._params)


@pytest.mark.slow
def test_a_run_of_images_by_devices_that_share_a_model(write_generator, tmp_path, monkeypatch):
    devices = jax.local_devices()[:4]
    monkeypatch.setattr(jax, "local_devices", lambda: devices)
    (generator,) = make_generators([str(write_generator("janus"))], model_parallel=2)
    batch_sizes, sample = [], TokenGeneration.sample_codes

    def noted(self, texts, *, batch_size, **keywords):
        batch_sizes.append((len(texts), batch_size, dict(self.mesh.shape)))
        return sample(self, texts, batch_size=batch_size, **keywords)

    monkeypatch.setattr(TokenGeneration, "sample_codes", noted)
    prompts = [Prompt(str(number), "a dog") for number in range(5)]
    generate.generate_images([generator], prompts, tmp_path / "run", batch_size=2, progress=False)
    mesh = {parallel.DATA_AXIS: 2, parallel.MODEL_AXIS: 2}
    assert batch_sizes == [(4, 4, mesh), (1, 4, mesh)]


def test_diffusion_models_generate_on_each_device_alone(tiny_pipeline):
    with pytest.raises(InputError, match="model_parallel is 2, but each device has all networks") as raised:
        make_generators([str(tiny_pipeline)], model_parallel=2)
    assert raised.value.code == "option-of-others"


@pytest.mark.quick(1)
@pytest.mark.parametrize("family", FAMILIES)
def test_images_are_those_of_the_decoder(made, reference_of, family):
    """To one step of a byte: transformers cuts values off, and here they are rounded."""
    sampling, model = made(family), reference_of(family).model
    images = sampling.generate(TEXTS[:2], batch_size=2)
    codes = torch.tensor(sampling.sample_codes(TEXTS[:2], batch_size=2)).long()
    with torch.no_grad():
        if family == "emu3":
            codes = codes.reshape(-1, ROWS, ROWS)
        pixels = model.model.vqmodel.decode(codes).permute(0, 2, 3, 1).numpy()
    mean, std = (np.array(values) for values in (sampling.model.family.mean, sampling.model.family.std))
    wanted = np.clip((pixels * std + mean) * 255, 0, 255)
    assert images.dtype == np.uint8
    assert wanted.std() > 10
    assert np.abs(images - wanted).max() <= 0.51


@pytest.mark.slow
def test_half_precision_is_for_the_tokens_alone(made):
    half, whole = made("janus", dtype="bfloat16"), made("janus")
    codes = half.sample_codes(TEXTS[:2], guidance_scale=2.0, batch_size=2)
    (images, finite), (wanted, _) = half.decode(codes, batch_size=2), whole.decode(codes, batch_size=2)
    assert finite.all()
    np.testing.assert_array_equal(images, wanted)
    # The rounded logits choose most codes alike until the first one that differs.
    ours, theirs = (model.sample_codes(TEXTS[:2], guidance_scale=2.0, batch_size=2) for model in (half, whole))
    assert (ours[:, 0] == theirs[:, 0]).all()


def test_batches_of_a_run_share_a_program(made):
    sampling = made("janus")
    sampling.generate([TEXTS[1], "two birds", "two birds"], batch_size=2)  # as wide as the longest text below
    before = pure_functions.call_on_rows._cache_size()
    sampling.generate([*TEXTS, "a long text about nothing"], seed=9, batch_size=2)
    assert pure_functions.call_on_rows._cache_size() == before


def test_a_run_of_images(write_generator, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "_TICK_NS", 0)
    monkeypatch.setattr(provenance, "software", lambda: {"winobench": {"commit": "1", "dirty": False}})
    folder = write_generator("janus")
    prompts = [Prompt(str(number), text) for number, text in enumerate(TEXTS[:2])]
    settings = generate.Settings(guidance_scale=2.0)

    def run():
        generators = make_generators([str(folder)], settings=settings)
        how = {"settings": settings, "batch_size": 1, "seeds": (0, 1), "progress": False}
        return generate.generate_images(generators, prompts, tmp_path / "run", **how)

    first = run()
    (model,) = first.models
    scorer = ImageLikelihood.from_pretrained(folder, mesh=parallel.make_mesh(jax.local_devices()[:1]))
    assert model.fingerprint == scorer.fingerprint()["model"]
    chosen = {"sampler": "tokens", "guidance_scale": 2.0, "temperature": 1.0, "top_k": None, "image_size": 64}
    assert model.settings.items() >= chosen.items()
    assert not {"num_steps"} & model.settings.keys()
    sampled = TokenGeneration.from_pretrained(folder).generate(TEXTS[:2], guidance_scale=2.0, seed=1)
    for number, image in enumerate(sampled):
        np.testing.assert_array_equal(first.image(first.record(model.label, 1, number)), image)
    # A lost image is generated again, and the same. Then nothing is loaded any more.
    lost = first.path(first.record(model.label, 1, 0))
    lost.unlink()
    again = run()
    np.testing.assert_array_equal(again.image(again.record(model.label, 1, 0)), sampled[0])
    monkeypatch.setattr(loading, "load", None)
    assert run() == image_runs.read_images(tmp_path / "run")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"settings": generate.Settings(num_steps=20)}, "num_steps is an option of diffusion models"),
        ({"settings": generate.Settings(sampler="ddim")}, "sampler is an option of diffusion models"),
        ({"encoders": "staged"}, "encoders is an option of diffusion models"),
        ({"backend": "torch"}, "backend is an option of diffusion models"),
        ({"pipeline_options": {"zero_empty_text": False}}, "pipeline_options is an option of diffusion models"),
        ({"loras": ["adapter.safetensors"]}, "lora is an option of diffusion models"),
        ({"embeddings": ["word.safetensors"]}, "embeddings is an option of diffusion models"),
    ],
)
def test_options_of_diffusion_models_are_refused(write_generator, options, sentence):
    with pytest.raises(InputError, match=sentence) as raised:
        make_generators([str(write_generator("janus"))], **options)
    assert raised.value.code == "option-of-others"


def test_a_sampler_is_for_the_diffusion_model_of_the_same_run(write_generator, tiny_pipeline):
    models = [str(write_generator("janus")), str(tiny_pipeline)]
    tokens, pipeline = make_generators(models, settings=generate.Settings(num_steps=20, guidance_scale=2.0))
    assert tokens.settings == generate.Settings(guidance_scale=2.0)
    assert pipeline.settings is None


def test_the_steps_of_a_form_are_for_diffusion_models(write_generator, tmp_path):
    words = ["--config=images:debug", f"--model={write_generator('janus')}", "--dry_run", f"--workdir={tmp_path / 'r'}"]
    status, out, err = launching.launch("launch.generate", *words)
    assert (status, "7 of 7 images are missing" in out) == (0, True), err
    launching.refuse("launch.generate", *words, "--num_steps=5", named=["num_steps is an option of diffusion models"])


def test_what_a_model_cannot_is_refused_before_weights_are_read(write_generator, monkeypatch):
    monkeypatch.setattr(loading, "load", None)
    with pytest.raises(InputError, match="negative_prompt is not available for Janus"):
        make_generators([str(write_generator("janus"))], settings=generate.Settings(negative_prompt="blurry"))
    with pytest.raises(InputError, match="a diffusion decoder, makes the image") as raised:
        make_generators([str(write_generator("glm_image"))])
    assert raised.value.code == "wrong-kind-of-model"


def test_arguments_are_checked(made):
    sampling = made("janus")
    for keywords, sentence in (
        ({"negative_prompt": "blurry"}, "negative_prompt is not available for JanusForConditionalGeneration"),
        ({"num_steps": 5}, "one step for each token"),
        ({"image_size": 128}, "loaded for 64"),
        ({"guidance_scale": float("nan")}, "guidance_scale"),
        ({"seed": -1}, "seed"),
    ):
        with pytest.raises(InputError, match=sentence):
            sampling.generate(["a dog"], **keywords)
    with pytest.raises(InputError, match="has no guidance by texts") as raised:
        made("emu3").generate(["a dog"], negative_prompt="blurry", guidance_scale=1.0)
    assert raised.value.code == "no-effect"
    with pytest.raises(InputError, match="positions for") as raised:
        sampling.generate(["a dog " * 400])
    assert raised.value.code == "too-long"
    with pytest.raises(InputError) as raised:
        made("emu3").generate(["a dog"], negative_prompt="blurry " * 2000)
    assert raised.value.code == "too-long"


def test_codes_are_checked(made):
    sampling = made("janus")
    for codes, code in (
        (np.zeros((1, 7), int), "wrong-shape"),
        (np.zeros((0, 16), int), "wrong-shape"),
        (np.zeros((1, 16)), "bad-value"),
        (np.full((1, 16), 64), "bad-value"),
    ):
        with raises(code, "codes"):
            sampling.decode(codes)


def test_batches_that_cannot_fit_are_refused(made, monkeypatch):
    monkeypatch.setattr(memory, "device_bytes", lambda device: 10**6)
    with pytest.raises(InputError, match=r"generating 64 images at once needs about .* lower batch_size") as raised:
        made("janus").generate(["a dog"], batch_size=64)
    assert raised.value.code == "out-of-memory"


def test_a_negative_prompt_replaces_the_published_one(made):
    sampling = made("emu3", temperature=0)
    usual = sampling.sample_codes(["a dog"])
    np.testing.assert_array_equal(sampling.sample_codes(["a dog"], negative_prompt=Emu3.NEGATIVE), usual)
    assert (sampling.sample_codes(["a dog"], negative_prompt="a cat") != usual).any()


def test_weights_that_are_not_numbers_are_said(write_generator):
    sampling = TokenGeneration.from_pretrained(write_generator("janus"), mesh=parallel.make_mesh(jax.devices()[:1]))
    head = next(name for name in sampling.model.arrays if name.endswith("vision_head.bias"))
    sampling.model.arrays[head].set_value(np.full_like(sampling.model.arrays[head].get_value(), np.nan))
    with pytest.raises(InputError, match=r"the logits of 'a dog' \(seed 0\)") as raised:
        sampling.generate(["a dog"])
    assert raised.value.code == "not-finite"


def test_the_folders_own_generation_config_decides(write_generator, tmp_path):
    network_of, processor = (lambda made: (made.network, made.processor))(loading.load(write_generator("janus")))
    network_of.program.module.generation_config.update(guidance_scale=2.5, temperature=0.7, top_k=9)
    made = TokenGeneration(loading.Generator(network_of, processor))
    assert (made.guidance_scale, made.temperature, made.top_k) == (2.5, 0.7, 9)
    network_of.program.module.generation_config.update(top_k=0, guidance_scale=0)
    made = TokenGeneration(loading.Generator(network_of, processor))
    assert (made.guidance_scale, made.top_k) == (0, None)  # no guidance, and all codes
    for name, value in (("top_p", 0.9), ("guidance_scale", "much"), ("top_k", 2.5)):
        config = network_of.program.module.generation_config
        config.update(**{name: value})
        with pytest.raises(InputError, match=name):
            TokenGeneration(loading.Generator(network_of, processor))
        config.update(**{name: None})


def test_a_damaged_generation_config_is_refused(write_generator, tmp_path):
    folder = shutil.copytree(write_generator("janus"), tmp_path / "janus")
    (folder / "generation_config.json").write_text("{")
    with raises("not-json", "generation_config.json"):
        TokenGeneration.from_pretrained(folder)
