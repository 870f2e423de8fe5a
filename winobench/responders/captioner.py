"""Texts about pictures, from a language model that sees: captions, answers to questions, and how likely these are."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from winobench import parallel
from winobench.base import options
from winobench.base.errors import InputError
from winobench.base.texts import LONGEST_PROMPT, check_texts, checked_list
from winobench.checkpoints import sources, vision_language
from winobench.checkpoints.vision_language import LoadedVisionLanguageModel
from winobench.engine import tables
from winobench.engine.limits import Limit
from winobench.responders import decoding, shapes
from winobench.scorers import common, networks
from winobench.scorers.samples import check_seed

# Raised whenever a text that is written here could change by more than rounding does.
WRITING_VERSION = 1

# Images that each device works on at once, on accelerators and on CPUs.
_PICTURES = Limit(32, cpu=4)
_TEMPERATURE = options.number(0, 100)


class Captioner(networks.HoldsLoaded):
    """Writes texts about images.

    Each call uses the weights that the model has when the call begins.

    Attributes:
      config: the network's.
      template: what prompts stand in.
      mesh: the devices.
    """

    def __init__(
        self,
        loaded: LoadedVisionLanguageModel,
        *,
        template: str | None = None,
        batch_size: int | None = None,
        seed: int = 0,
        mesh: Mesh | None = None,
    ):
        """Makes a model write.

        Args:
          loaded: the model. It computes in the dtype that it was loaded in.
          template: what prompts stand in, with ``{}`` once, where a prompt comes, and before it, of a model such as
            LLaVA, ``<image>``, or of Qwen3-VL ``<|image_pad|>``. When None, that of the model: prompts as they are for
            BLIP-2 and InstructBLIP, ``USER: <image>``, a new line and ``{} ASSISTANT:`` for LLaVA, a conversation of
            the published chat template for Qwen3-VL.
          batch_size: images that each device works on at once. Chosen for the kind of device when None.
          seed: of texts that are drawn.
          mesh: the devices, each of which gets a copy of the parameters; None for those that the model is on.

        Raises:
          InputError: an option is out of its range.
        """
        self.config = loaded.config
        self._use(loaded, mesh)
        self._seed = check_seed(seed)
        self.template = loaded.form.template if template is None else template
        vision_language.check_template("template", self.template, loaded.form)
        self._batch_size = common.positive("batch_size", _PICTURES.on(self.mesh) if batch_size is None else batch_size)
        self.held()

    def _place(self, loaded: LoadedVisionLanguageModel) -> None:
        self._params = None  # frees memory for the new ones
        structure, self._params = self._parameters(loaded)
        self._program = decoding.Program(
            structure,
            self.mesh,
            loaded.module().dtype.name,
            loaded.config.start,
            loaded.stop_ids,
            loaded.processor,
            loaded.tokens(self.template, [""])[0],
        )

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str],
        dtype: str = "float32",
        *,
        mesh: Mesh | None = None,
        int8: bool = False,
        max_pixels: int | None = None,
        revision: str | None = None,
        allow_pickle: bool = False,
        **others: Any,
    ) -> Captioner:
        """Loads a model and makes it write.

        Args:
          source: a name in `registry.MODELS`, a folder as transformers' model and processor write it, or a
            hub id such as ``Salesforce/blip2-flan-t5-xl``.
          dtype, mesh, int8, max_pixels, revision, allow_pickle: see `winobench.VQAScore.from_pretrained`.
          **others: options of `Captioner`.

        Raises:
          InputError: files are missing or damaged, it is no vision-language model, or an option is not one of its
          choices.
        """
        networks.check_options(cls, others)
        resolved = sources.resolve(source, revision=revision)
        form = vision_language.prompt_form(resolved)
        if others.get("template") is not None:  # before the weights, which take long
            vision_language.check_template("template", others["template"], form)
        # Copies for other devices are made when it is known how large they are.
        first = parallel.make_mesh(jax.local_devices()[:1]) if mesh is None else parallel.as_mesh(mesh)
        loaded = vision_language.load_vision_language(
            resolved, dtype, mesh=first, int8=int8, max_pixels=max_pixels, allow_pickle=allow_pickle
        )
        spread = parallel.default_mesh(jax.tree.leaves(loaded.network[1])) if mesh is None else None
        return cls(loaded, mesh=spread, **others)

    def fingerprint(self) -> dict[str, Any]:
        """Everything about this model that can change a text, as JSON values; batch and devices round differently."""
        held = self.held()
        asked = {"template": self.template, "caption": self._loaded.form.caption} if self.template != "{}" else {}
        return {
            "captioner": type(held._loaded.module()).__name__,
            "version": WRITING_VERSION,
            "model": held._loaded.identity(),
            "dtype": held._program.dtype,
            "ends": list(self._program.ends),
            "seed": self._seed,
            **asked,
        }

    def write(
        self,
        images: Sequence[Any],
        prompts: str | Sequence[str] = "",
        *,
        max_tokens: int = 30,
        temperature: float = 0.0,
        sample: int = 0,
    ) -> list[str]:
        """Writes a text about each image.

        Args:
          images: anything that `winobench.data.images.open_image` takes.
          prompts: what the model reads behind each image, in the template: one for all, or one for each. The empty
            one asks for a caption.
          max_tokens: of the longest text.
          temperature: 0 for the most likely token at each place. Otherwise texts are drawn.
          sample: number of the draw. Another one draws other texts.

        Returns:
          The texts, in order, without special tokens and blanks around them.

        Raises:
          InputError: for an empty list, an image that cannot be read, another number of prompts than of images, a text
            that is none, or logits that are not finite.
        """
        written = dict(self.iter_texts(images, prompts, max_tokens=max_tokens, temperature=temperature, sample=sample))
        return [written[number] for number in range(len(written))]

    def iter_texts(
        self,
        images: Sequence[Any],
        prompts: str | Sequence[str] = "",
        *,
        max_tokens: int = 30,
        temperature: float = 0.0,
        sample: int = 0,
    ) -> Iterator[tuple[int, str]]:
        """As `write`, batch after batch: yields (number of the picture, its text), in order."""
        images = checked_list("images", images)
        prompts = [prompts] * len(images) if isinstance(prompts, str) else checked_list("prompts", prompts)
        if len(prompts) != len(images):
            raise InputError(
                f"there are {len(prompts)} prompts for {len(images)} images: give one for each, or one text for all",
                code="wrong-length",
            )
        check_texts(prompts, longest=LONGEST_PROMPT)
        limit = common.positive("max_tokens", max_tokens)
        temperature = _TEMPERATURE.check("temperature", temperature)
        return self.held()._batches(images, prompts, limit, temperature, common.positive("sample", sample + 1) - 1)

    def iter_option_scores(
        self, images: Sequence[Any], prompts: Sequence[str], options: Sequence[Sequence[str]]
    ) -> Iterator[tuple[int, list[float]]]:
        """How likely answers are, batch after batch: yields (number of the image, log-likelihoods in nats), in order.

        Of an encoder-decoder, the token that ends an answer counts, too.

        Args:
          images: anything that `winobench.data.images.open_image` takes.
          prompts: what the model reads behind each image, in the template.
          options: the answers to each, of the same number for all, at least one.

        Raises:
          InputError: see `write`.
        """
        images, prompts = checked_list("images", images), checked_list("prompts", prompts)
        options = [checked_list("options", some) for some in checked_list("options", options)]
        if not len(prompts) == len(options) == len(images) or len({len(some) for some in options}) > 1:
            raise InputError(
                f"there are {len(prompts)} prompts and {len(options)} lists of options for {len(images)} images: give"
                " one of each for each image, and lists of equal length",
                code="wrong-length",
            )
        check_texts([*prompts, *(option for some in options for option in some)], longest=LONGEST_PROMPT)
        return self.held()._scored(images, prompts, options)

    def _scored(
        self, images: list[Any], prompts: list[str], options: list[list[str]]
    ) -> Iterator[tuple[int, list[float]]]:
        prompts = [prompt or self._loaded.form.caption for prompt in prompts]
        parts = [self._option_tokens(prompt, some) for prompt, some in zip(prompts, options, strict=True)]
        found = [ids for _, some in parts for ids in some]
        longest = shapes.power_of_two(max(map(len, found)))
        columns = self._columns(prompts, max(map(len, found)), [ids for ids, _ in parts])
        table = shapes.table(found, longest).reshape(len(images), -1, longest)
        lengths = np.asarray([len(ids) for ids in found], np.int32).reshape(len(images), -1)
        split = parallel.split_axis(self.mesh)
        for start, count, places, chosen in self._loaded_rows(images):
            asked = [(ids[places], lengths[places]) for ids, lengths in columns]
            pixels, asked, option_ids, option_lengths = jax.tree.map(
                lambda array: parallel.put(array, split), (_stacked(chosen), asked, table[places], lengths[places])
            )
            scores = parallel.take_turns(
                self.mesh,
                decoding.score_options(self._program, self._params, _about(pixels, asked), option_ids, option_lengths),
            )
            for row, values in enumerate(parallel.fetch(scores)[:count].tolist()):
                yield start + row, values

    def _option_tokens(self, prompt: str, options: Sequence[str]) -> tuple[list[int], list[list[int]]]:
        """A prompt's tokens behind the image, and those of its options, which begin where the prompt's end.

        Of a decoder, whose prompt and answer are one text, they begin at the first token that any of them changes.
        """
        text = self.template.replace("{}", prompt)
        ids = self._loaded.tokens("{}", [text])[1][0]
        if self.config.start is not None:
            return ids, self._loaded.tokens("{}", options)[1]
        gap = "" if text[-1:].isspace() else " "
        whole = self._loaded.tokens("{}", [text + gap + option for option in options])[1]
        start = min(
            next((place for place, pair in enumerate(zip(ids, one, strict=False)) if len(set(pair)) > 1), len(ids))
            for one in whole
        )
        return ids[:start], [one[start:] for one in whole]

    def _batches(
        self, images: list[Any], prompts: list[str], limit: int, temperature: float, sample: int
    ) -> Iterator[tuple[int, str]]:
        columns = self._columns([prompt or self._loaded.form.caption for prompt in prompts], limit)
        for start, count, places, chosen in self._loaded_rows(images):
            draws = self._draws(chosen, [prompts[place] for place in places], temperature, sample)
            limits = np.where(np.arange(len(places)) < count, limit, 0).astype(np.int32)
            asked = [(ids[places], lengths[places]) for ids, lengths in columns]
            texts, counts = self._run(_stacked(chosen), asked, limits, draws)
            for row in range(count):
                yield start + row, self._text(start + row, texts[row, : counts[row]].tolist())

    def _loaded_rows(self, images: Sequence[Any]) -> Iterator[tuple[int, int, np.ndarray, list[Any]]]:
        """Batches of images: the first one's number, how many there are, the number of each row's, and the images.

        What fills a batch up is its first image once more, about which nothing is wanted.
        """
        rows = self._batch_size * parallel.data_parallelism(self.mesh)
        numbers = range(len(images))
        pictures = tables.load_ahead(lambda number: self._loaded.processor(images[number]), numbers, rows)
        with contextlib.closing(pictures):
            for start in range(0, len(images), rows):
                count = min(rows, len(images) - start)
                loaded = [next(pictures) for _ in range(count)]
                filled = np.where(np.arange(rows) < count, np.arange(rows), 0)
                yield start, count, start + filled, [loaded[row] for row in filled]

    def _run(
        self,
        pixels: Any,
        columns: list[tuple[np.ndarray, np.ndarray]],
        limits: np.ndarray,
        draws: tuple[np.ndarray, np.ndarray] | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Writes the texts of a batch: tokens int32 [rows, width], and their numbers [rows]."""
        split, width = parallel.split_axis(self.mesh), shapes.width(int(limits.max()))
        pixels, columns, limits, draws = jax.tree.map(
            lambda array: parallel.put(array, split), (pixels, columns, limits, draws)
        )
        written = decoding.generate(
            self._program,
            self._params,
            _about(pixels, columns),
            limits,
            None if draws is None else decoding.Draws(*draws),
            width=width,
        )
        texts, counts = parallel.take_turns(self.mesh, written)
        return parallel.fetch(texts), parallel.fetch(counts)

    def _columns(
        self, prompts: Sequence[str], limit: int, ids: Sequence[Sequence[int]] | None = None
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Prompts in tokens of the language model (``ids``, where they are known), which ``limit`` others follow, and,
        if it reads them, of the Q-Former, all in one width, so that one program does: int32 [prompts, width], and their
        lengths."""
        ids = self._loaded.tokens(self.template, prompts)[1] if ids is None else ids
        longest = getattr(self.config.text_config, "longest", None)
        if longest is not None:
            # The last token of a text is not read.
            longest = max(0, longest - len(self._program.before) - self.config.image_states - (limit - 1))
            reader = "the language model, with an image and the longest answer,"
            _check_lengths(prompts, ids, longest, reader)
        columns = [_table(ids, longest)]
        if self._loaded.qformer_tokenizer is not None:
            longest = self.config.qformer_config.max_position_embeddings
            asked = [self.template.replace("{}", prompt) for prompt in prompts]
            ids = self._loaded.qformer_tokenizer(asked, padding=False)["input_ids"]
            _check_lengths(prompts, ids, longest, "the Q-Former")
            columns.append(_table(ids, longest))
        return columns

    def _draws(
        self, pictures: Sequence[Any], prompts: Sequence[str], temperature: float, sample: int
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """What texts are drawn with: of the seed, the picture and the prompt alone."""
        if not temperature:
            return None
        keys = np.zeros((len(prompts), 2), np.uint32)
        for key, picture, prompt in zip(keys, pictures, prompts, strict=True):
            content = b"".join(part.tobytes() for part in jax.tree.leaves(picture))
            drawn_of = [self._seed, hashlib.sha256(content).hexdigest(), prompt, temperature, sample]
            key[:] = np.frombuffer(hashlib.sha256(json.dumps(drawn_of).encode()).digest()[:8], "<u4")
        return keys, np.full(len(prompts), temperature, np.float32)

    def _text(self, number: int, tokens: list[int]) -> str:
        if decoding.NOT_FINITE in tokens:
            raise InputError(
                f"the logits of token {len(tokens)} about images[{number}] are not finite numbers: get the weights"
                " again",
                code="not-finite",
            )
        return self._loaded.tokenizer.decode(tokens, skip_special_tokens=True).strip()


def _stacked(pictures: Sequence[Any]) -> Any:
    """Pictures as the processor makes them, as a batch."""
    return jax.tree.map(lambda *rows: np.stack(rows), *pictures)


def _about(pixels: jax.Array, columns: Sequence[tuple[jax.Array, jax.Array]]) -> decoding.PicturePrompts:
    """What is asked about pictures, from the prompts' columns."""
    return decoding.PicturePrompts(pixels, *columns[0], tuple(columns[1]) if len(columns) > 1 else ())


def _check_lengths(prompts: Sequence[str], ids: Sequence[Sequence[int]], longest: int, reader: str) -> None:
    """Raises InputError where a prompt has more tokens than who reads it can."""
    lengths = [len(one) for one in ids]
    if max(lengths) > longest:
        raise InputError(
            f"the prompt {options.shown(prompts[int(np.argmax(lengths))])} has {max(lengths)} tokens, but {reader}"
            f" reads {longest} at most: shorten it",
            code="text-too-long",
        )


def _table(ids: Sequence[Sequence[int]], longest: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Texts in tokens, int32 [texts, width], and their lengths; no wider than ``longest``, if there is such a limit."""
    lengths = np.asarray([len(one) for one in ids], np.int32)
    width = shapes.width(int(lengths.max()))
    return shapes.table(ids, width if longest is None else min(width, longest)), lengths
