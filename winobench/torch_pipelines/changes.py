"""Changes for a few families whose traced code reads values of tensors. All functions take torch tensors."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import types
from collections.abc import Callable, Iterator
from typing import Any

import jax

from winobench.base.errors import InputError


def padded(states: Any, tokens: int) -> Any:
    """States [n, length, ...] or a mask [n, length], with zeros up to ``tokens``."""
    import torch

    missing = tokens - states.shape[1]
    if missing < 0:
        raise InputError(f"a text has {states.shape[1]} tokens, but at most {tokens} can be used", code="too-long")
    return torch.nn.functional.pad(states, (0, 0) * (states.ndim - 2) + (0, missing))


def limit_of(name: str) -> Callable[[Any, int], contextlib.AbstractContextManager[None]]:
    """A context that gives an attribute of the pipeline the most tokens of a text."""

    def limit(pipe: Any, tokens: int) -> contextlib.AbstractContextManager[None]:
        from winobench.torch_pipelines.bridge import replaced

        return replaced(pipe, name, tokens)

    return limit


def _fixed_shift(schedule: Any, shift: float) -> Any:
    """The schedule with one shift for all image sizes, if its shift depends on the size."""
    return dataclasses.replace(schedule, base_shift=shift, max_shift=shift)


@contextlib.contextmanager
def of_tensors(**methods: Any) -> Iterator[None]:
    """Replaces methods of traced tensors, for code that reads values without need."""
    from winobench.torch_pipelines.bridge import environment, replaced

    environment()  # imports torchax
    from torchax.tensor import Tensor
    from torchax.view import View

    with contextlib.ExitStack() as stack:
        for kind in (Tensor, View):
            for name, method in methods.items():
                stack.enter_context(replaced(kind, name, method))
        yield


def without_shift(vae: Any, latents: Any) -> Any:
    """Scales latents for pipelines that leave out ``shift_factor``."""
    return latents * vae.config.scaling_factor


def as_rows(pipe: Any, latents: Any) -> Any:
    """[n, c, h, w] as [n, h w, c]."""
    return latents.flatten(2).transpose(1, 2)


def from_rows(pipe: Any, prediction: Any, height: int, width: int) -> Any:
    side = pipe.vae_scale_factor
    return prediction.transpose(1, 2).unflatten(2, (height // side, width // side))


# BRIA ---------------------------------------------------------------------------------------------------------------


def fibo_fill(results: tuple[Any, ...], tokens: int) -> tuple[Any, ...]:
    """One text's states of all layers [1, layers, tokens, width], and a mask [1, tokens]."""
    import torch

    *_, mask, _, layers, _ = results
    return padded(torch.cat(layers)[None].transpose(1, 2), tokens).transpose(1, 2), padded(mask, tokens)


def fibo_restore(results: tuple[Any, ...]) -> tuple[Any, ...]:
    import torch

    layers, mask = results
    last = torch.cat([layers[:, -1], layers[:, -2]], -1)
    return last, None, mask.new_zeros((*mask.shape, 3)), mask, None, list(layers.unbind(1)), None


@contextlib.contextmanager
def fibo(pipe: Any, latents: Any, results: tuple[Any, ...]) -> Iterator[None]:
    """Keeps the mask. The call drops it where it hides nothing, which a trace cannot decide."""
    with of_tensors(all=lambda _: False):
        yield


def fibo2_prompts(texts: list[str]) -> dict[str, Any]:
    """Formats descriptions in JSON as the call does before it encodes them."""
    from diffusers import BriaFibo2Pipeline

    parsed = [BriaFibo2Pipeline._parse_prompt(text)[0] for text in texts]
    whole = [json.dumps(one or {}, separators=(",", ":"), ensure_ascii=False) for one in parsed]
    return {"prompt": [one if isinstance(one, str) else text for one, text in zip(parsed, whole, strict=True)]}


def fibo2_fill(results: tuple[Any, ...], tokens: int) -> tuple[Any, ...]:
    import torch

    states, mask = results
    mask = torch.ones((len(states), states.shape[2]), dtype=torch.bool) if mask is None else mask
    return padded(states.transpose(1, 2), tokens).transpose(1, 2), padded(mask, tokens)


@contextlib.contextmanager
def fibo2(pipe: Any, latents: Any, results: tuple[Any, ...]) -> Iterator[None]:
    """Gives every text the most summary tokens, and masks those beyond the number for its length."""
    from diffusers.models.transformers import transformer_bria_fibo2

    from winobench.torch_pipelines.bridge import replaced

    config, lengths = pipe.transformer.config, results[1].sum(1)
    most, least = config.max_num_gist_tokens, config.min_num_gist_tokens

    def count(*_: Any, **__: Any) -> Any:
        share = (lengths - config.gist_min_text_len) / (config.gist_max_text_len - config.gist_min_text_len)
        wanted = least + share.clamp(0, 1) * (most - least)
        return ((wanted / config.gist_step).ceil().int() * config.gist_step).clamp(least, most)

    with (
        replaced(transformer_bria_fibo2, "compute_gist_count", count),
        replaced(transformer_bria_fibo2, "max", lambda _: most),
        replaced(transformer_bria_fibo2, "min", lambda _: 0),
        replaced(pipe.transformer.rope_embedder, "freqs_cis", None),  # it would keep tracers
        of_tensors(tolist=lambda numbers: numbers),
    ):
        yield


# DreamLite ----------------------------------------------------------------------------------------------------------


def dream_lite_prompts(texts: list[str]) -> dict[str, Any]:
    return {"prompts": [f"[Generate]: {text}" for text in texts]}


@contextlib.contextmanager
def dream_lite(pipe: Any, latents: Any, results: tuple[Any, ...]) -> Iterator[None]:
    """Runs the loop without guidance, on all rows at once."""
    from diffusers import DreamLiteMobilePipeline

    from winobench.torch_pipelines.bridge import replaced

    whole = DreamLiteMobilePipeline.__call__

    def call(self: Any, *, prompt: Any, latents: Any, guidance_scale: Any, **keywords: Any) -> Any:
        return whole(self, prompt="", **keywords)

    with replaced(type(pipe), "__call__", call), replaced(pipe, "prepare_latents", lambda *_, **__: latents):
        yield


# FLUX.1 Kontext -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def flux_kontext(pipe: Any, latents: Any, results: tuple[Any, ...]) -> Iterator[None]:
    """Allows images of any size."""
    from winobench.torch_pipelines.bridge import replaced

    whole, area = type(pipe).__call__, latents.shape[2] * latents.shape[3] * pipe.vae_scale_factor**2
    with replaced(type(pipe), "__call__", lambda self, **keywords: whole(self, **keywords, max_area=area)):
        yield


# FLUX.2, whose autoencoder has statistics of squares of 2 x 2 latents ------------------------------------------------


def normalized_squares(vae: Any, latents: Any, epsilon: float | None = None) -> Any:
    n, c, h, w = latents.shape
    mean, variance = (one.view(1, c, 1, 2, 1, 2) for one in (vae.bn.running_mean, vae.bn.running_var))
    deviation = (variance + (vae.config.batch_norm_eps if epsilon is None else epsilon)).sqrt()
    return ((latents.view(n, c, h // 2, 2, w // 2, 2) - mean) / deviation).view(n, c, h, w)


def from_squares(pipe: Any, prediction: Any, height: int, width: int) -> Any:
    """Rows of squares [n, s, 4 c], or [n, 4 c, h / 2, w / 2], as [n, c, h, w]."""
    if prediction.ndim == 3:
        side = 2 * pipe.vae_scale_factor
        prediction = prediction.transpose(1, 2).unflatten(2, (height // side, width // side))
    return pipe._unpatchify_latents(prediction)


SQUARES_AS_CHANNELS: dict[str, Any] = {
    "pack": lambda pipe, latents: pipe._patchify_latents(latents),
    "unpack": from_squares,
    "side": 2,
}


# ERNIE-Image --------------------------------------------------------------------------------------------------------

# The pipeline does not read the autoencoder's epsilon.
ernie_scale = functools.partial(normalized_squares, epsilon=1e-5)


def ernie_fill(results: tuple[Any, ...], tokens: int) -> tuple[Any, ...]:
    """([[length, width], ...],) -> states [n, tokens, width] and lengths [n]."""
    import torch

    states = torch.cat([padded(one[None], tokens) for one in results[0]])
    return states, torch.tensor([len(one) for one in results[0]])


def ernie_limit(pipe: Any, tokens: int) -> contextlib.AbstractContextManager[None]:
    from winobench.torch_pipelines.bridge import replaced

    return replaced(pipe.tokenizer, "model_max_length", tokens)


@contextlib.contextmanager
def ernie(pipe: Any, latents: Any, results: tuple[Any, ...]) -> Iterator[None]:
    """Takes one time for each row, and texts that are already padded."""
    import torch

    from winobench.torch_pipelines.bridge import replaced

    full = torch.full

    def of_rows(size: Any, value: Any, **keywords: Any) -> Any:
        return value.to(keywords["dtype"]) if isinstance(value, torch.Tensor) else full(size, value, **keywords)

    with (
        replaced(pipe, "_pad_text", lambda **_: results),
        replaced(torch, "full", of_rows),
    ):
        yield


# HiDream-I1 ---------------------------------------------------------------------------------------------------------


def hidream_layers(results: tuple[Any, ...], tokens: int | None = None) -> tuple[Any, ...]:
    """The states of Llama's layers [layers, n, ...] as [n, layers, ...], and back."""
    t5, _, llama, _, pooled, _ = results
    return t5, None, llama.transpose(0, 1), None, pooled, None


def hidream_schedule(pipe: Any, schedule: Any) -> Any:
    """Uses the shift of the largest image, with the pipeline's constants."""
    config = pipe.transformer.config
    positions = config.max_resolution[0] * config.max_resolution[1] // config.patch_size**2
    return _fixed_shift(schedule, 0.5 + (1.15 - 0.5) / (4096 - 256) * (positions - 256))


@contextlib.contextmanager
def hidream(pipe: Any, latents: Any, results: tuple[Any, ...]) -> Iterator[None]:
    """Runs every expert on every position, and keeps the size of the image."""
    import torch
    from diffusers.models.transformers.transformer_hidream_image import MOEFeedForwardSwiGLU

    from winobench.torch_pipelines.bridge import replaced

    def infer(self: Any, rows: Any, chosen: Any, weights: Any) -> Any:
        hot = torch.nn.functional.one_hot(chosen.view(len(rows), -1), len(self.experts))
        shares = (hot * weights.view(len(rows), -1, 1)).sum(1)
        return sum(expert(rows) * shares[:, i : i + 1] for i, expert in enumerate(self.experts))

    network, patch = pipe.transformer, pipe.transformer.config.patch_size
    sides = [[side // patch for side in latents.shape[2:]]] * len(latents)  # a tensor in diffusers
    whole = network.unpatchify
    with (
        replaced(MOEFeedForwardSwiGLU, "moe_infer", infer),
        replaced(network, "unpatchify", lambda rows, _, is_training: whole(rows, sides, is_training)),
        replaced(pipe, "default_sample_size", latents.shape[-1]),
    ):
        yield


# HunyuanImage -------------------------------------------------------------------------------------------------------


def hunyuan_image_schedule(pipe: Any, schedule: Any) -> Any:
    if pipe.transformer.config.use_meanflow:
        raise InputError(
            "the distilled HunyuanImage predicts the mean of a step between two noise levels (use_meanflow), which has"
            " no denoising error at one level: use the model that is not distilled",
            code="unsupported-option",
        )
    return schedule


@contextlib.contextmanager
def hunyuan_image(pipe: Any, latents: Any, results: tuple[Any, ...]) -> Iterator[None]:
    """Joins the two padded texts and their masks. Padding may lie between them, since attention has no order."""
    import torch

    from winobench.torch_pipelines.bridge import replaced

    _, mask, letters, letters_mask = results
    network = pipe.transformer
    of_words, of_letters = network.context_embedder, network.context_embedder_2
    both = torch.cat([letters_mask, mask], 1)

    class Texts(torch.nn.Module):
        def forward(self, states: Any, time: Any, _: Any) -> Any:
            return torch.cat([of_letters(letters.to(states.dtype)), of_words(states, time, mask.bool())], 1)

    forward = network.forward

    def with_both(**keywords: Any) -> Any:
        return forward(**{**keywords, "encoder_attention_mask": both})

    with (
        replaced(network, "_modules", {**network._modules, "context_embedder": Texts(), "context_embedder_2": None}),
        replaced(network, "forward", with_both),
        replaced(torch, "all", lambda _: True),  # the call chooses a guider by it, and both are left out
    ):
        yield


# Ideogram 4 ---------------------------------------------------------------------------------------------------------


def ideogram_fill(results: tuple[Any, ...], tokens: int) -> tuple[Any, ...]:
    """States of the text alone [n, tokens, width], and lengths [n]. The image has one position here."""
    states, _, kinds, _ = results
    return states[:, :tokens], (kinds[:, :tokens] > 0).sum(1)


def ideogram_limit(pipe: Any, tokens: int) -> contextlib.AbstractContextManager[None]:
    """Cuts longer texts off, which the pipeline refuses."""
    from winobench.torch_pipelines.bridge import replaced

    kind = type(pipe.tokenizer)
    call = kind.__call__

    def cut(self: Any, text: Any, **keywords: Any) -> Any:
        return call(self, text, **{**keywords, "truncation": True, "max_length": tokens})

    return replaced(kind, "__call__", cut)


def ideogram_restore(results: tuple[Any, ...]) -> tuple[Any, ...]:
    """Placeholders. `ideogram` computes the values, which depend on the size of the image."""
    return (results[0],) * 4


def ideogram_scale(vae: Any, latents: Any) -> Any:
    """Normalizes latents [n, c, h, w] as squares whose channels come last."""
    n, c, h, w = latents.shape
    mean, variance = (one.view(1, 2, 2, c).permute(0, 3, 1, 2) for one in (vae.bn.running_mean, vae.bn.running_var))
    mean, variance = mean[:, :, None, :, None], (variance + vae.config.batch_norm_eps)[:, :, None, :, None]
    return ((latents.view(n, c, h // 2, 2, w // 2, 2) - mean) / variance.sqrt()).view(n, c, h, w)


def ideogram_pack(pipe: Any, latents: Any) -> Any:
    n, c, h, w = latents.shape
    return latents.view(n, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 3, 5, 1).reshape(n, h * w // 4, 4 * c)


def ideogram_unpack(pipe: Any, prediction: Any, height: int, width: int) -> Any:
    n, _, c = prediction.shape
    h, w = (side // pipe.vae_scale_factor for side in (height, width))
    return prediction.view(n, h // 2, w // 2, 2, 2, c // 4).permute(0, 5, 1, 3, 2, 4).reshape(n, c // 4, h, w)


@contextlib.contextmanager
def ideogram(pipe: Any, latents: Any, results: tuple[Any, ...]) -> Iterator[None]:
    """Computes positions from traced lengths of texts. Leaves out the unconditional network."""
    import torch

    from winobench.torch_pipelines.bridge import replaced

    states, lengths = results
    n, tokens = states.shape[:2]
    of_image = pipe._prepare_ids([0] * n, *(side // 2 for side in latents.shape[2:]), 0, latents.device)
    places = torch.arange(tokens, device=latents.device) - (tokens - lengths)[:, None]
    inside = (places >= 0).long()
    of_text = (places * inside)[:, :, None].expand(-1, -1, 3), 2 * inside - 1, 3 * inside
    ids = [torch.cat(pair, 1) for pair in zip(of_text, of_image, strict=True)]
    keywords = dict(zip(("position_ids", "segment_ids", "indicator"), ids, strict=True))
    keywords["encoder_hidden_states"] = torch.nn.functional.pad(states, (0, 0, 0, of_image[1].shape[1]))
    forward = pipe.transformer.forward

    class Nothing:
        dtype = latents.dtype

        def __call__(self, hidden_states: Any, **_: Any) -> Any:
            return (0 * hidden_states,)

    with (
        replaced(pipe.transformer, "forward", lambda **given: forward(**{**given, **keywords})),
        replaced(pipe, "unconditional_transformer", Nothing()),
        of_tensors(tolist=lambda numbers: numbers),
    ):
        yield


# Kandinsky 3 --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def kandinsky3(pipe: Any, latents: Any, results: tuple[Any, ...]) -> Iterator[None]:
    """Averages a text's states over its tokens and one padding token, as the pipeline does."""
    import torch

    from winobench.torch_pipelines.bridge import replaced

    mask, pooling = results[2], pipe.unet.add_time_condition
    counted = torch.nn.functional.pad(mask, (1, -1), value=1)[..., None]

    def pooled(embedding: Any, states: Any, bias: Any) -> Any:
        mean = (states * counted).sum(1, keepdim=True) / counted.sum(1, keepdim=True)
        return embedding + pooling.attention(mean, states, bias).squeeze(1)

    with replaced(pooling, "forward", pooled):
        yield


# Kandinsky 5 --------------------------------------------------------------------------------------------------------


def kandinsky5_fill(results: tuple[Any, ...], tokens: int) -> tuple[Any, ...]:
    """(states of one text, pooled, ends) -> states with ``tokens`` tokens, pooled, mask [1, tokens]."""
    import torch

    states, pooled, _ = results
    return padded(states, tokens), pooled, padded(torch.ones(states.shape[:2], dtype=torch.long), tokens)


def kandinsky5_restore(results: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replaces the mask by the ends of the texts, from which the call computes the largest length."""
    states, pooled, _ = results
    length = types.SimpleNamespace(item=lambda: states.shape[1])
    return states, pooled, types.SimpleNamespace(diff=lambda: types.SimpleNamespace(max=lambda: length))


def kandinsky5_times(times: Any) -> Any:
    """Times that stay as they are where the loop repeats a time for each row."""
    return types.SimpleNamespace(unsqueeze=lambda _: types.SimpleNamespace(repeat=lambda _: times))


@contextlib.contextmanager
def kandinsky5(pipe: Any, latents: Any, results: tuple[Any, ...]) -> Iterator[None]:
    """Masks the padding, and allows images of any size."""
    import torch
    from diffusers.models.transformers import transformer_kandinsky

    from winobench.torch_pipelines.bridge import JAX, as_jax, as_torch, replaced

    mask, attend = results[2].bool()[:, None, None], transformer_kandinsky.dispatch_attention_fn

    def to_text(*arrays: Any, **keywords: Any) -> Any:
        return attend(*arrays, **{**keywords, "attn_mask": mask})

    def masked(processor: Any, *inputs: Any, **keywords: Any) -> Any:
        with replaced(transformer_kandinsky, "dispatch_attention_fn", to_text):
            return processor(*inputs, **keywords)

    network = pipe.transformer
    parts = [block.self_attention for block in network.text_transformer_blocks]
    parts += [block.cross_attention for block in network.visual_transformer_blocks]
    to = torch.Tensor.to

    def rounding(self: Any, *where: Any, **keywords: Any) -> Any:
        """XLA would leave out the rounding of rotated queries and keys, which are float32 again right after."""
        if where == (torch.bfloat16,) and self.device.type == JAX:
            self = as_torch(jax.lax.reduce_precision(as_jax(self), exponent_bits=8, mantissa_bits=7))
        return to(self, *where, **keywords)

    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(torch.Tensor, "to", rounding))
        for part in parts:
            stack.enter_context(replaced(part, "processor", functools.partial(masked, part.processor)))
        sides = tuple(side * pipe.vae_scale_factor_spatial for side in latents.shape[:1:-1])
        stack.enter_context(replaced(pipe, "resolutions", [sides]))
        yield


# Krea 2 -------------------------------------------------------------------------------------------------------------


def krea2_schedule(pipe: Any, schedule: Any) -> Any:
    """The distilled model has one shift for all sizes."""
    return _fixed_shift(schedule, 1.15) if pipe.config.is_distilled else schedule


# Lumina 2 -----------------------------------------------------------------------------------------------------------


def lumina2_schedule(pipe: Any, schedule: Any) -> Any:
    """Computes the shift as the pipeline does, which passes the channels as the number of positions."""
    slope = (schedule.max_shift - schedule.base_shift) / (schedule.max_image_seq_len - schedule.base_image_seq_len)
    positions = pipe.transformer.config.in_channels
    return _fixed_shift(schedule, schedule.base_shift + slope * (positions - schedule.base_image_seq_len))


@contextlib.contextmanager
def lumina2(pipe: Any, latents: Any, results: tuple[Any, ...]) -> Iterator[None]:
    """Keeps the padding between the text and the image, and masks it."""
    import torch

    from winobench.torch_pipelines.bridge import replaced

    network, mask = pipe.transformer, results[1]
    rope, tokens = network.rope_embedder, mask.shape[1]
    n, _, height, width = latents.shape
    rows, columns = height // rope.patch_size, width // rope.patch_size
    joint = torch.cat([mask.bool(), torch.ones((n, rows * columns), dtype=torch.bool, device=mask.device)], 1)

    def embed(hidden: Any, _: Any) -> Any:
        def line(count: int) -> Any:
            return torch.arange(count, device=mask.device)

        text = torch.nn.functional.pad(line(tokens).view(1, -1, 1).expand(n, -1, -1), (0, 2))
        after = mask.sum(1).view(n, 1, 1).expand(-1, rows * columns, -1)
        grid = torch.stack([line(rows).repeat_interleave(columns), line(columns).repeat(rows)], -1)
        ids = torch.cat([text, torch.cat([after, grid.expand(n, -1, -1)], 2)], 1)
        turns = rope._get_freqs_cis(ids)
        patches = hidden.unflatten(3, (columns, -1)).unflatten(2, (rows, -1)).permute(0, 2, 4, 3, 5, 1)
        lengths = [[tokens] * n, [tokens + rows * columns] * n]
        return patches.flatten(3).flatten(1, 2), turns[:, :tokens], turns[:, tokens:], turns, *lengths

    def masked(forward: Any, hidden: Any, _: Any, *others: Any) -> Any:
        return forward(hidden, joint, *others)

    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(rope, "forward", embed))
        for layer in network.layers:
            stack.enter_context(replaced(layer, "forward", functools.partial(masked, layer.forward)))
        yield


# Lumina-Next --------------------------------------------------------------------------------------------------------


class Always:
    """Greater than any number."""

    def __gt__(self, other: Any) -> bool:
        return True


def lumina_fill(results: tuple[Any, ...], tokens: int) -> tuple[Any, ...]:
    states, mask, *others = results
    return padded(states, tokens), padded(mask, tokens), *others


# Nucleus-Image ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def nucleus(pipe: Any, latents: Any, results: tuple[Any, ...]) -> Iterator[None]:
    """Computes all experts in one product, since each takes the same number of positions."""
    import torch
    from diffusers.models.transformers.transformer_nucleusmoe_image import NucleusMoEEmbedRope, SwiGLUExperts

    from winobench.torch_pipelines.bridge import replaced

    def run(self: Any, positions: Any, _: Any) -> Any:
        gate, up = (positions.unflatten(0, (self.num_experts, -1)) @ self.gate_up_proj).chunk(2, -1)
        return ((torch.nn.functional.silu(gate) * up) @ self.down_proj).flatten(0, 1)

    uncached = NucleusMoEEmbedRope._compute_video_freqs.__wrapped__  # a cache would keep tracers
    with (
        replaced(SwiGLUExperts, "forward", run),
        replaced(NucleusMoEEmbedRope, "_compute_video_freqs", uncached),
    ):
        yield


# Z-Image ------------------------------------------------------------------------------------------------------------


def z_image_fill(results: tuple[Any, ...], tokens: int) -> tuple[Any, ...]:
    """([[length, width], ...], []) -> states [n, tokens, width] and lengths [n]."""
    import torch

    texts = [text[0] if isinstance(text, list) else text for text in results[0]]
    return torch.cat([padded(text[None], tokens) for text in texts]), torch.tensor([len(text) for text in texts])


@contextlib.contextmanager
def z_image(pipe: Any, latents: Any, results: tuple[Any, ...]) -> Iterator[None]:
    """Takes texts of the most tokens, and masks them beyond their next multiple of 32 tokens."""
    import torch

    from winobench.torch_pipelines.bridge import replaced

    states, lengths = results
    network, tokens, omni = pipe.transformer, states.shape[1], hasattr(pipe, "siglip")
    places = torch.arange(tokens, device=states.device)
    padded_lengths = (lengths + 31) // 32 * 32
    kept = places < padded_lengths[:, None]
    prepare, build = network._prepare_sequence, network._build_unified_sequence

    def prepared(rows: Any, positions: Any, padding: Any, token: Any, *others: Any) -> Any:
        if token is network.cap_pad_token:
            hidden = [places >= length for length in lengths]
            rows, turns, _, *rest = prepare(rows, positions, hidden, token, *others)
            return rows, turns, kept, *rest
        moves = (lengths if omni else padded_lengths) - tokens  # the image's positions follow the text's
        moves = torch.nn.functional.pad(moves[:, None], (0, 2))
        at = [where + move * ~pad[:, None] for where, move, pad in zip(positions, moves, padding, strict=True)]
        return prepare(rows, at, padding, token, *others)

    def built(*everything: Any) -> Any:
        joint, turns, _, noise = build(*everything)
        image = torch.ones_like(joint[:, tokens:, 0], dtype=torch.bool)
        return joint, turns, torch.cat([kept, image] if omni else [image, kept], 1), noise

    with (
        replaced(network, "_prepare_sequence", prepared),
        replaced(network, "_build_unified_sequence", built),
        replaced(network.rope_embedder, "freqs_cis", None),  # it would keep tracers
        of_tensors(item=lambda number: number),
    ):
        yield
