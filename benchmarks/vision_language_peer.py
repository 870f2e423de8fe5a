"""Work of `benchmarks.vision_language`: random vision-language networks, questions, and transformers that asks them."""

from __future__ import annotations

import copy
import dataclasses
import json
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tokenizers
import torch
import transformers

from winobench.base import json_files
from winobench.models.blip_2 import FORM
from winobench.models.llava import LlavaForConditionalGeneration
from winobench.responders.vision_language import VisionLanguageModel
from winobench.scorers.vqa_score import VQAScore

_SPECIAL = {"<pad>": 0, "</s>": 1, "<s>": 2, "<unk>": 3, "<image>": 4}
_BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_FORMS = {"instructblip": FORM, "llava": LlavaForConditionalGeneration.form}
# Words that texts are made of, w0 to w999.
_WORDS = 1000


@dataclasses.dataclass(frozen=True)
class Size:
    """A network and its work.

    Attributes:
      family: ``instructblip`` or ``llava``.
      description: in a few words, for a table's head.
      network: parts of transformers' config.
      images, texts: how many there are; each image is asked about each text.
      text_words: the fewest and the most words of a text, one token each.
      new_tokens: length of a caption.
      batch_sizes: rows of torch's batches, to choose from.
    """

    family: str
    description: str
    network: dict[str, Any]
    images: int
    texts: int
    text_words: tuple[int, int]
    new_tokens: int
    batch_sizes: tuple[int, ...]

    @property
    def pairs(self) -> int:
        """All images with all texts."""
        return self.images * self.texts


def _tower(width: int, layers: int, heads: int, pixels: int) -> dict[str, Any]:
    return {
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "image_size": pixels,
        "patch_size": 14,
    }


def _instructblip(tower: dict[str, Any], qformer: tuple[int, int, int], t5: dict[str, Any]) -> dict[str, Any]:
    width, layers, heads = qformer
    return {
        "vision_config": tower,
        "qformer_config": {
            "vocab_size": 30523,
            "hidden_size": width,
            "intermediate_size": 4 * width,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
        },
        "text_config": {
            "model_type": "t5",
            "feed_forward_proj": "gated-gelu",
            "dense_act_fn": "gelu",
            "decoder_start_token_id": 0,
            "pad_token_id": 0,
            "eos_token_id": 1,
            "tie_word_embeddings": False,
            **t5,
        },
        "num_query_tokens": 32,
    }


def _llava(tower: dict[str, Any], llama: dict[str, Any]) -> dict[str, Any]:
    return {
        "vision_config": tower | {"model_type": "clip_vision_model", "projection_dim": 64},
        "text_config": {
            "model_type": "llama",
            "max_position_embeddings": 4096,
            "pad_token_id": 0,
            "eos_token_id": 1,
            "bos_token_id": 2,
            "tie_word_embeddings": False,
            **llama,
        },
    }


_TINY = {"images": 2, "texts": 2, "text_words": (3, 6), "new_tokens": 3, "batch_sizes": (2,)}
_MID = {"images": 6, "texts": 4, "text_words": (8, 24), "new_tokens": 16, "batch_sizes": (4, 12)}
SIZES = {
    "small": (
        Size(
            "instructblip",
            "a toy",
            _instructblip(
                _tower(32, 2, 2, 28),
                (24, 2, 2),
                {"vocab_size": 1100, "d_model": 32, "d_kv": 16, "d_ff": 48, "num_layers": 1, "num_heads": 2},
            ),
            **_TINY,
        ),
        Size(
            "llava",
            "a toy",
            _llava(
                _tower(32, 2, 2, 28),
                {
                    "vocab_size": 1100,
                    "hidden_size": 32,
                    "intermediate_size": 48,
                    "num_hidden_layers": 2,
                    "num_attention_heads": 2,
                    "num_key_value_heads": 2,
                },
            ),
            **_TINY,
        ),
    ),
    "mid": (
        Size(
            "instructblip",
            "InstructBLIP of 8 layers of width 512 at 224 pixels, a Q-Former of 6, a FLAN-T5-small (8 + 8 layers, 512)",
            _instructblip(
                _tower(512, 8, 8, 224),
                (384, 6, 6),
                {"vocab_size": 32128, "d_model": 512, "d_kv": 64, "d_ff": 1024, "num_layers": 8, "num_heads": 8},
            ),
            **_MID,
        ),
        Size(
            "llava",
            "LLaVA of 8 layers of width 384 at 224 pixels, a LLaMA of 8 layers of width 512",
            _llava(
                _tower(384, 8, 6, 224),
                {
                    "vocab_size": 32064,
                    "hidden_size": 512,
                    "intermediate_size": 1408,
                    "num_hidden_layers": 8,
                    "num_attention_heads": 8,
                    "num_key_value_heads": 8,
                },
            ),
            **_MID,
        ),
    ),
}


def write_model(folder: pathlib.Path, size: Size) -> None:
    """Writes a network with random weights, the same at every call, and its processor, in transformers' layout.

    No caption ends before it is as long as asked for: the token that ends it has the logit 0, far below the largest.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _write_processor(folder, size)
    prefix = "Llava" if size.family == "llava" else "InstructBlip"
    config_class, model_class = (
        getattr(transformers, f"{prefix}{name}") for name in ("Config", "ForConditionalGeneration")
    )
    token = {"image_token_index": _SPECIAL["<image>"]}
    config = config_class(**copy.deepcopy(size.network), **token)
    torch.manual_seed(0)
    model = model_class(config)
    if size.family == "instructblip":  # a head of its own, as published
        shape = model.language_model.lm_head.weight.shape
        model.language_model.lm_head.weight = torch.nn.Parameter(torch.zeros(shape))
    head = model.get_output_embeddings() if size.family == "llava" else model.language_model.lm_head
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Torch's own start makes matrices so small that image and question hardly matter.
            if parameter.ndim > 1:
                is_table = "embed" in name and "patch" not in name
                # Larger ones would have attention choose single positions, and rounding decide which.
                usual = 0.5 * parameter[0].numel() ** -0.5
                parameter.normal_(std=1.0 if is_table or name == "query_tokens" else usual)
            # T5 does not divide scores by the root of the head's width: its weights are smaller by that.
            if name.endswith("Attention.q.weight"):
                parameter.mul_(size.network["text_config"]["d_kv"] ** -0.5)
        head.weight[_SPECIAL["</s>"]] = 0.0
    model.save_pretrained(folder)
    path = folder / "config.json"
    content = json_files.load(path) | {"architectures": [model_class.__name__]}
    content["text_config"].pop("scale_decoder_outputs", None)
    content["text_config"]["tie_word_embeddings"] = False
    path.write_text(json.dumps(content))


def _write_processor(folder: pathlib.Path, size: Size) -> None:
    """Tokenizers of whole words, and how images are made ready."""
    form, side = _FORMS[size.family], size.network["vision_config"]["image_size"]
    prompts = " ".join((form.question, form.answer, form.opposite, form.template, form.caption)).replace("<image>", " ")
    pieces = dict.fromkeys(re.findall(r"\w+|[^\w\s]+", prompts.replace("{}", "")))
    words = [*pieces, '"', '"?', *(f"w{number}" for number in range(_WORDS))]
    known = _SPECIAL | {word: len(_SPECIAL) + number for number, word in enumerate(dict.fromkeys(words))}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(known, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    around = "<s> $A" if size.family == "llava" else "$A </s>"
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=around, special_tokens=[(word, known[word]) for word in ("<s>", "</s>")]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>" if size.family == "llava" else None,
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        additional_special_tokens=["<image>"],
    ).save_pretrained(folder)
    lengths = {"height": side, "width": side}
    images = {"image_processor_type": "BlipImageProcessor", "size": lengths}
    if size.family == "llava":
        images = {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": side}, "crop_size": lengths}
    else:
        (folder / "qformer_tokenizer").mkdir()
        of_bert = dict.fromkeys([*_BERT, *(word.lower() for word in words)])
        (folder / "qformer_tokenizer" / "vocab.txt").write_text("".join(f"{word}\n" for word in of_bert))
    (folder / "preprocessor_config.json").write_text(json.dumps(images))


def make_work(size: Size) -> tuple[list[np.ndarray], list[str]]:
    """Images of noise, uint8, as large as the network takes them, and texts of random words."""
    random, side = np.random.default_rng(0), size.network["vision_config"]["image_size"]
    images = list(random.integers(0, 256, (size.images, side, side, 3), dtype=np.uint8))
    low, high = size.text_words
    counts = random.integers(low, high + 1, size.texts)
    return images, [" ".join(f"w{number}" for number in random.integers(0, _WORDS, count)) for count in counts]


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Inputs of torch, made before the timing: bytes and tokens equal winobench's.

    Attributes:
      pixels: [images, 3, height, width] float32.
      before: tokens before the image.
      questions: tokens of each question, behind the image.
      of_qformer: the same for the Q-Former; None where it reads none.
      answer: tokens of the answer, the end included.
      before_caption, caption: tokens of what asks for a caption, before and behind the image.
      caption_of_qformer: the same for the Q-Former.
    """

    pixels: torch.Tensor
    before: tuple[int, ...]
    questions: list[list[int]]
    of_qformer: list[list[int]] | None
    answer: tuple[int, ...]
    before_caption: tuple[int, ...]
    caption: list[int]
    caption_of_qformer: list[int] | None

    @classmethod
    def of(
        cls, scorer: VQAScore, captioner: VisionLanguageModel, images: Sequence[np.ndarray], texts: Sequence[str]
    ) -> Inputs:
        """Makes the inputs for a scorer and a writer."""
        loaded = scorer._loaded
        before, questions = loaded.tokens(scorer.question, texts)
        before_caption, (caption,) = loaded.tokens(captioner.template, [loaded.form.caption])
        pixels = np.asarray(loaded.processor.normalize(np.stack([loaded.processor(image) for image in images])))
        of_qformer = caption_of_qformer = None
        if loaded.qformer_tokenizer is not None:
            questions_asked = [scorer.question.replace("{}", text) for text in texts]
            questions_asked.append(captioner.template.replace("{}", loaded.form.caption))
            *of_qformer, caption_of_qformer = loaded.qformer_tokenizer(questions_asked, padding=False)["input_ids"]
        (answer,) = scorer._compiled_for.answers
        return cls(
            torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy()),
            before,
            questions,
            of_qformer,
            answer,
            before_caption,
            caption,
            caption_of_qformer,
        )


class TorchPeer:
    """Transformers, in batches of pairs."""

    def __init__(self, folder: pathlib.Path, size: Size, device: str, dtype: str):
        prefix = "Llava" if size.family == "llava" else "InstructBlip"
        cls = getattr(transformers, f"{prefix}ForConditionalGeneration")
        self._is_llava = size.family == "llava"
        self._model = cls.from_pretrained(folder, dtype=getattr(torch, dtype)).to(device).eval()
        self._device, self._new_tokens = device, size.new_tokens
        self.parameters = sum(parameter.numel() for parameter in self._model.parameters())
        tower = size.network["vision_config"]
        patches = (tower["image_size"] // tower["patch_size"]) ** 2
        self._slots = [_SPECIAL["<image>"]] * (patches if self._is_llava else size.network["num_query_tokens"])

    @torch.inference_mode()
    def scores(self, inputs: Inputs, batch_size: int, *, shared: bool) -> np.ndarray:
        """VQAScore of all pairs, [images, texts].

        Args:
          inputs: what is asked.
          batch_size: pairs at once.
          shared: whether what questions share of an image is computed once, in place of anew for each pair.
        """
        score = self._of_images_once if shared else self._anew
        count = len(inputs.questions)
        pairs = np.indices((len(inputs.pixels), count)).reshape(2, -1).T
        probabilities = np.concatenate(list(score(inputs, pairs, batch_size)))
        return probabilities.reshape(len(inputs.pixels), count)

    @torch.inference_mode()
    def captions(self, inputs: Inputs, batch_size: int) -> list[list[int]]:
        """The tokens of a caption of each image, each the most likely one."""
        token_lists = []
        for start in range(0, len(inputs.pixels), batch_size):
            pixels = self._pixels(inputs, slice(start, start + batch_size))
            rows = [[*inputs.before_caption, *self._slots, *inputs.caption]] * len(pixels)
            ids, mask = self._padded(rows)
            of_qformer = {}
            if inputs.caption_of_qformer is not None:
                questions, question_mask = self._padded([inputs.caption_of_qformer] * len(pixels))
                of_qformer = {"qformer_input_ids": questions, "qformer_attention_mask": question_mask}
            tokens = self._model.generate(
                pixel_values=pixels,
                input_ids=ids,
                attention_mask=mask,
                max_new_tokens=self._new_tokens,
                do_sample=False,
                num_beams=1,
                pad_token_id=0,
                **of_qformer,
            )
            token_lists += tokens[:, -self._new_tokens :].tolist()
        return token_lists

    def _pixels(self, inputs: Inputs, rows: Any) -> torch.Tensor:
        return inputs.pixels[rows].to(self._device, self._model.dtype)

    def _padded(self, rows: Sequence[Sequence[int]], *, left: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids of rows in one width, and which are no padding."""
        width = max(map(len, rows))
        pads = [(width - len(row), 0) if left else (0, width - len(row)) for row in rows]
        ids = [(*(0,) * begin, *row, *(0,) * end) for row, (begin, end) in zip(rows, pads, strict=True)]
        mask = [(*(0,) * begin, *(1,) * len(row), *(0,) * end) for row, (begin, end) in zip(rows, pads, strict=True)]
        return torch.tensor(ids, device=self._device), torch.tensor(mask, device=self._device)

    def _probabilities(self, logits: torch.Tensor, answer: tuple[int, ...]) -> np.ndarray:
        """exp(-mean cross-entropy) of the answer: logits [pairs, tokens of the answer, words] -> [pairs]."""
        labels = torch.tensor(answer, device=self._device).expand(len(logits), -1)
        chosen = logits.float().log_softmax(-1).gather(2, labels[..., None])[..., 0]
        return chosen.mean(dim=1).exp().cpu().numpy()

    def _anew(self, inputs: Inputs, pairs: np.ndarray, batch_size: int) -> Iterator[np.ndarray]:
        """Image and question of each pair through the whole network, as published."""
        length = len(inputs.answer)
        for start in range(0, len(pairs), batch_size):
            images, texts = pairs[start : start + batch_size].T
            pixels = self._pixels(inputs, images)
            rows = [[*inputs.before, *self._slots, *inputs.questions[text]] for text in texts]
            if self._is_llava:
                ids, mask = self._padded([[*row, *inputs.answer[:-1]] for row in rows], left=True)
                result = self._model(pixel_values=pixels, input_ids=ids, attention_mask=mask, logits_to_keep=length)
                yield self._probabilities(result.logits, inputs.answer)
                continue
            ids, mask = self._padded(rows)
            questions, question_mask = self._padded([inputs.of_qformer[text] for text in texts])
            labels = torch.tensor(inputs.answer, device=self._device).repeat(len(rows), 1)
            result = self._model(
                pixel_values=pixels,
                input_ids=ids,
                attention_mask=mask,
                qformer_input_ids=questions,
                qformer_attention_mask=question_mask,
                labels=labels,
            )
            yield self._probabilities(result.logits, inputs.answer)

    def _of_images_once(self, inputs: Inputs, pairs: np.ndarray, batch_size: int) -> Iterator[np.ndarray]:
        """The vision tower and, of LLaVA, the language model up to the question, once for each image."""
        if self._is_llava:
            yield from self._behind_a_cache(inputs, batch_size)
            return
        model = self._model
        states = torch.cat(
            [
                model.vision_model(pixel_values=self._pixels(inputs, slice(start, start + batch_size)))[0]
                for start in range(0, len(inputs.pixels), batch_size)
            ]
        )
        for start in range(0, len(pairs), batch_size):
            images, texts = pairs[start : start + batch_size].T
            seen, count = states[images], len(self._slots)
            ones = torch.ones((len(images), count), dtype=torch.long, device=self._device)
            questions, question_mask = self._padded([inputs.of_qformer[text] for text in texts])
            queries = model.qformer(
                input_ids=questions,
                attention_mask=torch.cat([ones, question_mask], dim=1),
                query_embeds=model.query_tokens.expand(len(images), -1, -1),
                encoder_hidden_states=seen,
                encoder_attention_mask=torch.ones(seen.shape[:2], dtype=torch.long, device=self._device),
            )[0][:, :count]
            ids, mask = self._padded([inputs.questions[text] for text in texts])
            read = torch.cat([model.language_projection(queries), model.get_input_embeddings()(ids)], dim=1)
            result = model.language_model(
                inputs_embeds=read,
                attention_mask=torch.cat([ones, mask], dim=1),
                labels=torch.tensor(inputs.answer, device=self._device).repeat(len(images), 1),
            )
            yield self._probabilities(result.logits, inputs.answer)

    def _behind_a_cache(self, inputs: Inputs, batch_size: int) -> Iterator[np.ndarray]:
        """LLaVA's questions about an image behind its keys and values, which are repeated for them."""
        head = torch.tensor([[*inputs.before, *self._slots]], device=self._device)
        length = len(inputs.answer)
        rows = [[*question, *inputs.answer[:-1]] for question in inputs.questions]
        for image in range(len(inputs.pixels)):
            pixels = self._pixels(inputs, slice(image, image + 1))
            result = self._model(pixel_values=pixels, input_ids=head, use_cache=True, logits_to_keep=1)
            seen = result.past_key_values
            for start in range(0, len(rows), batch_size):
                ids, mask = self._padded(rows[start : start + batch_size], left=True)
                past = copy.deepcopy(seen)
                past.batch_repeat_interleave(len(ids))
                head_mask = torch.ones((len(ids), head.shape[1]), dtype=mask.dtype, device=self._device)
                whole = torch.cat([head_mask, mask], dim=1)
                result = self._model(
                    input_ids=ids,
                    attention_mask=whole,
                    position_ids=(whole.cumsum(1) - 1)[:, head.shape[1] :],
                    past_key_values=past,
                    use_cache=True,
                    logits_to_keep=length,
                )
                yield self._probabilities(result.logits, inputs.answer)
