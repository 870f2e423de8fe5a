"""The recipe of clevr-tokens: Janus in miniature. Rendered scenes -> image tokenizer -> tokens -> decoder -> folder.

Torch computes the gradients, by transformers' code. Each stage keeps its result in ``<workdir>`` and is skipped when
that is there already:

    <workdir>/scenes/        ArrayRecord shards: images (PNG) and the token ids of several prompts each
              quantizer/     checkpoints, metrics.jsonl, reconstructions
              tokens/        ArrayRecord shards: image tokens and the token ids of the prompts
              decoder/       checkpoints, metrics.jsonl
              pixels/        the same of the network that makes images from tokens
              clevr_tokens/  the exported folder of transformers
"""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from winobench.base import memory
from winobench.base.errors import InputError
from winobench.contrib.studies import clevr_flow, embedded, small_janus, torch_steps
from winobench.contrib.studies.images import decode_png, save_images
from winobench.data import array_records
from winobench.training import loop

if TYPE_CHECKING:
    from configs.clevr_tokens import Settings

NAME = "clevr_tokens"  # of the exported folder
STAGES = ("quantizer", "decoder", "pixels")
_BATCH = 64  # images that are encoded at once
_SKETCH_WIDTH = 128
_COMMITMENT = 0.25  # weight of the distance between vectors and their codes
# A code with less than this share of the mean use is replaced, at every tenth step of the first four fifths.
_LEAST_USE, _RESTART_EVERY, _RESTART_SHARE = 0.01, 10, 0.8
_EMBEDDING_SPREAD, _RESIDUAL_SPREAD = 0.3, 0.01

ONE_PROCESS = True

default_name = embedded.default_name


def free_fields(config: Settings) -> tuple[str, ...]:
    return (*embedded.free_fields("decoder"), *embedded.free_fields("pixels"))


def run(
    config: Settings,
    workdir: str | os.PathLike,
    *,
    max_seconds: float | None = None,
    log: Sequence[str] = (),
) -> str:
    workdir = pathlib.Path(workdir)
    check(config)
    make_scenes(config, workdir)
    make_tokens(config, workdir, log=log)
    decoder = train_decoder(config, workdir, max_seconds=max_seconds, log=log)
    folder = export(config, workdir, decoder, train_pixels(config, workdir, log=log))
    return f"exported {folder}: judge it with winobench eval --tasks=clevr --model={folder}"


def check(config: Settings) -> None:
    """Refuses networks that cannot be made and batches that cannot fit, before the first scene is rendered."""
    settings, decoder = config.data, config.decoder
    for name, value, factor in (
        ("data.image_size", settings.image_size, small_janus.DOWNSAMPLING),
        ("decoder.hidden_size", decoder.hidden_size, 2 * decoder.num_heads),
    ):
        if value % factor:
            raise InputError(f"--{name} is {value}, but must be a multiple of {factor}", code="not-a-multiple")
    small_janus.make_model(config, small_janus.make_processor(config).tokenizer, on_meta=True)
    for name in STAGES:
        embedded.check_decay(config, name)
        memory.check(
            f"training the {name} on {getattr(config, name).batch_size:,} examples a step",
            2 * 4 * getattr(config, name).batch_size * settings.image_size**2 * 32,
            f"lower --{name}.batch_size",
            jax.local_devices()[0],
        )


# Scenes ---------------------------------------------------------------------------------------------------------------


def make_scenes(config: Settings, workdir: pathlib.Path) -> None:
    """Renders clevr-flow's scenes with the same captions."""
    about = embedded.about_stage(config, "data")
    if not array_records.is_complete(workdir / "scenes", about):
        prompts = small_janus.Prompts(small_janus.make_processor(config), config.data.max_length)
        records = clevr_flow.RECIPE.scene_records(config, prompts)
        array_records.write_shards(workdir / "scenes", records, num_shards=config.data.num_shards, about=about)


def _pixels(images: Any) -> Any:
    """A tensor uint8 [n, height, width, 3] -> float32 [n, 3, height, width] from -1 to 1."""
    return images.permute(0, 3, 1, 2).float() / 127.5 - 1.0


def _only_image(record: dict[str, np.ndarray], generator: np.random.Generator) -> dict[str, np.ndarray]:
    return {"images": decode_png(record["image"])}


def _reconstruction_loss(drawn: Any, images: Any) -> tuple[Any, dict[str, Any]]:
    difference = drawn - images
    mean_absolute, mse = difference.abs().mean(), difference.square().mean()
    return mean_absolute + mse, {"mse": mse}


# Image tokenizer ------------------------------------------------------------------------------------------------------


def sketching(config: Settings) -> Any:
    """Janus's image tokenizer with a light network instead of its decoder, which would take most of the time."""
    from winobench.torch_modules.bridge import torch

    settings = config.quantizer
    side, nn = small_janus.DOWNSAMPLING, torch.nn
    module = nn.Module()
    module.vqmodel = small_janus.make_model(config, small_janus.make_processor(config).tokenizer).model.vqmodel
    for part in (module.vqmodel.decoder, module.vqmodel.post_quant_conv, module.vqmodel.quantize):
        part.requires_grad_(False)
    module.sketch = nn.Sequential(
        nn.Conv2d(settings.code_size, _SKETCH_WIDTH, 3, padding=1),
        nn.SiLU(),
        nn.Conv2d(_SKETCH_WIDTH, _SKETCH_WIDTH, 3, padding=1),
        nn.SiLU(),
        nn.Conv2d(_SKETCH_WIDTH, 3 * side**2, 1),
        nn.PixelShuffle(side),
    )
    # Moving averages of the vectors of each code: their sum and their number.
    module.sums = nn.Parameter(nn.functional.normalize(torch.randn(settings.num_codes, settings.code_size), dim=-1))
    module.uses = nn.Parameter(torch.ones(settings.num_codes))
    return module


def _sketch(module: Any, images: Any, *, quantized: bool) -> tuple[Any, Any, Any]:
    """Drawn images, vectors, and each vector's code. Gradients pass the codes straight through."""
    from winobench.torch_modules.bridge import torch

    vectors = small_janus.image_vectors(module.vqmodel, images)
    codes = torch.nn.functional.normalize(module.sums.detach(), dim=-1)
    nearest = codes[(vectors.detach() @ codes.T).argmax(-1)]
    given = vectors + (nearest - vectors).detach() if quantized else vectors
    side = images.shape[-1] // small_janus.DOWNSAMPLING
    return module.sketch(given.transpose(1, 2).unflatten(2, (side, side))), vectors, nearest


def train_quantizer(config: Settings, workdir: pathlib.Path, *, log: Sequence[str] = ()) -> loop.Params:
    """Trains, or resumes. Returns the averaged parameters, with the codes as ``sums``."""
    settings, folder = config.quantizer, workdir / "quantizer"
    small_janus.seed_torch(config.seed)
    module = sketching(config)

    def compute(module: Any, batch: Mapping[str, Any], step: int) -> tuple[Any, dict[str, Any]]:
        images = _pixels(batch["images"])
        drawn, vectors, nearest = _sketch(module, images, quantized=step >= settings.warmup_steps)
        loss, metrics = _reconstruction_loss(drawn, images)
        distance = 1.0 - (vectors * nearest).sum(-1).mean()
        return loss + _COMMITMENT * distance, {**metrics, "distance": distance, "vectors": vectors.flatten(0, 1)}

    update, state = torch_steps.make_step(module, compute, settings, config.seed)

    def step(state: loop.TrainState, batch: loop.Batch) -> tuple[loop.TrainState, loop.Metrics]:
        number = int(state.step)  # the update takes the state
        state, metrics = update(state, batch)
        restart = number % _RESTART_EVERY == 0 and number < _RESTART_SHARE * settings.num_steps
        key = jax.random.fold_in(jax.random.key(config.seed), number)
        codes = follow(state.params, metrics.pop("vectors"), key, settings.codes_decay, restart)
        return state._replace(params={**state.params, **codes}), metrics

    source = array_records.ShardSource(workdir / "scenes")
    shown = np.stack([decode_png(source[index]["image"]) for index in range(min(16, len(source)))])

    def show(state: loop.TrainState) -> None:
        from winobench.torch_modules.bridge import torch

        torch_steps.load(module, state.ema)
        images = _pixels(torch.from_numpy(shown))
        with torch.no_grad():
            sheet = torch.cat([images, _sketch(module, images, quantized=True)[0]])
        save_images(sheet.permute(0, 2, 3, 1).numpy(), folder / f"step-{int(state.step):06d}.png")

    batches = embedded.shuffled(source, _only_image, settings, config.seed)
    how = {"log": log, "on_checkpoint": show, "mesh": torch_steps.one_device()}
    return embedded.train_stage(step, state, batches, settings, folder, **how).ema


@jax.jit
def follow(
    params: Mapping[str, jax.Array], vectors: jax.Array, key: jax.Array, decay: float, restart: bool
) -> dict[str, jax.Array]:
    """Moves the codes towards the vectors [n, size] that are nearest to each (van den Oord et al. 2017, appendix A.1).

    With ``restart``, codes that are hardly used become vectors of this batch.
    """
    sums, uses = params["sums"], params["uses"]
    codes = sums / jnp.linalg.norm(sums, axis=-1, keepdims=True)
    nearest = jax.nn.one_hot((vectors @ codes.T).argmax(-1), len(codes))
    sums = decay * sums + (1 - decay) * nearest.T @ vectors
    uses = decay * uses + (1 - decay) * nearest.sum(0)
    drawn = jax.random.choice(key, vectors, (len(codes),))
    dead = restart & (uses < _LEAST_USE * len(vectors) / len(codes))
    return {"sums": jnp.where(dead[:, None], drawn, sums), "uses": jnp.where(dead, 1.0, uses)}


def make_tokens(config: Settings, workdir: pathlib.Path, *, log: Sequence[str] = ()) -> None:
    """Trains the image tokenizer and encodes every training image."""
    about = embedded.about_stage(config, "data", "quantizer")
    if array_records.is_complete(workdir / "tokens", about):
        return
    vqmodel = trained_tokenizer(config, workdir, log=log)
    source = array_records.ShardSource(workdir / "scenes")

    def records() -> Iterator[dict[str, np.ndarray]]:
        from winobench.torch_modules.bridge import torch

        for first in range(0, len(source), _BATCH):
            rows = [source[index] for index in range(first, min(first + _BATCH, len(source)))]
            images = torch.from_numpy(np.stack([decode_png(row["image"]) for row in rows]))
            with torch.no_grad():
                tokens = small_janus.image_tokens(vqmodel, _pixels(images)).numpy().astype(np.uint16)
            for row, its_tokens in zip(rows, tokens, strict=True):
                yield {"tokens": its_tokens, "input_ids": row["input_ids"]}

    array_records.write_shards(workdir / "tokens", records(), num_shards=config.data.num_shards, about=about)


def trained_tokenizer(config: Settings, workdir: pathlib.Path, *, log: Sequence[str] = ()) -> Any:
    """Janus's image tokenizer with trained weights. Its decoder is fresh."""
    from winobench.torch_modules.bridge import torch

    params = train_quantizer(config, workdir, log=log)
    small_janus.seed_torch(config.seed)
    module = sketching(config)
    torch_steps.load(module, params)
    with torch.no_grad():
        codes = torch.nn.functional.normalize(module.sums, dim=-1)
        module.vqmodel.quantize.embedding.weight.copy_(codes)
    return module.vqmodel


# Decoder --------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class ChoosePrompt:
    """Samples one of a record's prompts, or the prompt without a text: Grain's random transform.

    Half of the prompts without a text have the length of the sampled one, as in generation. The others have the length
    of the empty text's prompt, as in scores.
    """

    processor: Any
    empty_fraction: float  # the probability of no text

    def __call__(self, record: dict[str, np.ndarray], generator: np.random.Generator) -> dict[str, np.ndarray]:
        ids = record["input_ids"][generator.integers(len(record["input_ids"]))].astype(np.int32)
        chance = generator.random() / self.empty_fraction if self.empty_fraction else 1.0
        if chance < 0.5:
            ids = self._empty(len(ids))
        elif chance < 1.0:
            ids = small_janus.without_text(ids, self.processor.tokenizer)
        return {"tokens": record["tokens"].astype(np.int32), "input_ids": ids}

    def _empty(self, length: int) -> np.ndarray:
        prompt = small_janus.Prompts(self.processor, length)([""], padding="max_length", return_tensors="np")
        return small_janus.without_text(prompt["input_ids"][0], self.processor.tokenizer).astype(np.int32)


def fresh_decoder(config: Settings, tokenizer: Any, codes: Any) -> Any:
    """A model of which the language model and the parts for image tokens are trained, from these codes."""
    from winobench.torch_modules.bridge import torch

    small_janus.seed_torch(config.seed)
    model = small_janus.make_model(config, tokenizer)
    inner = model.model
    for part in (inner.vqmodel, inner.vision_model, inner.aligner):
        part.requires_grad_(False)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "embed_tokens" in name:
                value.normal_(0.0, _EMBEDDING_SPREAD)
            elif name.endswith(("o_proj.weight", "down_proj.weight")):
                value.normal_(0.0, _RESIDUAL_SPREAD)
            elif value.requires_grad and value.ndim == 2 and "vision_head" not in name:
                value.normal_(0.0, value.shape[1] ** -0.5)
        inner.generation_embeddings.weight.copy_(codes)
        inner.vqmodel.quantize.embedding.weight.copy_(codes)
    return model


def decoder_loss(model: Any, batch: Mapping[str, Any], step: int, *, replaced: float = 0.0) -> tuple[Any, dict]:
    """The mean cross-entropy of an image token in nats.

    In a share of ``replaced`` rows, the network reads another image's tokens at some places, from none to all. It then
    has to look at the text more often (Bowman et al. 2016, word dropout).
    """
    from winobench.torch_modules.bridge import torch

    ids, tokens = batch["input_ids"].long(), batch["tokens"].long()
    lengths = small_janus.lengths(ids, model.generation_config.generation_kwargs["boi_token_id"])
    random = torch.rand((2, len(tokens), 1 + tokens.shape[1]), generator=torch.Generator().manual_seed(step))
    share = random[0, :, :1] * (random[1, :, :1] < replaced)
    earlier = torch.where(random[0, :, 1:] < share, tokens.roll(1, 0), tokens)
    ids = ids[:, : int(lengths.max())]
    return -small_janus.log_probabilities(model, ids, lengths, tokens, earlier).mean(), {}


def train_decoder(
    config: Settings, workdir: pathlib.Path, *, max_seconds: float | None = None, log: Sequence[str] = ()
) -> loop.Params:
    """Trains the language model from ``tokens/``, or resumes. Returns the averaged parameters."""
    settings = config.decoder
    processor = small_janus.make_processor(config)
    codes = trained_tokenizer(config, workdir).quantize.embedding.weight
    model = fresh_decoder(config, processor.tokenizer, codes)
    loss = functools.partial(decoder_loss, replaced=settings.replaced_rows)
    step, state = torch_steps.make_step(model, loss, settings, config.seed)
    source = array_records.ShardSource(workdir / "tokens")
    batches = embedded.shuffled(source, ChoosePrompt(processor, settings.empty_text_fraction), settings, config.seed)
    how = {"log": log, "max_seconds": max_seconds, "mesh": torch_steps.one_device()}
    return embedded.train_stage(step, state, batches, settings, workdir / "decoder", **how).ema


# Pixels ---------------------------------------------------------------------------------------------------------------


def train_pixels(config: Settings, workdir: pathlib.Path, *, log: Sequence[str] = ()) -> Any:
    """Trains Janus's own decoder from image tokens to images, or resumes. Returns the image tokenizer with it."""
    vqmodel = trained_tokenizer(config, workdir)
    vqmodel.requires_grad_(False)
    for part in (vqmodel.decoder, vqmodel.post_quant_conv):
        part.requires_grad_(True)

    def compute(vqmodel: Any, batch: Mapping[str, Any], step: int) -> tuple[Any, dict[str, Any]]:
        images = _pixels(batch["images"])
        return _reconstruction_loss(vqmodel.decode(small_janus.image_tokens(vqmodel, images)), images)

    step, state = torch_steps.make_step(vqmodel, compute, config.pixels, config.seed)
    source = array_records.ShardSource(workdir / "scenes")
    batches = embedded.shuffled(source, _only_image, config.pixels, config.seed)
    how = {"log": log, "mesh": torch_steps.one_device()}
    state = embedded.train_stage(step, state, batches, config.pixels, workdir / "pixels", **how)
    torch_steps.load(vqmodel, state.ema)
    return vqmodel


def export(config: Settings, workdir: pathlib.Path, decoder: loop.Params, vqmodel: Any) -> pathlib.Path:
    """Writes ``<workdir>/clevr_tokens``, a folder of transformers in float16."""
    folder = workdir / NAME
    processor = small_janus.make_processor(config)
    model = fresh_decoder(config, processor.tokenizer, vqmodel.quantize.embedding.weight)
    torch_steps.load(model, decoder)
    model.model.vqmodel.load_state_dict(vqmodel.state_dict())
    small_janus.save(model, processor, folder)
    return folder
