"""Vision-language models on this machine: captions, answers about images, how likely answers are, and matches."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import jax
import numpy as np

from winobench import parallel
from winobench.base import options as option_checks
from winobench.base.errors import InputError
from winobench.base.texts import LONGEST_PROMPT, check_texts, checked_list
from winobench.checkpoints.vision_language import LoadedVisionLanguageModel, check_template
from winobench.engine import tables
from winobench.engine.limits import Limit
from winobench.responders import decoding, shapes
from winobench.responders.answers import check_failed, check_kinds, finite, read_scores
from winobench.responders.matching import Matcher
from winobench.runs.requests import (
    SEVERAL,
    ImageMatch,
    ImageOptions,
    ImageStarts,
    ImageText,
    ImageTurn,
    Raw,
    Response,
    conversation,
    images_of,
)
from winobench.scorers import common, networks
from winobench.scorers.samples import check_seed
from winobench.scorers.vqa_score import VQAScore

# Raised whenever a text, or an answer, that is computed here could change by more than rounding does.
WRITING_VERSION = 1
ANSWER_VERSION = 1

# Images that each device works on at once, on accelerators and on CPUs.
_IMAGES = Limit(32, cpu=4)
_Asked = ImageText | ImageOptions | ImageStarts | ImageMatch
_TEMPERATURE = option_checks.number(0, 100)


class _Batch(NamedTuple):
    """The number of each row's image, of which the first ``wanted`` are not filling, the images, and the prompts."""

    numbers: np.ndarray
    wanted: int
    images: list[Any]
    prompts: decoding.ImagePrompts


class VisionLanguageModel(networks.HoldsVisionLanguage):
    """Writes texts about images, scores options of an answer, and, by VQAScore, how well texts match.

    It is a `winobench.runs.requests.Responder`. Each call uses the weights that the model has when the call begins.

    Attributes:
      kinds: the requests that it answers. Those about several images only where the model reads several.
      config: the network's.
      template: the text around each prompt.
      mesh: the devices.
    """

    kinds = frozenset({ImageText.kind, ImageOptions.kind, ImageStarts.kind, ImageMatch.kind})
    TEMPLATE = "template"

    def __init__(
        self,
        loaded: LoadedVisionLanguageModel,
        *,
        template: str | None = None,
        batch_size: int | None = None,
        seed: int = 0,
    ):
        """Makes a loaded model answer.

        Args:
          loaded: the model, on its devices. It computes in the dtype that it was loaded in.
          template: the text around each prompt, with ``{}`` once in the prompt's place. A model such as LLaVA also
            needs ``<image>`` before it, Qwen3-VL ``<|image_pad|>``. When None, the model's: prompts as they are
            for BLIP-2 and InstructBLIP, ``USER: <image>``, a new line and ``{} ASSISTANT:`` for LLaVA, a conversation
            of the published chat template for Qwen3-VL.
          batch_size: images that each device works on at once. Chosen for the kind of device when None.
          seed: of sampled texts.

        Raises:
          InputError: an option is out of its range.
        """
        self._use(loaded)
        if loaded.form.turns is not None:
            self.kinds = self.kinds | {ImageTurn.kind}
        self.config = loaded.config
        if loaded.form.between:
            self.kinds = self.kinds | SEVERAL
        self._seed = check_seed(seed)
        self.template = loaded.form.template if template is None else template
        check_template("template", self.template, loaded.form)
        self._batch_size = common.positive("batch_size", _IMAGES.on(self.mesh) if batch_size is None else batch_size)
        self._matcher = Matcher(VQAScore(loaded, batch_size=batch_size))
        self.snapshot()

    def _place(self, loaded: LoadedVisionLanguageModel) -> None:
        self._params: Any = None  # frees memory for the new ones
        structure, self._params = self._parameters(loaded)
        self._program = decoding.Program(
            structure,
            self.mesh,
            loaded.module().dtype.name,
            loaded.config.start,
            loaded.stop_ids,
            loaded.processor,
            loaded.tokens(self.template, [""])[0],
            image_token=loaded.config.image_token_index or 0,
            penalty=loaded.penalty,
        )
        between = loaded.tokenizer(loaded.form.between, add_special_tokens=False)["input_ids"]
        self._program_of_several = dataclasses.replace(self._program, between=tuple(between))

    def snapshot(self) -> Self:
        """The same, which keeps the weights of this moment."""
        snapshot = super().snapshot()
        if snapshot is not self:
            snapshot._matcher = self._matcher.snapshot()
        return snapshot

    def fingerprint(self) -> Mapping[str, Any]:
        """Everything about this model that can change an answer, as JSON values. Batch and devices only round."""
        snapshot = self.snapshot()
        words: dict[str, Any] = {}
        if self.template != "{}":
            words = {"template": self.template, "caption": self._loaded.form.caption}
        if self._loaded.penalty != 1:
            words["repetition_penalty"] = self._loaded.penalty
        return {
            "responder": "picture_reader",
            "answers": ANSWER_VERSION,
            "captioner": type(snapshot._loaded.module()).__name__,
            "version": WRITING_VERSION,
            "model": snapshot._loaded.identity(),
            "dtype": snapshot._program.dtype,
            "ends": list(self._program.ends),
            "seed": self._seed,
            **words,
            "match": dict(snapshot._matcher.fingerprint()),
        }

    def ask(self, requests: Sequence[_Asked]) -> Iterator[tuple[int, Raw]]:
        """See `winobench.runs.requests.Responder`. Requests that are answered together come together.

        Raises:
          InputError: a request is of another kind, or an image cannot be read.
        """
        return self.snapshot()._ask(requests)

    def _ask(self, requests: Sequence[_Asked]) -> Iterator[tuple[int, Raw]]:
        check_kinds("a vision-language model", requests, self.kinds)
        groups: dict[tuple, list[int]] = {}
        for number, request in enumerate(requests):
            groups.setdefault(_alike(request), []).append(number)
        for numbers in groups.values():
            for row, raw in self._answers([requests[number] for number in numbers]):
                yield numbers[row], raw

    def _answers(self, requests: Sequence[Any]) -> Iterable[tuple[int, Raw]]:
        """Answers to requests of one kind."""
        first = requests[0]
        if first.kind == ImageMatch.kind:
            return self._matcher.ask(requests)
        images = [tuple(image.path for image in images_of(request)) for request in requests]
        questions = [self._asked(request) for request in requests]
        if isinstance(first, ImageOptions):
            scored = self.iter_option_scores(images, questions, [request.options for request in requests])
            return ((number, finite("scores", scores)) for number, scores in scored)
        if first.kind == ImageStarts.kind:
            started = self.iter_start_scores(images, questions, [request.starts for request in requests])
            return ((number, finite("scores", [score])) for number, score in started)
        how: dict[str, Any] = {name: getattr(first, name) for name in ("max_tokens", "temperature", "sample")}
        how["system"] = conversation(first)[0]
        return ((number, {"text": text}) for number, text in self.iter_texts(images, questions, **how))

    def read(self, request: _Asked, raw: Raw) -> Response:
        """See `winobench.runs.requests.Responder`."""
        if not isinstance(request, ImageText):
            return read_scores(request, raw)
        check_failed(raw)
        if not isinstance(raw.get("text"), str):
            raise ValueError(f"an answer must hold a text, but is {raw}")
        return Response(text=raw["text"])

    def write(self, images: Sequence[Any], prompts: str | Sequence[str] = "", **how: Any) -> list[str]:
        """The texts of `iter_texts` in a list, in order."""
        return [text for _, text in self.iter_texts(images, prompts, **how)]

    def iter_texts(
        self,
        images: Sequence[Any],
        prompts: str | Sequence[str] = "",
        *,
        max_tokens: int = 30,
        temperature: float = 0.0,
        sample: int = 0,
        system: str = "",
    ) -> Iterator[tuple[int, str]]:
        """Writes a text about each image.

        Args:
          images: anything that `winobench.data.images.open_image` takes. A tuple has several images of one text, for
            models that read several, such as Qwen2.5-VL and Qwen3-VL: the same number for all.
          prompts: the text behind each image, in the template: one for all, or one for each. The empty
            one asks for a caption.
          max_tokens: of the longest text.
          temperature: 0 for the most likely token at each place. Otherwise texts are sampled.
          sample: its number. Another one gives other texts.
          system: the text of a system turn, for models with such turns. It replaces the template's own one.

        Returns:
          An iterator over (number of the image, its text), batch after batch, in order. Texts come without special
          tokens, and without blanks around them.

        Raises:
          InputError: at once for an empty list, another number of prompts than of images, or an argument that is not
            as described. While iterating for an image that cannot be read, or logits that are not finite.
        """
        images = self._checked_images(images)
        prompts = [prompts] * len(images) if isinstance(prompts, str) else checked_list("prompts", prompts)
        _check_counts(images, prompts=prompts)
        check_texts([*prompts, system], longest=LONGEST_PROMPT)
        if system and self._loaded.form.turns is None:
            raise InputError(
                "a text about an image has a system turn, but this model reads none: leave system out, or name a"
                " Qwen2.5-VL, a Qwen3-VL or a hosted model",
                code="kind-not-answered",
            )
        limit = common.positive("max_tokens", max_tokens)
        temperature = _TEMPERATURE.check("temperature", temperature)
        sample = common.positive("sample", sample + 1) - 1
        return self.snapshot()._texts(images, prompts, limit, temperature, sample, system)

    def iter_option_scores(
        self, images: Sequence[Any], prompts: Sequence[str], options: Sequence[Sequence[str]]
    ) -> Iterator[tuple[int, list[float]]]:
        """Yields (number of the image, log-likelihoods of its answers in nats) in order, batch after batch.

        The token that ends an answer counts for an encoder-decoder.

        Args:
          images: as in `iter_texts`.
          prompts: the text behind each image, in the template.
          options: the answers to each, of the same number for all, at least one.

        Raises:
          InputError: see `iter_texts`.
        """
        images, prompts, options = _checked_choices(self._checked_images(images), prompts, options)
        snapshot = self.snapshot()
        prompts = snapshot._or_caption(prompts)
        parts = [snapshot._option_tokens(prompt, answers) for prompt, answers in zip(prompts, options, strict=True)]
        return snapshot._scores(images, prompts, parts)

    def iter_start_scores(
        self, images: Sequence[Any], prompts: Sequence[str], starts: Sequence[Sequence[str]]
    ) -> Iterator[tuple[int, float]]:
        """Yields (number of the image, log-probability that its answer starts like one of some spellings) in order.

        The probability is the sum over the first tokens of the spellings (see
        `winobench.runs.requests.ImageStarts`), of a softmax over the whole vocabulary.

        Args:
          images: as in `iter_texts`.
          prompts: the text behind each image, in the template.
          starts: the spellings of each, of the same number for all, at least one.

        Raises:
          InputError: see `iter_texts`. Also for a spelling without any token.
        """
        images, prompts, starts = _checked_choices(self._checked_images(images), prompts, starts)
        snapshot = self.snapshot()
        prompts = snapshot._or_caption(prompts)
        spelled = [snapshot._start_tokens(spellings) for spellings in starts]
        parts = [
            (snapshot._prompt_tokens(prompt), [ids[:1] for ids in spellings])
            for prompt, spellings in zip(prompts, spelled, strict=True)
        ]
        for number, scores in snapshot._scores(images, prompts, parts):
            distinct = {tuple(ids): score for ids, score in zip(spelled[number], scores, strict=True)}
            yield number, float(np.logaddexp.reduce(list(distinct.values())))

    def _scores(
        self, images: list[Any], prompts: list[str], parts: list[tuple[list[int], list[list[int]]]]
    ) -> Iterator[tuple[int, list[float]]]:
        """Log-likelihoods of answers. ``parts`` are the tokens of each prompt, and of the answers to it."""
        answers = [ids for _, answer_ids in parts for ids in answer_ids]
        longest = max(map(len, answers))
        table = shapes.table(answers, shapes.power_of_two(longest)).reshape(len(images), len(parts[0][1]), -1)
        lengths = np.asarray([len(ids) for ids in answers], np.int32).reshape(len(images), -1)
        for batch in self._batches(images, self._columns(prompts, longest, [ids for ids, _ in parts])):
            option_ids, option_lengths = self._put((table[batch.numbers], lengths[batch.numbers]))
            program = self._program_of(images)
            scores = decoding.score_options(program, self._params, batch.prompts, option_ids, option_lengths)
            scores = parallel.fetch(parallel.wait_if_cpu(self.mesh, scores))
            yield from zip(batch.numbers.tolist(), scores[: batch.wanted].tolist(), strict=False)

    def _texts(
        self, images: list[Any], prompts: list[str], limit: int, temperature: float, sample: int, system: str
    ) -> Iterator[tuple[int, str]]:
        program = self._program_of(images, system)
        for batch in self._batches(images, self._columns(self._or_caption(prompts), limit)):
            rows = len(batch.numbers)
            draws = None
            if temperature:
                numbered = zip(batch.images, batch.numbers.tolist(), strict=True)
                keys = [self._draw_key(image, prompts[number], temperature, sample) for image, number in numbered]
                draws = decoding.Draws(
                    *self._put((np.asarray(keys, np.uint32), np.full(rows, temperature, np.float32)))
                )
            limits = self._put(np.where(np.arange(rows) < batch.wanted, limit, 0).astype(np.int32))
            written = decoding.generate(program, self._params, batch.prompts, limits, draws, width=shapes.width(limit))
            texts, counts = map(parallel.fetch, parallel.wait_if_cpu(self.mesh, written))
            for number, text, count in zip(batch.numbers[: batch.wanted].tolist(), texts, counts, strict=False):
                yield number, self._text(number, text[:count].tolist())

    def _batches(self, images: Sequence[Any], columns: list[tuple[np.ndarray, np.ndarray]]) -> Iterator[_Batch]:
        """Images with their prompts. The first image of a batch fills it up."""
        at_once = max(1, self._batch_size // (len(images[0]) if isinstance(images[0], tuple) else 1))
        rows = at_once * parallel.data_parallelism(self.mesh)
        ready = tables.load_ahead(lambda number: self._pixels(images[number]), range(len(images)), rows)
        with contextlib.closing(ready):
            for start in range(0, len(images), rows):
                count = min(rows, len(images) - start)
                loaded = [next(ready) for _ in range(count)]
                offsets = np.where(np.arange(rows) < count, np.arange(rows), 0)
                chosen, numbers = [loaded[offset] for offset in offsets], start + offsets
                pixels = jax.tree.map(lambda *parts: np.stack(parts), *chosen)
                texts = [(ids[numbers], lengths[numbers]) for ids, lengths in columns]
                pixels, (first, *question) = self._put((pixels, texts))
                prompts = decoding.ImagePrompts(pixels, *first, *(question or [()]))
                yield _Batch(numbers, count, chosen, prompts)

    def _asked(self, request: ImageText | ImageOptions | ImageStarts) -> str:
        """The text in the template's place: a question, with the earlier turns of its conversation before it."""
        form = self._loaded.form.turns
        ends = {"user": self.template.partition("{}")[2], "assistant": form and form.next}
        _, before = conversation(request)
        return "".join(f"{turn.text}{ends[turn.role]}" for turn in before) + request.question

    def _pixels(self, image: Any) -> Any:
        """An image, or several, as the processor gives them."""
        if not isinstance(image, tuple):
            return self._loaded.processor(image)
        return jax.tree.map(lambda *parts: np.stack(parts), *map(self._loaded.processor, image))

    def _program_of(self, images: Sequence[Any], system: str = "") -> decoding.Program:
        program = self._program_of_several if isinstance(images[0], tuple) else self._program
        form = self._loaded.form.turns
        if not system or form is None:
            return program
        begin, _, end = form.system.partition("{}")
        template = self.template.replace("{}", "")
        if template.startswith(begin):
            template = template.partition(end)[2]
        return dataclasses.replace(program, before=self._loaded.tokens("{}", [begin + system + end + template])[0])

    def _checked_images(self, images: Any) -> list[Any]:
        """A list of images. Where each text has several, they are tuples of one length."""
        images = checked_list("images", images)
        counts = sorted({len(image) if isinstance(image, tuple) else 1 for image in images})
        if len(counts) > 1 or counts == [0]:
            raise InputError(
                f"there are texts about {counts[0]} and about {counts[-1]} images: give each as many, at least one",
                code="wrong-length",
            )
        if counts == [1]:
            return [image[0] if isinstance(image, tuple) else image for image in images]
        if not self._loaded.form.between:
            raise InputError(
                f"a text is about {counts[0]} images, but this model reads one at a time: name a Qwen2.5-VL, a Qwen3-VL"
                " or a hosted model",
                code="kind-not-answered",
            )
        return images

    def _or_caption(self, prompts: Sequence[str]) -> list[str]:
        return [prompt or self._loaded.form.caption for prompt in prompts]

    def _option_tokens(self, prompt: str, options: Sequence[str]) -> tuple[list[int], list[list[int]]]:
        """Tokens of a prompt behind the image, and of its options: a decoder's begin where the first one differs."""
        ids = self._prompt_tokens(prompt)
        if self.config.start is not None:
            return ids, self._loaded.tokens("{}", options)[1]
        text = self.template.replace("{}", prompt)
        gap = "" if text[-1:].isspace() else " "
        whole = self._loaded.tokens("{}", [text + gap + option for option in options])[1]
        start = min(
            next((index for index, pair in enumerate(zip(ids, text_ids, strict=False)) if len(set(pair)) > 1), len(ids))
            for text_ids in whole
        )
        return ids[:start], [text_ids[start:] for text_ids in whole]

    def _prompt_tokens(self, prompt: str) -> list[int]:
        """Tokens of a prompt behind the image."""
        return self._loaded.tokens("{}", [self.template.replace("{}", prompt)])[1][0]

    def _start_tokens(self, starts: Sequence[str]) -> list[list[int]]:
        """Tokens of spellings by themselves, without those that a tokenizer puts around texts."""
        tokens = self._loaded.tokenizer(list(starts), add_special_tokens=False, padding=False)["input_ids"]
        for start, ids in zip(starts, tokens, strict=True):
            if not ids:
                raise InputError(
                    f"the answer {option_checks.quote(start)} has no token: give a word", code="cannot-answer"
                )
        return tokens

    def _columns(
        self, prompts: Sequence[str], limit: int, ids: Sequence[Sequence[int]] | None = None
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Prompts for the language model, before ``limit`` tokens, and Q-Former: int32 [prompts, width], lengths."""
        ids = self._loaded.tokens(self.template, prompts)[1] if ids is None else ids
        longest = getattr(self.config.text_config, "longest", None)
        if longest is not None:
            # The last token of a text is not read.
            longest = max(0, longest - len(self._program.before) - self.config.image_states - (limit - 1))
        reader = "the language model, with an image and the longest answer,"
        columns = [_column(prompts, ids, longest, reader)]
        if self._loaded.qformer_tokenizer is not None:
            texts = [self.template.replace("{}", prompt) for prompt in prompts]
            ids = self._loaded.qformer_tokenizer(texts, padding=False)["input_ids"]
            columns.append(_column(prompts, ids, self.config.qformer_config.max_position_embeddings, "the Q-Former"))
        return columns

    def _draw_key(self, image: Any, prompt: str, temperature: float, sample: int) -> tuple[int, int]:
        """The randomness of a text, which depends on the seed, the image, and the prompt alone: two words."""
        content = b"".join(part.tobytes() for part in jax.tree.leaves(image))
        return shapes.random_key([self._seed, hashlib.sha256(content).hexdigest(), prompt, temperature, sample])

    def _text(self, number: int, tokens: list[int]) -> str:
        if decoding.NOT_FINITE in tokens:
            raise InputError(
                f"the logits of token {len(tokens)} about images[{number}] are not finite numbers: get the weights"
                " again",
                code="not-finite",
            )
        return self._loaded.tokenizer.decode(tokens, skip_special_tokens=True).strip()


Captioner = VisionLanguageModel
"""The name of the class in `winobench` for those who write captions alone."""


def _alike(request: _Asked) -> tuple[Any, ...]:
    """Properties that requests of one batch have in common."""
    if isinstance(request, ImageMatch):
        return (request.kind,)
    kind = request.kind, len(images_of(request))
    if isinstance(request, ImageText):
        return *kind, request.max_tokens, request.temperature, request.sample, conversation(request)[0]
    return *kind, len(request.options if isinstance(request, ImageOptions) else request.starts)


def _checked_choices(images: Any, prompts: Any, choices: Any) -> tuple[list[Any], list[str], list[list[str]]]:
    """Images, a prompt for each, and equally many answers to each."""
    images, prompts = checked_list("images", images), checked_list("prompts", prompts)
    choices = [checked_list("options", answers) for answers in checked_list("options", choices)]
    _check_counts(images, prompts=prompts, options=choices)
    if len({len(answers) for answers in choices}) > 1:
        raise InputError("options are lists of several lengths: give lists of equal length", code="wrong-length")
    check_texts([*prompts, *(answer for answers in choices for answer in answers)], longest=LONGEST_PROMPT)
    return images, prompts, choices


def _check_counts(images: Sequence[Any], **others: Sequence[Any]) -> None:
    for name, values in others.items():
        if len(values) != len(images):
            raise InputError(
                f"there are {len(values)} {name} for {len(images)} images: give as many", code="wrong-length"
            )


def _column(
    prompts: Sequence[str], ids: Sequence[Sequence[int]], longest: int | None, reader: str
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of prompts, int32 [prompts, width], and their lengths. Raises InputError for one that is too long."""
    lengths = np.asarray([len(row) for row in ids], np.int32)
    width = shapes.width(int(lengths.max()))
    if longest is not None and lengths.max() > longest:
        raise InputError(
            f"the prompt {option_checks.quote(prompts[int(np.argmax(lengths))])} has {lengths.max()} tokens, but"
            f" {reader} reads {longest} at most: shorten it",
            code="text-too-long",
        )
    return shapes.table(ids, width if longest is None else min(width, longest)), lengths
