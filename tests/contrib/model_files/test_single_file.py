"""Files in the layouts of the models' authors are the folders that they were made of."""

import contextlib
import functools
import importlib.util
import json
import os
import shutil
import sys
import types

import diffusers
import numpy as np
import pytest
import safetensors.torch
import torch
from diffusers.loaders import single_file_utils

from tests import original_layouts, tiny_flux, tiny_flux2, tiny_sd3, tiny_sdxl, tiny_z_image
from tests.expectations import raises
from winobench import DiffusionITM, checkpoints, load_pipeline
from winobench.base import registry
from winobench.checkpoints import sources, weights
from winobench.contrib.model_files import single_file
from winobench.diffusion import families
from winobench.scorers import loading


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WINOBENCH_CACHE", str(tmp_path / "cache"))


@pytest.fixture(autouse=True)
def _any_width(monkeypatch):
    """diffusers states how wide FLUX.1 is where it takes tensors apart; the tiny one is as wide in proportion."""

    class Torch(types.SimpleNamespace):
        def __getattr__(self, name):
            return getattr(torch, name)

        @staticmethod
        def split(tensor, sizes, dim):
            return torch.split(tensor, [size * len(tensor) // sum(sizes) for size in sizes], dim=dim)

    monkeypatch.setattr(single_file_utils, "torch", Torch())


WRITERS = {"klein": tiny_flux2.write, "z_image": tiny_z_image.write, "sdxl": tiny_sdxl.write}
WRITERS |= {"sd3": functools.partial(tiny_sd3.write, as_published=True), "flux": tiny_flux.write}


@pytest.fixture(scope="module")
def folder_of(tiny_pipeline, tmp_path_factory):
    folders = {"sd15": tiny_pipeline}

    def find(name):
        if name not in folders:
            folders[name] = WRITERS[name](tmp_path_factory.mktemp(name))
        return folders[name]

    return find


def write(path, tensors):
    safetensors.torch.save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, path)
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def fingerprint(pipeline):
    return {name: checkpoints.weights_sha256(network) for name, network in pipeline.networks.items()}


FAMILIES = ("sd15", "sdxl", "sd3", "flux", "klein", "z_image")


def original(name, folder_of):
    return getattr(original_layouts, f"{name}_file")(folder_of(name))


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_file_is_its_folder(name, folder_of, path):
    folder = folder_of(name)
    write(path, original(name, folder_of))
    one, two = load_pipeline(folder), load_pipeline(f"{folder}+{path}")
    assert fingerprint(one) == fingerprint(two)
    assert one.fingerprint == two.fingerprint


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.usefixtures("single_device")
def test_errors_are_those_of_the_folder(name, folder_of, path):
    write(path, original(name, folder_of))
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3)).astype(np.uint8)
    folder = folder_of(name)
    options = {"image_size": 32, "batch_size": 4}
    scorers = [DiffusionITM.from_pretrained(source, **options) for source in (str(folder), f"{folder}+{path}")]
    one, two = (scorer.score([image], ["a red cube", "a blue ball"], num_samples=2) for scorer in scorers)
    np.testing.assert_array_equal(one, two)


def test_networks_that_a_file_lacks_are_the_bases(folder_of, path):
    folder = folder_of("flux")
    tensors = original_layouts.flux(original_layouts.read(folder, "transformer"), "")
    write(path, {name: tensor + 1 for name, tensor in tensors.items()})
    expected, found = fingerprint(load_pipeline(folder)), fingerprint(load_pipeline(f"{folder}+{path}"))
    assert {name for name in expected if expected[name] != found[name]} == {"transformer"}


def test_t5_may_have_its_embeddings_under_the_other_name(folder_of, path):
    tensors, start = original("flux", folder_of), "text_encoders.t5xxl.transformer."
    tensors[f"{start}encoder.embed_tokens.weight"] = tensors.pop(f"{start}shared.weight")
    write(path, tensors)
    folder = folder_of("flux")
    assert fingerprint(load_pipeline(f"{folder}+{path}")) == fingerprint(load_pipeline(folder))


@pytest.mark.parametrize("prefix", ["", original_layouts.DENOISER])
@pytest.mark.parametrize("name", ["sd15", "flux", "z_image"])
def test_denoisers_that_have_diffusers_names(prefix, name, folder_of, path):
    folder = folder_of(name)
    tensors = original_layouts.read(folder, "unet" if name == "sd15" else "transformer")
    write(path, {f"{prefix}{key}": tensor for key, tensor in tensors.items()})
    assert fingerprint(load_pipeline(f"{folder}+{path}")) == fingerprint(load_pipeline(folder))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn])
def test_tensors_keep_their_dtype(dtype, folder_of, path, tmp_path):
    tensors = {name: tensor.to(dtype) for name, tensor in original("sd15", folder_of).items()}
    write(path, tensors)
    found = load_pipeline(f"{folder_of('sd15')}+{path}").networks
    (written,) = (tmp_path / "cache").glob("single_files/model-*/unet/*.safetensors")
    converted = safetensors.torch.load_file(written)
    assert {tensor.dtype for tensor in converted.values()} == {dtype}
    expected = converted["conv_in.weight"].float().numpy().transpose(2, 3, 1, 0)
    np.testing.assert_array_equal(found["unet"].conv_in.kernel[...], expected)


def test_scales_are_applied_before_tensors_are_taken_apart(folder_of, path):
    tensors, scale = original("flux", folder_of), torch.tensor(0.3)
    scaled = dict(tensors)
    for name in [name for name in tensors if name.endswith(("linear1.weight", "qkv.weight", "o.weight"))]:
        scaled[name] = tensors[name].to(torch.float8_e4m3fn)
        tensors[name] = scaled[name].float() * scale
        scaled |= {f"{name.removesuffix('weight')}{part}": scale for part in ("scale_weight", "scale_input")}
    result = []
    for content in (tensors, scaled):
        write(path, content)
        result.append(fingerprint(load_pipeline(f"{folder_of('flux')}+{path}")))
    assert result[0] == result[1]


def test_a_file_is_converted_once_for_its_content(folder_of, path, tmp_path, monkeypatch):
    folder, tensors = folder_of("sd15"), original("sd15", folder_of)
    write(path, tensors)
    expected = fingerprint(load_pipeline(f"{folder}+{path}"))
    convert = single_file._convert
    monkeypatch.delattr(single_file, "_convert")
    path = path.rename(tmp_path / "other.safetensors")
    assert fingerprint(load_pipeline(f"{folder}+{path}")) == expected
    monkeypatch.setattr(single_file, "_convert", convert, raising=False)
    tensors["model.diffusion_model.out.2.bias"] += 1
    write(path, tensors)
    changed = fingerprint(load_pipeline(f"{folder}+{path}"))
    assert {name for name in expected if expected[name] != changed[name]} == {"unet"}
    assert len(list((tmp_path / "cache" / "single_files").iterdir())) == 2


def test_a_conversion_is_whole_or_not_at_all(folder_of, path, tmp_path, monkeypatch):
    name = f"{folder_of('sd15')}+{write(path, original('sd15', folder_of))}"
    written = weights.write_weights

    def full(target, *_):
        if "vae" in str(target):
            raise OSError(28, "No space left on device")
        written(target, *_)

    monkeypatch.setattr(weights, "write_weights", full)
    with raises("cannot-write", "No space left on device", "WINOBENCH_CACHE"):
        load_pipeline(name)
    assert not list((tmp_path / "cache" / "single_files").iterdir())
    monkeypatch.undo()
    monkeypatch.setenv("WINOBENCH_CACHE", str(tmp_path / "cache"))
    converted = single_file.SingleFile._converted

    def slower(self, part, config):
        """Another process has done the same meanwhile."""
        monkeypatch.setattr(single_file.SingleFile, "_converted", converted)
        assert fingerprint(load_pipeline(name))
        return converted(self, part, config)

    monkeypatch.setattr(single_file.SingleFile, "_converted", slower)
    assert fingerprint(load_pipeline(name)) == fingerprint(load_pipeline(folder_of("sd15")))
    assert len(list((tmp_path / "cache" / "single_files").iterdir())) == 1


KEYS = single_file_utils.CHECKPOINT_KEY_NAMES
SD3 = {"joint_blocks.0.context_block.adaLN_modulation.1.bias": (9216,)}
FLUX = {KEYS["flux"][0]: (128,), "img_in.weight": (3072, 64)}


@pytest.mark.parametrize(
    ("shapes", "base"),
    [
        ({single_file._OF_SD_1: (320, 640, 1, 1)}, "sd15"),
        ({KEYS["xl_base"]: (1280,)}, "sdxl"),
        (SD3 | {"pos_embed": (1, 36_864, 1536)}, "sd3-medium"),
        (SD3 | {"pos_embed": (1, 147_456, 1536)}, "sd35-medium"),
        ({KEYS["sd35_large"][1]: (9728, 2432)}, "sd35-large"),
        (FLUX | {"guidance_in.in_layer.bias": (3072,)}, "flux1-dev"),
        (FLUX, "flux1-schnell"),
        # Alike in several versions, of other tasks and families, or of nothing known.
        ({KEYS["v2"]: (320, 1024)}, None),
        ({single_file._OF_SD_1: (), KEYS["inpainting"]: (320, 9, 3, 3)}, None),
        (SD3 | {"pos_embed": (1, 4, 1536)}, None),
        ({KEYS["flux2"][1]: (3,)}, None),
        ({KEYS["z-image-turbo"][1]: (3,)}, None),
        ({KEYS["chroma"][1]: (3,)}, None),
        ({"text_model.embeddings.token_embedding.weight": (3, 3)}, None),
        ({}, None),
    ],
)
def test_the_base_is_told_by_names_and_shapes(shapes, base):
    tensors = {name: types.SimpleNamespace(shape=shape) for name, shape in shapes.items()}
    if base is not None:
        assert single_file._base("a.safetensors", tensors) == base
        return
    with raises("unknown-kind-of-model", "a.safetensors", "BASE+FILE"):
        single_file._base("a.safetensors", tensors)


# Name -> tensors of the denoiser in the published file, and the base that it is found to have.
PUBLISHED = {
    "sd15": (686, "sd15"),
    "sd21": (686, None),
    "sdxl": (1680, None),  # without its text encoders
    "sd35-medium": (665, "sd35-medium"),
    "sd35-large": (923, "sd35-large"),
    "flux1-dev": (780, "flux1-dev"),
    "flux1-schnell": (776, "flux1-schnell"),
    "flux2-klein-4b": (149, None),
    "z-image-turbo": (453, None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_denoisers_of_the_published_sizes(name, monkeypatch):
    monkeypatch.undo()
    number, base = PUBLISHED[name]
    described = families.released(name)
    kind, config = described.family.PARTS[described.family.DENOISER][1], described.denoiser_config.to_dict()
    with torch.device("meta"):
        theirs = getattr(diffusers, kind).from_config(config).state_dict()
    layouts = {
        "UNet2DConditionModel": lambda: original_layouts.unet(theirs, config["layers_per_block"]),
        "SD3Transformer2DModel": lambda: original_layouts.sd3(theirs),
        "FluxTransformer2DModel": lambda: original_layouts.flux(theirs, ""),
        "Flux2Transformer2DModel": lambda: original_layouts.flux(theirs, "", original_layouts._FLUX_2),
        "ZImageTransformer2DModel": lambda: original_layouts.z_image(theirs),
    }
    tensors = layouts[kind]()
    assert len(tensors) == number
    with contextlib.nullcontext() if base else raises("unknown-kind-of-model"):
        assert single_file._base("a.safetensors", tensors) == base
    result, unused = single_file._convert(kind, tensors, config)
    assert {key: value.shape for key, value in result.items()} == {key: value.shape for key, value in theirs.items()}
    assert not unused


def test_the_base_is_found_as_other_models_are(folder_of, path, monkeypatch):
    write(path, original("sd15", folder_of))
    monkeypatch.setattr(single_file, "_OF_SD_1", "model.diffusion_model.output_blocks.0.0.skip_connection.weight")
    with raises("hub-not-reached", str(path), "stable-diffusion-v1-5/stable-diffusion-v1-5", "HF_HUB_OFFLINE"):
        loading.check_scorer(str(path))
    monkeypatch.setitem(registry.MODELS, "sd15", registry.Model(str(folder_of("sd15")), "a folder"))
    ref = loading.check_scorer(str(path))
    assert (ref.kind, ref.is_folder) == ("diffusion_itm", True)
    scorer = loading.load_scorer(ref)
    assert scorer.fingerprint() == DiffusionITM.from_pretrained("sd15").fingerprint()


def test_files_that_are_not_of_their_base(folder_of, path):
    tensors, folder = original("sd15", folder_of), folder_of("sd15")

    def expect(base, changed, *words):
        write(path, changed)
        with raises("mismatched-parts", *words):
            load_pipeline(f"{base}+{path}")

    unet = "model.diffusion_model."
    expect(folder, tensors | {"unknown.weight": torch.ones(3)}, str(path), "unknown.weight")
    expect(folder, tensors | {f"{unet}more.weight": torch.ones(3)}, str(path), f"{unet}more.weight")
    expect(folder, {name: tensor for name, tensor in tensors.items() if name != f"{unet}out.2.bias"}, "conv_out.bias")
    expect(folder_of("sdxl"), tensors, str(path), "unet", "KeyError")
    expect(folder, original("sdxl", folder_of), str(path), "conditioner")
    expect(folder_of("flux"), tensors, str(path), "transformer")


def test_marks_are_compared_with_the_schedule(folder_of, path, tmp_path):
    folder = shutil.copytree(folder_of("sd15"), tmp_path / "folder")
    write(path, original("sd15", folder_of) | {"v_pred": torch.ones(0)})
    with raises("mismatched-parts", "v_pred", "scheduler_config.json", "prediction_type='v_prediction'"):
        load_pipeline(f"{folder}+{path}")
    config = folder / "scheduler" / "scheduler_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"prediction_type": "v_prediction"}))
    assert load_pipeline(f"{folder}+{path}").schedule.prediction_type == "v_prediction"


@pytest.mark.parametrize("event", ["same size and time", "other size", "other link", "other base", "linked base"])
def test_the_state_changes_with_the_file_and_its_base(event, tiny_pipeline, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "_TICK_NS", 0)
    base, path, other = shutil.copytree(tiny_pipeline, tmp_path / "base"), tmp_path / "a.safetensors", tmp_path / "two"
    for file in (path, other):
        write(file, {"any": torch.zeros(2)})
    name = tmp_path / "link.safetensors"
    name.symlink_to(path)

    def state():
        return sources.resolve(f"{base}+{name}").state()

    first, times = state(), path.stat()
    assert first is not None
    assert first == state()
    if event == "same size and time":
        write(path, {"any": torch.ones(2)})
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert (path.stat().st_size, path.stat().st_mtime_ns) == (times.st_size, times.st_mtime_ns)
    elif event == "other size":
        write(path, {"any": torch.zeros(4)})
    elif event == "other link":
        name.unlink()
        name.symlink_to(other)
    elif event == "other base":
        (base / "unet" / "config.json").touch()
    else:
        (base / "unet").rename(tmp_path / "unet")
        (base / "unet").symlink_to(tmp_path / "unet")
    assert state() != first
    assert (state() is None) == (event == "linked base")


def test_names_of_other_tensors_and_of_none(folder_of):
    tensors = original_layouts.open_clip(original_layouts.read(folder_of("sdxl"), "text_encoder_2"), "")
    start = "cond_stage_model.model."
    whole = {f"{start}{name}": tensor for name, tensor in tensors.items()}
    # Stable Diffusion 2 has one layer less than its file.
    layer = f"{start}transformer.resblocks."
    last = {f"{layer}23.{name.removeprefix(f'{layer}0.')}": one for name, one in whole.items() if f"{layer}0." in name}
    assert last
    result, unused = single_file._convert("CLIPTextModel", whole | last, {"hidden_size": 40})
    expected = original_layouts.read(folder_of("sdxl"), "text_encoder_2")
    expected = {f"text_model.{name.removeprefix('text_model.')}": values for name, values in expected.items()}
    assert result.keys() == expected.keys() - {"text_model.text_projection.weight"}
    assert all(torch.equal(result[name], expected[name]) for name in result)
    assert not unused


def test_diffusers_is_named_where_it_is_missing(path, monkeypatch):
    path.touch()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with raises("missing-package", str(path), "winobench[torch]"):
        sources.resolve(path)


def test_names_of_files(path, tmp_path):
    with raises("no-such-file", str(path)):
        registry.resolve(f"sd15+{path}")
    (tmp_path / "a+b.safetensors").touch()
    assert registry.single_file(tmp_path / "a+b.safetensors") == (str(tmp_path / "a+b.safetensors"), None)
    path.mkdir()
    assert registry.single_file(path) is None
    with raises("no-such-model"):
        registry.resolve("missing.safetensors")


def write_gguf(path, tensors):
    """Writes tensors in several forms, and gives them as diffusers' own torch code reads them again."""
    import gguf
    from diffusers.quantizers.gguf.utils import GGUFParameter, dequantize_gguf_tensor

    kinds = [gguf.GGMLQuantizationType[name] for name in ("Q8_0", "Q4_0", "Q5_1", "BF16")]
    writer, expected = gguf.GGUFWriter(path, "flux"), {}
    for number, (name, tensor) in enumerate(tensors.items()):
        array = tensor.float().numpy()
        if array.ndim == 4:  # flattened, as for ComfyUI
            writer.add_array(f"comfy.gguf.orig_shape.{name}", list(array.shape))
            array = array.reshape(len(array), -1)
        if array.ndim < 2 or array.shape[-1] % 32:
            writer.add_tensor(name, array)
            expected[name] = tensor.float()
            continue
        kind = kinds[number % len(kinds)]
        data = gguf.quantize(array, kind)
        writer.add_tensor(name, data, raw_dtype=kind)
        parameter = GGUFParameter(torch.from_numpy(data), quant_type=kind)
        expected[name] = dequantize_gguf_tensor(parameter).float().reshape(tensor.shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected


@pytest.mark.parametrize("name", ["flux", "sd15"])
def test_gguf_files(name, folder_of, path):
    folder, prefix = folder_of(name), "model.diffusion_model."
    tensors = original(name, folder_of)
    if name == "sd15":  # files of the denoiser alone have no prefix
        tensors = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
    quantised = path.with_suffix(".gguf")
    expected = write_gguf(quantised, tensors)
    read = {key: tensor.floats() for key, tensor in weights.read_weights([str(quantised)]).items()}
    assert read.keys() == expected.keys()
    for key, values in read.items():  # diffusers multiplies in float16
        assert values.shape == tensors[key].shape
        np.testing.assert_allclose(values, expected[key], rtol=2e-3, atol=2e-3 * np.abs(values).max())
    assert any(np.abs(values - tensors[key].float().numpy()).max() > 1e-3 for key, values in read.items())
    write(path, {key: torch.from_numpy(values) for key, values in read.items()})
    plain, quantised_pipeline = load_pipeline(f"{folder}+{path}"), load_pipeline(f"{folder}+{quantised}")
    assert fingerprint(plain) == fingerprint(quantised_pipeline)


def test_damaged_gguf_files(folder_of, path, monkeypatch):
    damaged = path.with_suffix(".gguf")
    damaged.write_bytes(b"GGUF\3\0\0\0")
    with raises("damaged-file", damaged.name):
        load_pipeline(f"{folder_of('sd15')}+{damaged}")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with raises("missing-package", damaged.name, "winobench[torch]"):
        load_pipeline(f"{folder_of('sd15')}+{damaged}")
