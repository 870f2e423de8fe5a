"""Folders of flow models in which something is wrong: one sentence that says what, before gigabytes are read."""

import pathlib
import shutil

import pytest

from tests.changed_files import edited
from tests.expectations import names, raises
from winobench.base.errors import InputError
from winobench.diffusion import families

INDEX = "model_index.json"
DENOISER = "transformer/config.json"


def without(name):
    def damage(folder):
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return damage


@pytest.mark.parametrize(
    ("kind", "damage", "words"),
    [
        *(
            (kind, without(part), (f"{part}/config.json",))
            for kind, parts in {
                "sd3": ("transformer", "text_encoder_3"),
                "flux": ("vae",),
                "klein": ("text_encoder",),
            }.items()
            for part in parts
        ),
        ("klein", without("scheduler"), ("scheduler/scheduler_config.json",)),
        ("sd3", without("tokenizer_2"), ("tokenizer_2/vocab.json",)),
        ("sd3", without("tokenizer_3"), ("tokenizer_3",)),
        ("klein", without("tokenizer"), ("tokenizer",)),
        ("flux", edited(INDEX, vae=...), (INDEX, "vae", "missing")),
        ("klein", edited(INDEX, text_encoder=["transformers", "T5EncoderModel"]), ("text_encoder", "T5EncoderModel")),
        ("sd3", edited(DENOISER, in_channels=4), ("the transformer takes 4", "16")),
        ("sd3", edited(DENOISER, pooled_projection_dim=40), ("40", "48")),
        ("flux", edited(DENOISER, in_channels=16), ("4 channels", "16")),
        ("flux", edited(DENOISER, pooled_projection_dim=40), ("pooled text", "40", "32")),
        ("flux", edited("text_encoder_2/config.json", d_model=48), ("text states", "24", "48")),
        ("klein", edited(DENOISER, in_channels=32), ("8 channels", "4")),
        ("klein", edited(DENOISER, joint_attention_dim=70), ("70", "24")),
        ("klein", edited(INDEX, is_distilled="yes"), (INDEX, "is_distilled", "'yes'")),
        ("klein", edited(DENOISER, guidance_embeds=True), ("guidance_embeds", "klein")),
        ("klein", edited("text_encoder/config.json", hidden_size=25, head_dim=8), ("72", "25", "same model")),
        ("klein", edited("vae/config.json", patch_size=[4, 4]), ("config.json", "patch_size")),
        ("z_image", edited(INDEX, text_encoder=None), (INDEX, "text_encoder", "missing", "ZImagePipeline")),
        ("z_image", edited("text_encoder/config.json", model_type="llama"), ("config.json", "model_type", "'qwen3'")),
        ("z_image", edited("text_encoder/config.json", hidden_size=25), ("24", "25", "same model")),
        ("z_image", edited("text_encoder/config.json", vocab_size=99), ("400", "99", "tokenizer")),
        ("z_image", edited(DENOISER, in_channels=8), ("8", "4", "channels", "same model")),
        ("z_image", edited(DENOISER, axes_lens=[500, 64, 64]), ("text_tokens", "512", "axes_lens", "480")),
        ("z_image", edited("scheduler/scheduler_config.json", shift=0), ("scheduler_config.json", "shift")),
        ("z_image", without("vae/diffusion_pytorch_model.safetensors"), ("vae", "diffusion_pytorch_model")),
        # The parts agree by their configs, and one has other weights.
        ("z_image", edited(DENOISER, n_layers=3), ("layers.2.attention.norm_k.weight", "missing")),
        ("sd3", edited(DENOISER, num_layers=3), ("SD3Transformer2DModel", "32 missing")),
        ("klein", edited(DENOISER, mlp_ratio=2.0), ("transformer", "shape")),
    ],
)
def test_what_is_wrong_is_one_sentence(kind, damage, words, folder_of, tmp_path):
    folder = pathlib.Path(shutil.copytree(folder_of(kind), tmp_path / "folder"))
    damage(folder)
    with pytest.raises(InputError, match=names(*words)) as caught:
        families.load_pipeline(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        # A family that is not known names those that are.
        ("sd3", {"_class_name": "SigmaPipeline", "text_encoder_2": ...}, ("SigmaPipeline", *families.FAMILIES)),
        (
            "flux",
            {"_class_name": "FooPipeline", "transformer": ..., "unet": ["diffusers", "UNet3D"]},
            ("FooPipeline", *families.FAMILIES),
        ),
        (
            "klein",
            {"_class_name": ..., "transformer": ["diffusers", "SanaTransformer2DModel"]},
            ("pipeline", *families.FAMILIES),
        ),
        # Classes that are not known are not taken for others.
        ("sd3", {"_class_name": "FooPipeline"}, ("FooPipeline", "StableDiffusion3Pipeline")),
        ("sd3", {"_class_name": 5}, ("5", "StableDiffusion3Pipeline")),
        ("flux", {"tokenizer_2": ["transformers", "FooTokenizer"]}, ("tokenizer_2", "FooTokenizer")),
        ("flux", {"transformer": ["pipeline", "FluxTransformer2DModel"]}, ("pipeline.FluxTransformer2DModel",)),
    ],
)
def test_classes_and_families_that_are_not_known(kind, changes, words, folder_of, tmp_path):
    folder = pathlib.Path(shutil.copytree(folder_of(kind), tmp_path / "folder"))
    edited(INDEX, **changes)(folder)
    for read in (families.read_description, families.load_pipeline):
        with raises("wrong-kind-of-model", INDEX, *words):
            read(folder)


def test_pipelines_of_other_tasks_with_the_same_parts_are_taken(folder_of, tmp_path):
    folder = pathlib.Path(shutil.copytree(folder_of("sd3"), tmp_path / "folder"))
    edited(INDEX, _class_name="StableDiffusion3Img2ImgPipeline")(folder)
    assert type(families.load_pipeline(folder)).__name__ == "StableDiffusion3"
