"""Small random pipelines in the layouts of FLUX.2-klein and its base, written by torch diffusers."""

from __future__ import annotations

import json
import pathlib

from tests import tiny_language_models, tiny_sd3

OUT_LAYERS = (1, 2, 3)
CHANNELS = 4


def tokenizer():
    """Of the class that Qwen3 has, with the vocabulary and the template of `tiny_language_models`."""
    import transformers

    like = tiny_language_models.make_tokenizer(kind="bare", chat_template=tiny_language_models.CHAT_TEMPLATE)
    content = json.loads(like.backend_tokenizer.to_str())
    added = {token["content"] for token in content["added_tokens"]}
    result = transformers.Qwen2TokenizerFast(
        vocab=content["model"]["vocab"],
        merges=[tuple(pair) for pair in content["model"]["merges"]],
        eos_token=tiny_language_models.CHAT_END,
        pad_token=tiny_language_models.PAD,
        unk_token=None,
        additional_special_tokens=sorted(added),
    )
    result.chat_template = tiny_language_models.CHAT_TEMPLATE
    return result


def qwen3_config(words, **options):
    """Of a small encoder for these tokens. The released ones differ in whether embeddings are tied."""
    import transformers

    sizes = {"vocab_size": len(words), "hidden_size": 24, "intermediate_size": 48, "num_attention_heads": 4}
    sizes |= {"num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 4096, "bos_token_id": None}
    sizes |= {"eos_token_id": words.eos_token_id}
    return transformers.Qwen3Config(**sizes, **options)


def write(folder: pathlib.Path, *, distilled: bool = True) -> pathlib.Path:
    """Writes the folder: two blocks of either kind, an encoder of four layers, statistics that are not 0 and 1."""
    import diffusers
    import torch
    import transformers

    from tests.parity.harness import randomize

    words = tokenizer()
    sizes = {"in_channels": 4 * CHANNELS, "num_layers": 2, "num_single_layers": 2, "attention_head_dim": 16}
    sizes |= {"num_attention_heads": 2, "joint_attention_dim": 3 * 24, "timestep_guidance_channels": 32}
    sizes |= {"axes_dims_rope": (2, 6, 4, 4), "guidance_embeds": False}
    transformer = diffusers.Flux2Transformer2DModel(**sizes)
    vae = tiny_sd3.autoencoder(CHANNELS, "AutoencoderKLFlux2")
    encoder = transformers.Qwen3ForCausalLM(qwen3_config(words, num_hidden_layers=4, tie_word_embeddings=distilled))
    for number, network in enumerate((transformer, vae, encoder)):
        randomize(network, number)
    generator = torch.Generator().manual_seed(7)
    vae.bn.running_mean.copy_(0.3 * torch.randn(4 * CHANNELS, generator=generator))
    vae.bn.running_var.copy_(0.5 + torch.rand(4 * CHANNELS, generator=generator))
    shifts = {"shift": 3.0, "use_dynamic_shifting": True}
    diffusers.Flux2KleinPipeline(
        transformer=transformer,
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(**shifts),
        vae=vae,
        text_encoder=encoder,
        tokenizer=words,
        is_distilled=distilled,
    ).save_pretrained(folder)
    # Which layers are taken is an argument of diffusers' pipelines, and here a setting that a folder may keep.
    path = folder / "scheduler" / "scheduler_config.json"
    own = {"_winobench": {"settings": {"text_encoder_out_layers": list(OUT_LAYERS)}}}
    path.write_text(json.dumps({**json.loads(path.read_text()), **own}))
    return folder
