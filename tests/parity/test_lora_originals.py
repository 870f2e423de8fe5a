"""LoRA of flow models in kohya's names, those of the original code: against diffusers' own converters.

Its converter of whole checkpoints (`single_file_utils`) reads the original names, too, and moves rows of weights alone.
With an adapter's second factor [outputs, rank] for each weight, it returns every layer's. Outputs are compared with
diffusers' pipelines if they read the names. They do not read Stable Diffusion 3's.
"""

import dataclasses
import functools
import re

import diffusers
import jax
import numpy as np
import peft
import pytest
import safetensors.torch
import torch
from diffusers.loaders import lora_conversion_utils, single_file_utils

from tests import original_layouts
from tests.conftest import TINY_IMAGE_SIZE as SIZE
from tests.expectations import raises
from tests.parity.test_scorer import make_images
from tests.parity.whole_pipelines import KINDS, TEXTS
from winobench import checkpoints, parallel
from winobench.checkpoints import lora_layers, models
from winobench.diffusion import families
from winobench.models import lora
from winobench.models.transformer_flux import FluxTransformer2DModel
from winobench.models.transformer_flux2 import Flux2Transformer2DModel
from winobench.models.transformer_flux2_config import Flux2TransformerConfig
from winobench.models.transformer_flux_config import FluxTransformerConfig
from winobench.models.transformer_sd3 import SD3Transformer2DModel, SD3TransformerConfig
from winobench.models.transformer_z_image import ZImageTransformer2DModel
from winobench.models.transformer_z_image_config import ZImageTransformerConfig
from winobench.scorers.diffusion_itm import DiffusionITM

RANK = 3
LEVELS = [0.1, 0.5, 0.9]

WIDE = {
    "sd3": (SD3Transformer2DModel, SD3TransformerConfig(num_layers=2, dual_attention_layers=(0,), qk_norm="rms_norm")),
    "flux": (FluxTransformer2DModel, FluxTransformerConfig(num_layers=1, num_single_layers=1, guidance_embeds=True)),
    "klein": (
        Flux2Transformer2DModel,
        Flux2TransformerConfig(num_layers=1, num_single_layers=1, guidance_embeds=False),
    ),
}


@functools.cache
def original(kind, config):
    """Names and shapes of the original code's tensors."""
    with torch.device("meta"):
        tensors = getattr(diffusers, WIDE[kind][0].__name__).from_config(config.to_dict()).state_dict()
    tables = {"flux": original_layouts._FLUX, "klein": original_layouts._FLUX_2}
    tensors = original_layouts.sd3(tensors) if kind == "sd3" else original_layouts.flux(tensors, table=tables[kind])
    return {name.removeprefix(original_layouts.DENOISER): tensor.shape for name, tensor in tensors.items()}


def dense_layers(kind, config):
    """The dense layers of the original code: name -> (outputs, inputs)."""
    shapes = original(kind, config).items()
    return {
        name.removesuffix(".weight"): shape for name, shape in shapes if name.endswith("weight") and len(shape) == 2
    }


def converted(kind, config, weights):
    """Diffusers' conversion of a checkpoint with these weights of dense layers, [outputs, anything]."""
    checkpoint = {name: torch.zeros(1, 1) for name in original(kind, config)}
    checkpoint |= {f"{name}.weight": tensor for name, tensor in weights.items()}
    biases = {f"{name}.bias": tensor[:, 0] for name, tensor in weights.items()}
    checkpoint |= {name: bias for name, bias in biases.items() if name in checkpoint}
    family = {"sd3": "sd3", "flux": "flux", "klein": "flux2"}[kind]
    convert = getattr(single_file_utils, f"convert_{family}_transformer_checkpoint_to_diffusers")
    skipped = ("norm_q", "norm_k", "norm_added_q", "norm_added_k")
    return {
        name.removesuffix(".weight"): tensor
        for name, tensor in convert(checkpoint).items()
        if name.endswith(".weight") and name.split(".")[-2] not in skipped and not name.startswith("pos_embed")
    }


def factors(kind, config, seed=0):
    """Random factors for all dense layers of the original code: name -> (down [rank, inputs], up [outputs, rank])."""
    generator = np.random.default_rng(seed)
    return {
        name: tuple(0.2 * generator.standard_normal(shape, np.float32) for shape in ((RANK, inputs), (outputs, RANK)))
        for name, (outputs, inputs) in dense_layers(kind, config).items()
    }


def file_of(path, pairs, *, prefix, alpha=None):
    """Writes factors under original names: in one word after ``lora_unet_``, with dots after ``diffusion_model.``."""
    tensors = {}
    one_word = prefix.endswith("_")
    sides = ("down", "up") if one_word else ("A", "B")
    for name, pair in pairs.items():
        layer = prefix + (name.replace(".", "_") if one_word else name)
        tensors |= {
            f"{layer}.lora_{side}.weight": torch.tensor(values) for side, values in zip(sides, pair, strict=True)
        }
        if alpha is not None:
            tensors[f"{layer}.alpha"] = torch.tensor(float(alpha))
    safetensors.torch.save_file(tensors, path)
    return path


@pytest.mark.parametrize("prefix", ["lora_unet_", "diffusion_model."])
@pytest.mark.parametrize("kind", WIDE)
def test_names_are_those_of_whole_checkpoints(kind, prefix, tmp_path):
    """FLUX.1 at the width of the released one."""
    network, config = models.abstract_model(*WIDE[kind]), WIDE[kind][1]
    pairs = factors(kind, config)
    expected = converted(kind, config, {name: torch.tensor(up) for name, (_, up) in pairs.items()})
    marks = {name: torch.full((len(up), 1), float(i)) for i, (name, (_, up)) in enumerate(pairs.items())}
    downs = converted(kind, config, marks)
    read = checkpoints.read_lora(file_of(tmp_path / "a.safetensors", pairs, prefix=prefix, alpha=2))
    got = lora_layers.fitted(network, read.parts["unet"])
    assert got.keys() == expected.keys()
    originals = list(pairs)
    for name, adapter in got.items():
        np.testing.assert_array_equal(adapter.up, expected[name].numpy())
        np.testing.assert_array_equal(adapter.down, pairs[originals[int(downs[name][0, 0])]][0])
        assert adapter.alpha == 2
    lora.check_fit(network, {name: adapter.factors for name, adapter in got.items()})


def test_xlabs_files_are_as_diffusers_reads_them(folder_of, tmp_path):
    random, width = np.random.default_rng(2), 32
    shapes = {"double_blocks.0.processor.qkv_lora1": 3 * width, "double_blocks.1.processor.qkv_lora2": 3 * width}
    shapes |= {"double_blocks.0.processor.proj_lora1": width, "double_blocks.0.processor.proj_lora2": width}
    shapes |= {"single_blocks.0.processor.qkv_lora": 3 * width, "single_blocks.1.processor.proj_lora": width}
    tensors = {}
    for name, outputs in shapes.items():
        inputs = 5 * width if name.endswith("1.processor.proj_lora") else width
        for side, shape in (("down", (RANK, inputs)), ("up", (outputs, RANK))):
            tensors[f"{name}.{side}.weight"] = torch.tensor(random.standard_normal(shape, np.float32))
    path = tmp_path / "a.safetensors"
    safetensors.torch.save_file(tensors, path)
    theirs = diffusers.FluxPipeline.lora_state_dict(str(path))
    got = checkpoints.load_lora(families.load_pipeline(folder_of("flux")), path, fuse=False).parts
    assert {f"transformer.{name}.lora_{side}.weight" for name in got["transformer"] for side in "AB"} == theirs.keys()
    for name, adapter in got["transformer"].items():
        assert adapter.factors.scale == 1
        np.testing.assert_array_equal(adapter.down, theirs[f"transformer.{name}.lora_A.weight"].numpy())
        np.testing.assert_array_equal(adapter.up, theirs[f"transformer.{name}.lora_B.weight"].numpy())


@pytest.mark.slow
def test_kontexts_files_with_biases_are_as_diffusers_reads_them(tmp_path):
    """The converter has all layers of the released network in its code: those after the first blocks are zeros."""
    network = models.abstract_model(*WIDE["flux"])
    layers = dense_layers("flux", FluxTransformerConfig(guidance_embeds=True))
    tensors, ours = {}, {}
    for name, (outputs, _) in layers.items():
        if not name.startswith(("double_blocks", "single_blocks", "final_layer.linear")):
            continue
        stem = f"base_model.model.{name}"
        own = "blocks." not in name or "blocks.0." in name
        make = torch.randn if own else torch.zeros
        here = {f"{stem}.lora_A.weight": make(1, 1), f"{stem}.lora_B.weight": make(outputs, 1)}
        if name.endswith(("img_mlp.0", "linear2", "txt_attn.proj", "final_layer.linear")):
            here[f"{stem}.lora_B.bias"] = make(outputs)
        tensors |= here
        ours |= here if own else {}
    path = tmp_path / "a.safetensors"
    safetensors.torch.save_file(ours, path)
    theirs = lora_conversion_utils._convert_fal_kontext_lora_to_diffusers(tensors)
    got = lora_layers.fitted(network, checkpoints.read_lora(path).parts["unet"])
    here = {key: values for key, values in theirs.items() if "blocks." not in key or "blocks.0." in key}
    assert {f"transformer.{name}" for name in got} == {key.partition(".lora_")[0] for key in here}
    for name, adapter in got.items():
        read = {**getattr(adapter, "tensors", {}), **vars(adapter)}
        for role, end in (("down", "A.weight"), ("up", "B.weight"), ("up_bias", "B.bias")):
            wanted = here.get(f"transformer.{name}.lora_{end}")
            assert (role in read) == (wanted is not None)
            if wanted is not None:
                np.testing.assert_array_equal(read[role], wanted.numpy())


def errors_of(kind, folder, change):
    """Noise, and diffusers' errors with it: of the pipeline as it is, and as ``change`` makes it."""
    torch_errors = KINDS[kind].torch_errors
    pipeline = KINDS[kind].theirs.from_pretrained(folder)
    noise = np.random.default_rng(1).standard_normal((3, 8, 8, pipeline.vae.config.latent_channels), np.float32)
    before = torch_errors(pipeline, noise, levels=LEVELS)
    change(pipeline)
    after = torch_errors(pipeline, noise, levels=LEVELS)
    assert np.median(np.abs(after - before) / before) > 1e-2
    return noise, after


def check_ours(folder, path, noise, expected, *, fuse):
    mesh = parallel.make_mesh(jax.devices()[:1])
    scorer = DiffusionITM.from_pretrained(folder, lora=path, fuse_lora=fuse, batch_size=4, mesh=mesh, image_size=SIZE)
    got = scorer.errors(make_images(SIZE), TEXTS, noise=noise, timesteps=LEVELS)
    np.testing.assert_allclose(got, expected, rtol=1e-4)


def text_factors(pipeline, part, prefix, seed):
    """Factors for kohya's names of the attention and feed-forward of a CLIP encoder."""
    generator = np.random.default_rng(seed)
    tensors = {}
    for name, layer in lora.linear_layers(pipeline.networks[part]).items():
        if name == "text_projection":
            continue
        word = f"{prefix}_{name.replace('.', '_')}"
        shapes = {"down": (RANK, layer.in_features), "up": (layer.out_features, RANK)}
        for side, shape in shapes.items():
            values = 0.3 * generator.standard_normal(shape, np.float32)
            tensors[f"{word}.lora_{side}.weight"] = torch.tensor(values)
        tensors[f"{word}.alpha"] = torch.tensor(2.0)
    return tensors


@pytest.mark.slow
def test_errors_with_files_that_diffusers_reads(folder_of, tmp_path):
    """Without FLUX.1's fused layers, which its converters know at the released width only."""
    kind, folder = "flux", folder_of("flux")
    ours = families.load_pipeline(folder)
    pairs = factors(kind, ours.transformer.config)
    pairs = {name: pair for name, pair in pairs.items() if "blocks." in name and not name.endswith("linear1")}
    path = file_of(tmp_path / "pytorch_lora_weights.safetensors", pairs, prefix="lora_unet_", alpha=2)
    tensors = safetensors.torch.load_file(path) | text_factors(ours, "text_encoder", "lora_te1", seed=5)
    safetensors.torch.save_file(tensors, path)
    noise, expected = errors_of(kind, folder, lambda pipeline: pipeline.load_lora_weights(tmp_path))
    check_ours(folder, path, noise, expected, fuse=True)
    # What is saved of it has current names, and no layer of the original code.
    checkpoints.load_lora(ours, path, fuse=False)
    adapted = {name: network for name, network in ours.networks.items() if lora.adapters(network)}
    checkpoints.save_lora(tmp_path / "saved", **adapted)
    _, again = errors_of(kind, folder, lambda pipeline: pipeline.load_lora_weights(tmp_path / "saved"))
    np.testing.assert_allclose(again, expected, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("fuse", [True, False])
def test_text_encoders_adapted_by_diffusers(fuse, folder_of, tmp_path):
    """The CLIP encoders alone, as diffusers' training scripts save them; also what is saved here, read by diffusers."""
    kind, folder = "sd3", folder_of("sd3")
    parts, layers = ("text_encoder", "text_encoder_2"), {}

    def adapt(pipeline):
        for number, part in enumerate(parts):
            network = getattr(pipeline, part)
            targets = ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"]
            network.add_adapter(peft.LoraConfig(r=RANK, lora_alpha=RANK, target_modules=targets))
            generator = torch.Generator().manual_seed(number)
            for name, parameter in network.named_parameters():
                if "lora_" in name:
                    parameter.data = 0.3 * torch.randn(parameter.shape, generator=generator)
            layers[f"{part}_lora_layers"] = peft.get_peft_model_state_dict(network)

    noise, expected = errors_of(kind, folder, adapt)
    KINDS[kind].theirs.save_lora_weights(tmp_path, **layers)
    check_ours(folder, tmp_path, noise, expected, fuse=fuse)
    ours = families.load_pipeline(folder)
    read = checkpoints.load_lora(ours, tmp_path, fuse=False)
    assert set(read.parts) == set(parts)
    if not fuse:
        checkpoints.save_lora(tmp_path / "saved", **{part: ours.networks[part] for part in parts})
        _, again = errors_of(kind, folder, lambda pipeline: pipeline.load_lora_weights(tmp_path / "saved"))
        np.testing.assert_allclose(again, expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "prefix", "part"),
    [("sd3", "te3", "text_encoder_3"), ("flux", "te3", "text_encoder_2"), ("flux", "te2", "text_encoder_2")],
)
def test_adapters_of_t5_are_one_sentence(kind, prefix, part, folder_of, tmp_path):
    path = tmp_path / "a.safetensors"
    layer = f"lora_{prefix}_encoder_block_0_layer_0_SelfAttention_q"
    tensors = {f"{layer}.lora_down.weight": torch.ones(RANK, 24), f"{layer}.lora_up.weight": torch.ones(24, RANK)}
    safetensors.torch.save_file(tensors, path)
    pipeline = families.load_pipeline(folder_of(kind))
    with raises("lora-misfit", path.name, part, "T5EncoderModel"):
        checkpoints.load_lora(pipeline, path)
    if kind == "sd3":
        with raises("lora-misfit", part, "is left out"):
            checkpoints.load_lora(pipeline.replace(zero_t5=True), path)


@pytest.mark.quick(1)
@pytest.mark.parametrize(("of", "to"), [("flux", "sd3"), ("klein", "flux")])
def test_files_of_other_families_are_one_sentence(of, to, folder_of, tmp_path):
    """FLUX.1 and FLUX.2 share names; there a layer's width tells."""
    pipeline = families.load_pipeline(folder_of(to))
    pairs = factors(of, families.load_pipeline(folder_of(of)).transformer.config)
    path = file_of(tmp_path / "a.safetensors", pairs, prefix="lora_unet_")
    before = pipeline.fingerprint
    with raises("lora-misfit", str(path), type(pipeline.transformer).__name__):
        checkpoints.load_lora(pipeline, path)
    assert families.load_pipeline(folder_of(to)).fingerprint == before == pipeline.fingerprint


def test_two_names_of_a_layer_are_refused(folder_of, tmp_path):
    pipeline = families.load_pipeline(folder_of("flux"))
    name = "double_blocks.0.img_attn.qkv"
    pairs = {name: factors("flux", pipeline.transformer.config)[name]}
    path = file_of(tmp_path / "a.safetensors", pairs, prefix="lora_unet_")
    down, up = (torch.ones(shape) for shape in ((RANK, 32), (32, RANK)))
    for stem in ("lora_unet_transformer_blocks_0_attn_to_k", "lora_transformer_transformer_blocks_0_attn_to_k"):
        other = tmp_path / "b.safetensors"
        tensors = {f"{stem}.lora_down.weight": down, f"{stem}.lora_up.weight": up}
        safetensors.torch.save_file(safetensors.torch.load_file(path) | tensors, other)
        with raises("repeated-tensor", other.name, "transformer_blocks.0.attn.to_k"):
            checkpoints.load_lora(pipeline, other)


@pytest.mark.parametrize("prefix", ["lora_unet_", "diffusion_model."])
def test_names_of_z_image(prefix, tmp_path):
    """As of whole checkpoints, and in diffusers' names, as its converter of LoRA files reads both."""
    config = dataclasses.replace(ZImageTransformerConfig(), n_layers=1, n_refiner_layers=1)
    network = models.abstract_model(ZImageTransformer2DModel, config)
    current, original = {}, {}
    for name, layer in lora.linear_layers(network).items():
        current[name] = layer.out_features
        named = re.sub(r"attention\.to_[qkv]$", "attention.qkv", name.replace("attention.to_out.0", "attention.out"))
        named = re.sub(r"^all_(x_embedder|final_layer)\.2-1", r"\1", named)
        original[named] = original.get(named, 0) + layer.out_features
    generator = np.random.default_rng(0)
    for sizes in (original, current):
        pairs = {
            name: tuple(generator.standard_normal(shape, np.float32) for shape in ((RANK, 1), (size, RANK)))
            for name, size in sizes.items()
        }
        path = file_of(tmp_path / "a.safetensors", pairs, prefix=prefix)
        got = lora_layers.fitted(network, checkpoints.read_lora(path).parts["unet"])
        weights = {f"{name}.weight": torch.tensor(up) for name, (_, up) in pairs.items()}
        expected = weights
        if sizes is original:
            expected = single_file_utils.convert_z_image_transformer_checkpoint_to_diffusers(dict(weights))
        else:
            theirs = lora_conversion_utils._convert_non_diffusers_z_image_lora_to_diffusers(
                safetensors.torch.load_file(path)
            )
            assert theirs.keys() == {f"transformer.{name}.lora_{side}.weight" for name in got for side in "AB"}
            for name, adapter in got.items():
                np.testing.assert_array_equal(adapter.up, theirs[f"transformer.{name}.lora_B.weight"].numpy())
        assert {f"{name}.weight" for name in got} == expected.keys()
        for name, adapter in got.items():
            np.testing.assert_array_equal(adapter.up, expected[f"{name}.weight"].numpy())
