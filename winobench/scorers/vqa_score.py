"""VQAScore (Lin et al., 2024): how likely a vision-language model answers that an image shows a text.

As published, the score is exp(-mean of the cross-entropies of the answer's tokens), the one that ends it included,
except for Qwen3-VL. An image is encoded once, down to the state that all questions share
(`VisionLanguageNetwork.encode_image`). This is the fast path, with tables of images. The same model answers other
questions in `winobench.responders.vision_language`.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from winobench import parallel
from winobench.base import options
from winobench.base.errors import InputError
from winobench.base.texts import check_texts, count_truncated, log_truncated
from winobench.checkpoints import vision_language
from winobench.checkpoints.vision_language import LoadedVisionLanguageModel
from winobench.data.patches import PatchProcessor
from winobench.data.processors import ImageProcessor, OnSquare
from winobench.diffusion import pure_functions
from winobench.models import functional
from winobench.models.vision_language import VisionLanguageNetwork
from winobench.scorers import common, networks, pairs
from winobench.scorers.answer_scores import SCORES, AnswerScorer
from winobench.scorers.networks import NetworkFunction
from winobench.scorers.pairs import PairScorer

# Raised whenever a score that is computed here could change by more than rounding.
SCORING_VERSION = 1

PREPROCESSING = ("published", "processor")

# Longest question in tokens, where no Q-Former reads it.
_MAX_TEXT_TOKENS = 512


def _image_states(
    model: VisionLanguageNetwork, images: Any, processor: ImageProcessor | PatchProcessor, before: tuple[int, ...]
) -> Any:
    """Images as the pairs need them: n outputs of the processor -> a pytree of arrays [n, ...]."""
    return model.encode_image(processor.normalize(images), before)


def _encode_images(
    model: VisionLanguageNetwork, images: Any, processor: ImageProcessor | PatchProcessor, before: tuple[int, ...]
) -> Any:
    """`_image_states` with rows of one line: TPUs would transpose a table of larger arrays at each step."""
    kept = model.image_axes
    return jax.tree.map(lambda x: x.reshape(*x.shape[:kept], -1), _image_states(model, images, processor, before))


def _encode_texts(model: VisionLanguageNetwork, texts: Any) -> Any:
    """Questions are looked up in the embeddings as part of a pair."""
    return texts


@dataclasses.dataclass(frozen=True)
class _Step:
    """Static argument of the step over pairs. ``shapes``: see `image_shapes`."""

    structure: functional.Structure
    answers: tuple[tuple[int, ...], ...]
    mesh: Mesh
    shapes: tuple[tuple[int, ...], ...]


@functools.partial(jax.jit, static_argnames="how")
def _score_pairs(how: _Step, params: Any, images: Any, texts: Any, index: jax.Array) -> jax.Array:
    """One score for each column of ``index``, int32 [2, n]: image row, text row. Float32 [n].

    For one answer it is the geometric mean of its tokens' probabilities, for two the log-odds of the first.
    """

    def pairs_of_one_device(params, images, texts, index):
        images, (ids, *question) = (
            jax.tree.map(lambda table, rows=rows: table[rows], tree)
            for tree, rows in zip((images, texts), index, strict=True)
        )
        leaves, tree = jax.tree.flatten(images)
        states = (leaf.reshape(-1, *shape) for leaf, shape in zip(leaves, how.shapes, strict=True))
        images = jax.tree.unflatten(tree, states)
        model = how.structure.module(params)
        with functional.precision(model.dtype):
            prefix = model.ask(images, *(part for rows in question for part in (rows[:, :-1], rows[:, -1])))
            log_probabilities = model.answer_log_probabilities(prefix, ids[:, :-1], ids[:, -1], how.answers)
        if len(log_probabilities) == 1:
            return jnp.exp(log_probabilities[0].mean(axis=1))
        return log_probabilities[0].sum(axis=1) - log_probabilities[1].sum(axis=1)

    whole, split = PartitionSpec(), PartitionSpec(parallel.DATA_AXIS)
    in_specs = (whole, whole, whole, PartitionSpec(None, parallel.DATA_AXIS))
    return parallel.map_over_data(pairs_of_one_device, how.mesh, in_specs, split)(params, images, texts, index)


def image_function(
    structure: functional.Structure, processor: ImageProcessor | PatchProcessor, before: tuple[int, ...]
) -> NetworkFunction:
    """The encoder of images, as a processor gives them, which are read behind some tokens."""
    return NetworkFunction(structure, _encode_images, (processor, before))


def image_shapes(
    structure: functional.Structure, params: Any, processor: ImageProcessor | PatchProcessor, before: tuple[int, ...]
) -> tuple[tuple[int, ...], ...]:
    """The shapes of an image's arrays of `VisionLanguageNetwork.encode_image`, in the order of the pytree's leaves."""
    images = jax.tree.map(lambda array: np.asarray(array)[None], processor.blank)
    states = pure_functions.shapes(NetworkFunction(structure, _image_states, (processor, before)), params, images)
    return tuple(leaf.shape[1:] for leaf in jax.tree.leaves(states))


def lower_step(
    structure: functional.Structure,
    answers: tuple[tuple[int, ...], ...],
    mesh: Mesh,
    shapes: tuple[tuple[int, ...], ...],
    *arguments: Any,
) -> jax.stages.Lowered:
    """The step of a `VQAScore` over pairs, lowered for abstract arrays at their places."""
    return _score_pairs.lower(_Step(structure, answers, mesh, shapes), *arguments)


class VQAScore(AnswerScorer, networks.HoldsVisionLanguage, PairScorer):
    """Scores how well texts fit images by asking a vision-language model.

    The score of ``score="probability"`` is as published, from 0 to 1, where float32 has few numbers just below 1. That
    of ``score="log_odds"`` is the log-likelihood of the answer less the opposite answer's, which is never cut off.

    Attributes:
      config: the network's.
      answer: the answer whose probability counts.
      opposite: the other answer of log-odds.
      max_text_tokens: longer questions lose their beginning.
      processor: makes images ready for the network.
      mesh: the devices.

    Further attributes are in `winobench.scorers.answer_scores.AnswerScorer`.
    """

    TEMPLATE = "question"

    def __init__(
        self,
        loaded: LoadedVisionLanguageModel,
        *,
        question: str | None = None,
        answer: str | None = None,
        opposite: str | None = None,
        score: str = "probability",
        preprocessing: str = "published",
        max_text_tokens: int | None = None,
        batch_size: int | None = None,
        table_rows: int | None = None,
    ):
        """Makes a model a scorer.

        Args:
          loaded: the model, on its devices. It computes in the dtype that it was loaded in.
          question: with ``{}`` once, where the text comes. A model such as LLaVA also needs ``<image>`` before it,
            Qwen3-VL ``<|image_pad|>``. That of the published evaluation when None, and so for both answers. None is
            published for OPT: see `winobench.models.blip_2.OPT_FORM`.
          answer: the answer whose probability counts.
          opposite: the other answer of log-odds.
          score: one of `winobench.scorers.answer_scores.SCORES`.
          preprocessing: ``published`` prepares images as the published evaluation does: InstructBLIP gets the middle
            square, whose side has been resized, and LLaVA gets the image filled up to a square. ``processor`` follows
            the model's files. For the other families both are the same.
          max_text_tokens: longer questions lose their beginning, though not the part before the image. When None, 128
            as published for InstructBLIP, or as many as the Q-Former has positions for; 512 for LLaVA and Qwen3-VL.
          batch_size: pairs that each device works on at once. Chosen for the kind of device when None.
          table_rows: how many encoded images, and how many texts, are kept on the device. As many as fit into a fixed
            amount of memory, and at least one batch's, when None. An evaluation may have more of both.

        Raises:
          InputError: when an option is not one of its choices, or the model has no tokens for an answer.
        """
        networks.check_made("loaded", loaded, "config", "form")
        self.config, form = loaded.config, loaded.form
        self.question, self.answer, self.opposite = (
            usual if given is None else given
            for given, usual in ((question, form.question), (answer, form.answer), (opposite, form.opposite))
        )
        vision_language.check_template("question", self.question, form)
        self._choose_score(score)
        is_published = common.choice("preprocessing", preprocessing, PREPROCESSING) == "published"
        ways = [name for name in ("on_square", "on_crop") if is_published and getattr(form, name)]
        self._preparing = dict.fromkeys(ways, True)
        self._use(loaded)
        self.max_text_tokens = self._longest(max_text_tokens)
        self._reads_text = loaded.module().reads_text
        processor = _prepared(loaded.processor, self._preparing)
        blank = np.zeros(self.max_text_tokens + 1, np.int32)
        super().__init__(
            processor,
            self.mesh,
            example_text=(blank,) * (1 + self._reads_text),
            batch_size=batch_size,
            rows=table_rows,
        )

    def _place(self, loaded: LoadedVisionLanguageModel) -> None:
        words = {"answer": self.answer}
        if self.kind == "log_odds":
            words["opposite"] = self.opposite
        answers = tuple(self._tokens_of(name, text) for name, text in words.items())
        if len(set(answers)) < len(answers):
            raise InputError(
                f"answer and opposite are both {options.quote(self.answer)} to the model: name two answers",
                code="unknown-answer",
            )
        self._before, _ = loaded.tokens(self.question, [""])
        self._params = self._image_encoder = self._text_encoder = None  # frees memory for the new ones
        structure, params = self._parameters(loaded)
        network = loaded.module()
        self._dtype = network.dtype.name
        shapes = image_shapes(structure, params, self.processor, self._before)
        self._compiled_for = _Step(structure, answers, self.mesh, shapes)
        self._encode_with(
            image_function(structure, self.processor, self._before),
            NetworkFunction(structure, _encode_texts),
            params,
            network.image_spec(self.mesh.shape.get(parallel.MODEL_AXIS, 1)),
        )

    @classmethod
    def _check_choices(cls, *, score: str = "probability", preprocessing: str = "published", **_: Any) -> None:
        common.choice("score", score, SCORES)
        common.choice("preprocessing", preprocessing, PREPROCESSING)

    def _iter_scores(
        self, images: list[Any], answered: list[tuple[str, str | None]], pairs: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """See `PairScorer.iter_scores`. But pairs of several answers come answer by answer.

        Each answer is another program, which encodes its images.
        """
        snapshot, answers = self.snapshot(), dict.fromkeys(answer for _, answer in answered)
        scorers = [snapshot._of_answer(answer) for answer in answers]
        questions = [question for question, _ in answered]
        if len(scorers) == 1:
            return PairScorer.iter_scores(scorers[0], images, questions, pairs)
        numbers = {answer: number for number, answer in enumerate(answers)}
        return _answer_by_answer(
            scorers, images, questions, pairs, np.array([numbers[answer] for _, answer in answered])
        )

    def _of_answer(self, answer: str | None) -> VQAScore:
        """This scorer, or for an answer one that asks texts as they are, and scores that answer."""
        if answer is None:
            return self
        scorer = copy.copy(self)
        scorer.question = self._loaded.form.around(self.question)
        tokens = self._tokens_of("the answer of a question", answer)
        scorer._compiled_for = dataclasses.replace(self._compiled_for, answers=(tokens,))
        return scorer

    def _tokens_of(self, name: str, answer: Any) -> tuple[int, ...]:
        loaded = self._loaded
        before, end = loaded.form.before_answer, loaded.end if loaded.form.scores_end else None
        return _answer_tokens(name, answer, loaded.tokenizer, loaded.config.start is None, before=before, end=end)

    def fingerprint(self) -> dict[str, Any]:
        """Everything about this scorer that can change a score by more than rounding, ready for JSON."""
        snapshot = self.snapshot()
        return {
            "scorer": "vqa_score",
            "scoring_version": SCORING_VERSION,
            "model": snapshot._loaded.identity(),
            "dtype": snapshot._dtype,
            "score": self.kind,
            "question": self.question,
            "answer": self.answer,
            "opposite": self.opposite if self.kind == "log_odds" else None,
            "max_text_tokens": self.max_text_tokens,
            **self._preparing,
        }

    def _step(self, images: Any, texts: Any, index: jax.Array) -> jax.Array:
        return _score_pairs(self._compiled_for, self._params, images, texts, index)

    def _tokenize(self, texts: Sequence[str]) -> list[tuple[np.ndarray, ...]]:
        """Questions in tokens of the language model and, if it reads them, of the Q-Former: int32 [tokens + 1] each."""
        check_texts(texts)
        longest, of_language = self.max_text_tokens, self._loaded.tokenizer
        if self._loaded.form.names_image:
            _, rows_of_ids = self._loaded.tokens(self.question, texts)
            log_truncated(sum(len(ids) > longest for ids in rows_of_ids), len(texts), longest, "questions")
            rows = pairs.token_rows([ids[-longest:] for ids in rows_of_ids], of_language.pad_token_id or 0, longest)
            return [(row,) for row in rows]
        questions = [self.question.replace("{}", text) for text in texts]
        columns, truncated = [], 0
        for tokenizer in (of_language, *[self._loaded.qformer_tokenizer] * self._reads_text):
            side, tokenizer.truncation_side = tokenizer.truncation_side, "left"
            encoded = tokenizer(questions, truncation=True, max_length=longest, padding=False)
            tokenizer.truncation_side = side
            truncated = max(truncated, count_truncated(encoded))
            columns.append(pairs.token_rows(encoded["input_ids"], tokenizer.pad_token_id or 0, longest))
        log_truncated(truncated, len(texts), longest, "questions")
        slots = np.flatnonzero((columns[0][:, :-1] == self.config.image_token_index).any(axis=1))
        if len(slots):
            raise vision_language.image_slot_in_text(texts[slots[0]])
        return list(zip(*columns, strict=True))

    def _longest(self, max_text_tokens: int | None) -> int:
        longest = _MAX_TEXT_TOKENS
        if self._loaded.qformer_tokenizer is not None:
            longest = self.config.qformer_config.max_position_embeddings
        if max_text_tokens is None:
            return min(self._loaded.form.text_tokens, longest)
        chosen = common.positive("max_text_tokens", max_text_tokens)
        if not 3 <= chosen <= longest:
            raise InputError(
                f"max_text_tokens is {max_text_tokens}, but this model takes 3 to {longest}", code="out-of-range"
            )
        return chosen


def _prepared(processor: Any, how: Mapping[str, bool]) -> ImageProcessor | PatchProcessor:
    """A processor that prepares images in the way that the fingerprint names."""
    if "on_square" in how:
        return OnSquare(**{part.name: getattr(processor, part.name) for part in dataclasses.fields(processor)})
    if "on_crop" in how:
        return dataclasses.replace(processor, resize=min(processor.size), crop=processor.size, crop_rounding="nearest")
    return processor


def _answer_by_answer(
    scorers: Sequence[VQAScore], images: list[Any], questions: list[str], pairs: np.ndarray, answers: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """``answers``: number of each question's scorer."""
    for number, scorer in enumerate(scorers):
        (rows,) = np.nonzero(answers[pairs[:, 1]] == number)
        if len(rows):
            for some, scores in PairScorer.iter_scores(scorer, images, questions, pairs[rows]):
                yield rows[some], scores


def _answer_tokens(
    name: str, answer: Any, tokenizer: Any, follows: bool, *, before: str = "", end: int | None = None
) -> tuple[int, ...]:
    """Tokens of an answer, which ``follows`` the question in one text, behind ``before``. ``end`` ends it if scored."""
    check_texts([answer])
    ids = tuple(tokenizer(before + answer, add_special_tokens=not follows)["input_ids"])
    ids += (end,) * (follows and end is not None)
    words = set(tokenizer(answer, add_special_tokens=False)["input_ids"]) - set(tokenizer.all_special_ids)
    if not words or tokenizer.unk_token_id in ids:
        raise InputError(
            f"{name} is {options.quote(answer)}, for which the model's tokenizer has no words: name an answer that the"
            " model can give, such as yes",
            code="unknown-answer",
        )
    return ids
