"""What cannot be used is refused in a sentence, before any weights are read."""

import json
import shutil

import pytest
import transformers

from tests import launching
from tests.contrib.autoregressive.tiny import IMAGE_SIZES, WRITERS
from tests.expectations import raises
from winobench.contrib.autoregressive import loading
from winobench.contrib.autoregressive.answering import ImageAnswers
from winobench.contrib.autoregressive.scorer import ImageLikelihood
from winobench.scorers import loading as scorers
from winobench.torch_modules import loading as torch_loading


@pytest.fixture
def copied(write_generator, tmp_path):
    """A function of a family's name: a copy of its folder, which a test may change."""
    return lambda family: shutil.copytree(write_generator(family), tmp_path / family)


@pytest.fixture
def _reads_no_weights(monkeypatch):
    def fail(*_, **__):
        raise AssertionError("weights are read")

    monkeypatch.setattr(torch_loading, "load_network", fail)


def edit(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"model_type": "multi_modality"}, "deepseek-community/Janus-Pro-1B"),
        ({"model_type": "Emu3", "auto_map": {"AutoModel": "modeling_emu3.Emu3Model"}}, "BAAI/Emu3-Gen-hf"),
    ],
)
def test_original_layouts_are_refused_by_the_converted_name(tmp_path, config, named):
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "modeling_emu3.py").write_text("raise AssertionError('code of a folder runs')")
    with raises("unsupported-checkpoint", config["model_type"], named):
        scorers.load_scorer(str(tmp_path))


@pytest.mark.usefixtures("_reads_no_weights")
def test_image_size_is_checked_first(write_generator):
    with raises("unsupported-option", "image_size", "96", "64"):
        ImageLikelihood.from_pretrained(write_generator("janus"), image_size=96)
    with raises("not-a-multiple", "image_size", "60", "8"):
        ImageLikelihood.from_pretrained(write_generator("emu3"), image_size=60)
    with raises("not-a-multiple", "image_size", "16", "32"):
        ImageLikelihood.from_pretrained(write_generator("glm_image"), image_size=16)


@pytest.mark.usefixtures("_reads_no_weights")
@pytest.mark.parametrize("family", WRITERS)
def test_pickles_are_not_read(copied, family):
    folder = copied(family)
    (weights,) = folder.rglob("model.safetensors")
    weights.rename(weights.with_name("pytorch_model.bin"))
    with raises("weights-are-a-pickle", "pytorch_model.bin", "convert_pickle"):
        ImageLikelihood.from_pretrained(folder, allow_pickle=True, image_size=IMAGE_SIZES[family])


@pytest.mark.usefixtures("_reads_no_weights")
def test_a_glm_image_without_its_token_part(copied):
    folder = copied("glm_image")
    shutil.rmtree(folder / "vision_language_encoder")
    with raises("no-such-file", "vision_language_encoder/config.json"):
        scorers.load_scorer(str(folder))


def test_a_diffusion_model_is_no_generator_of_tokens(tiny_pipeline):
    with raises("wrong-kind-of-model", "StableDiffusionPipeline", "janus"):
        ImageLikelihood.from_pretrained(tiny_pipeline)


def test_winoviz_refuses_a_model_without_answers_before_images_are_generated(write_generator, tmp_path):
    words = ["--config=winoviz:images_debug", f"--model={write_generator('emu3')}", f"--workdir={tmp_path / 'run'}"]
    launching.refuse("launch.eval", *words, named=["emu3", "answers no questions"])
    assert not (tmp_path / "run-images").exists()


def test_missing_tensors_are_named(copied):
    from safetensors import torch as safetensors

    folder = copied("janus")
    path = folder / "model.safetensors"
    tensors = safetensors.load_file(path)
    del tensors["model.generation_head.vision_head.weight"]
    safetensors.save_file(tensors, path, {"format": "pt"})
    with pytest.raises(Exception, match=r"1 are missing .*vision_head.weight") as caught:
        ImageLikelihood.from_pretrained(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("_reads_no_weights")
@pytest.mark.parametrize("template", [None, "{% for x in %}", "{{ raise_exception('no') }}"])
def test_a_processor_without_prompts(copied, template):
    folder = copied("janus")
    path = folder / "chat_template.jinja"
    path.unlink() if template is None else path.write_text(template)
    with raises("cannot-read", "makes no prompts"):
        ImageLikelihood.check(str(folder))


@pytest.mark.usefixtures("_reads_no_weights")
def test_a_template_that_leaves_out_the_text(copied):
    folder = copied("janus")
    (folder / "chat_template.jinja").write_text("a picture")
    with raises("unsupported-checkpoint", "leaves out the text"):
        ImageLikelihood.check(str(folder))


@pytest.mark.usefixtures("_reads_no_weights")
@pytest.mark.parametrize("name", ["bos_token", "pad_token"])
def test_a_janus_without_the_tokens_of_guidance(copied, name):
    folder = copied("janus")
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    del config[name]
    path.write_text(json.dumps(config))
    with raises("unsupported-checkpoint", name):
        ImageLikelihood.check(str(folder))


@pytest.mark.usefixtures("_reads_no_weights")
@pytest.mark.parametrize("left_out", ["<|visual token 000063|>", "<|visual token", "<|extra_200|>"])
def test_a_vocabulary_of_emu3_without_tokens_of_images(copied, left_out):
    folder = copied("emu3")
    words = json.loads((folder / "config.json").read_text())["vocabulary_map"]
    edit(
        folder / "config.json",
        vocabulary_map={word: key for word, key in words.items() if not word.startswith(left_out)},
    )
    with raises("unsupported-checkpoint", "vocabulary_map", "64 image tokens"):
        ImageLikelihood.check(str(folder), image_size=64)


@pytest.mark.usefixtures("_reads_no_weights")
@pytest.mark.parametrize("words", [None, {}])
def test_an_emu3_without_a_vocabulary(copied, words):
    folder = copied("emu3")
    edit(folder / "config.json", vocabulary_map=words)
    with raises("unsupported-checkpoint", "vocabulary_map", "config.json"):
        ImageLikelihood.check(str(folder), image_size=64)


@pytest.mark.usefixtures("_reads_no_weights")
@pytest.mark.parametrize(("part", "name"), [("vision_config", "image_size"), ("vision_config", "patch_size")])
def test_a_janus_whose_image_is_no_whole_number_of_patches(copied, part, name):
    folder = copied("janus")
    config = json.loads((folder / "config.json").read_text())
    edit(folder / "config.json", **{part: config[part] | {name: 24}})
    with raises("not-a-multiple", "vision_config.image_size", "24" if name == "image_size" else "48"):
        ImageLikelihood.check(str(folder))


@pytest.mark.usefixtures("_reads_no_weights")
def test_an_image_that_leaves_no_space_for_a_text(write_generator):
    with raises("out-of-range", "1,024 positions", "1,056", "image_size"):
        ImageLikelihood.check(str(write_generator("emu3")), image_size=256)


@pytest.mark.usefixtures("_reads_no_weights")
def test_a_config_without_sizes_fills_no_memory(copied):
    folder = copied("janus")
    config = json.loads((folder / "config.json").read_text())
    del config["text_config"]["hidden_size"], config["text_config"]["intermediate_size"]
    config["vq_config"] |= {"projection_dim": 4096, "image_token_embed_dim": 4096}  # as wide as the usual decoder
    (folder / "config.json").write_text(json.dumps(config))
    with raises("mismatched-parts", "parameters", "values"):
        ImageLikelihood.from_pretrained(folder)


@pytest.mark.usefixtures("_reads_no_weights")
@pytest.mark.parametrize("family", ["janus", "emu3"])
def test_weights_of_more_blocks_than_the_config(copied, family):
    folder = copied(family)
    config = json.loads((folder / "config.json").read_text())
    edit(folder / "config.json", text_config=config["text_config"] | {"num_hidden_layers": 1})
    with raises("mismatched-parts", "9 tensors", "layers.1.input_layernorm.weight"):
        ImageLikelihood.from_pretrained(folder, image_size=IMAGE_SIZES[family])


def test_a_codebook_that_is_not_finite(copied):
    """A code would be found for each image all the same."""
    from safetensors import torch as safetensors

    path = copied("janus") / "model.safetensors"
    tensors = safetensors.load_file(path)
    tensors["model.vqmodel.quantize.embedding.weight"][0, 0] = float("nan")
    safetensors.save_file(tensors, path, {"format": "pt"})
    with raises("not-finite", "vqmodel.quantize.embedding.weight"):
        ImageLikelihood.from_pretrained(path.parent)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"num_image_tokens": 9}, ["num_image_tokens", "9", "16"]),
        ({"image_processor": {"size": {"height": 32, "width": 32}}}, ["size", "(32, 32)", "(64, 64)"]),
    ],
)
def test_a_processor_that_prepares_other_images(copied, values, named):
    folder = copied("janus")
    path = folder / "processor_config.json"
    of_images = json.loads(path.read_text())["image_processor"] | values.get("image_processor", {})
    edit(path, **values | {"image_processor": of_images})
    with raises("mismatched-parts", *named):
        ImageAnswers.from_pretrained(folder)


def test_other_shapes_are_named(copied):
    folder = copied("janus")
    config = json.loads((folder / "config.json").read_text())
    edit(folder / "config.json", vq_config=config["vq_config"] | {"num_embeddings": 65})
    with raises("mismatched-parts", "4 have other shapes", "[64, 8], not [65, 8]"):
        ImageLikelihood.from_pretrained(folder)


@pytest.mark.usefixtures("_reads_no_weights")
@pytest.mark.parametrize("name", ["projection_dim", "image_token_embed_dim"])
def test_a_janus_whose_parts_have_other_widths(copied, name):
    folder = copied("janus")
    config = json.loads((folder / "config.json").read_text())
    edit(folder / "config.json", vq_config=config["vq_config"] | {name: 24})
    with raises("mismatched-parts", f"vq_config.{name} of this Janus is 24", "states of 32"):
        ImageLikelihood.from_pretrained(folder)


def test_layers_that_do_not_fit_each_other(copied):
    """transformers' own code fails for such a folder, too."""
    folder = copied("emu3")
    config = transformers.Emu3Config.from_pretrained(folder)
    config.vq_config.hidden_size = 24  # of attention to 32 channels
    transformers.Emu3ForConditionalGeneration(config).save_pretrained(folder)
    with raises("unsupported-checkpoint", "Emu3ForConditionalGeneration cannot run", "24", "config.json"):
        ImageLikelihood.from_pretrained(folder, image_size=64)


def test_code_in_a_folder_never_runs(copied):
    folder = copied("janus")
    (folder / "evil.py").write_text("raise AssertionError('code of a folder runs')")
    edit(folder / "config.json", auto_map={"AutoModel": "evil.Model", "AutoConfig": "evil.Config"})
    edit(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.Tokenizer", None]})
    edit(folder / "processor_config.json", auto_map={"AutoProcessor": "evil.Processor"})
    assert loading.load(folder).family.scored == 16


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--sampling.num_samples=5"], ["num_samples", "diffusion models"]),
        (["--sampling.timesteps=1,2"], ["timesteps", "diffusion models"]),
        (["--sampling.num_bias_samples=5"], ["num_bias_samples", "diffusion models"]),
        (["--sampling.mode=race"], ["mode", "diffusion models"]),
        (["--encoders=staged"], ["encoders", "diffusion models"]),
        (["--guidance=much"], ["guidance", "much"]),
        (["--image_size=96"], ["image_size is 96", "64 pixels"]),
    ],
)
def test_options_of_noise_are_refused(write_generator, tmp_path, flags, named):
    words = [f"--model={write_generator('janus')}", "--tasks=clevr", f"--workdir={tmp_path / 'run'}", *flags]
    launching.refuse("launch.eval", *words, named=named)
    assert not (tmp_path / "run").exists()


def test_all_models_are_checked_before_the_first_is_loaded(write_generator, tmp_path):
    (tmp_path / "original").mkdir()
    (tmp_path / "original" / "config.json").write_text(json.dumps({"model_type": "multi_modality"}))
    words = [f"--model={write_generator('janus')},{tmp_path / 'original'}", f"--workdir={tmp_path / 'runs'}"]
    launching.refuse("launch.eval", *words, "--tasks=clevr", named=["multi_modality", "deepseek-community"])
    assert not (tmp_path / "runs").exists()
