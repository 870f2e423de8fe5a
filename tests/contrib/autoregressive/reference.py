"""Log-probabilities by transformers' own code in torch: pair by pair, without padding, with its usual attention."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image

from tests.contrib.autoregressive.tiny import IMAGE_SIZES
from winobench.contrib.autoregressive import loading


class Reference:
    """A family's tiny model. ``generate`` of the model gives the same logits (test_generate.py)."""

    def __init__(self, folder: pathlib.Path, family: str, dtype: str = "float32"):
        kind = loading.FAMILIES[family]
        of_model, of_processor = kind.SUBFOLDERS
        self.family, self.side = family, IMAGE_SIZES[family]
        self.processor = getattr(transformers, kind.PROCESSOR).from_pretrained(folder / of_processor)
        model = getattr(transformers, kind.MODEL).from_pretrained(folder / of_model, dtype=getattr(torch, dtype))
        self.model = model.eval().requires_grad_(False)

    def inputs(self, text: str) -> Any:
        """What ``generate`` takes for a text."""
        turns = [{"role": "user", "content": [{"type": "text", "text": text}]}]
        if self.family == "janus":
            prompt = self.processor.apply_chat_template(turns, add_generation_prompt=True)
            return self.processor(text=[prompt], generation_mode="image", return_tensors="pt")
        if self.family == "emu3":
            area = {"image_area": self.side**2, "ratio": "1:1"}
            return self.processor(text=[text], return_for_image_generation=True, return_tensors="pt", **area)
        sides = {"target_h": self.side, "target_w": self.side}
        return self.processor.apply_chat_template(
            [turns], tokenize=True, return_dict=True, return_tensors="pt", processor_kwargs=sides
        )

    def without_text(self, inputs: Any) -> Any:
        if self.family != "janus":
            return self.inputs("")
        settings = self.model.generation_config
        kept = torch.tensor([settings.bos_token_id, settings.generation_kwargs["boi_token_id"]])
        ids = inputs["input_ids"]
        return {"input_ids": torch.where(torch.isin(ids, kept), ids, settings.pad_token_id)}

    def pixels(self, image: Image.Image) -> list[dict[str, torch.Tensor]]:
        """A square image as the model's own processor prepares it, for each size that the model reads."""
        images = self.processor.image_processor
        if self.family != "glm_image":
            return [images(image, return_tensors="pt")]
        *_, small = self.processor._get_target_shape(height=self.side, width=self.side)
        # 16 pixels are a token. The processor's own resizing would halve the image's sides first.
        sizes = (16 * small, 16 * self.side // 32)
        resized = (image.resize((size, size), Image.Resampling.BICUBIC) for size in sizes)
        return [images(image, do_resize=False, return_tensors="pt") for image in resized]

    def codes(self, image: Image.Image) -> torch.Tensor:
        """A square image's codes, int64 [codes]."""
        prepared, model = self.pixels(image), self.model.model
        if self.family == "janus":  # the published rule: the smallest distance between vectors of length 1
            normalize, vq = functools.partial(torch.nn.functional.normalize, dim=-1), model.vqmodel
            states = vq.quant_conv(vq.encoder(prepared[0]["pixel_values"]))[0].flatten(1).T
            return torch.cdist(normalize(states), normalize(vq.quantize.embedding.weight)).argmin(-1)
        if self.family == "emu3":
            tokens = model.get_image_tokens(prepared[0]["pixel_values"], prepared[0]["image_sizes"])
            rows = tokens.reshape(self.side // 8, -1)[:, :-1]
            return model.vocabulary_mapping.bpe2img_mapping_tensor[rows].flatten().long()
        codes = []
        for part in prepared:
            states = model.get_image_features(part["pixel_values"], part["image_grid_thw"]).pooler_output
            codes.append(model.get_image_tokens(states))
        return torch.cat(codes)

    def logits(self, inputs: Any, codes: torch.Tensor) -> torch.Tensor:
        """Float32 [codes, entries of the head], each under the codes before it."""
        ids, model = inputs["input_ids"], self.model.model
        first = ids.shape[1] - 1
        if self.family == "janus":
            words, images = model.language_model.embed_tokens(ids), model.generation_embeddings(codes[None])
            joined = torch.cat([words, model.generation_aligner(images[:, :-1])], 1)
            states = model.language_model(inputs_embeds=joined).last_hidden_state
            return model.generation_head(states[0, first:]).float()
        if self.family == "emu3":
            grid, mapping = codes.reshape(self.side // 8, -1), model.vocabulary_mapping
            sequence = mapping.convert_img2bpe(grid).reshape(1, -1).long()
            logits = self.model(input_ids=torch.cat([ids, sequence[:, :-1]], 1)).logits[0, first:]
            return logits.reshape(len(grid), -1, logits.shape[-1])[:, :-1].flatten(0, 1)[:, self.rows_of_codes].float()
        model.rope_deltas = None
        shape = inputs["image_grid_thw"], inputs["images_per_sample"], inputs["attention_mask"]
        positions, _ = model.get_rope_index(ids, *shape)
        later = model._cached_decode_position_ids.permute(1, 0, 2)[:, :, : len(codes) - 1]
        joined = torch.cat([ids, codes[None, :-1]], 1)
        return self.model(input_ids=joined, position_ids=torch.cat([positions, later], -1)).logits[0, first:].float()

    @functools.cached_property
    def rows_of_codes(self) -> list[int]:
        """Emu3's codes as tokens of its vocabulary."""
        mapping = self.model.model.vocabulary_mapping.img2bpe
        return [mapping[code] for code in range(len(mapping))]

    def guided(self, inputs: Any, codes: torch.Tensor, guidance: float | None) -> torch.Tensor:
        """Log-probabilities, float32 [codes, entries of the head]."""
        logits = self.logits(inputs, codes)
        if guidance is not None:
            without = self.logits(self.without_text(inputs), codes)
            logits = without + guidance * (logits - without)
        return logits.log_softmax(-1)

    def scores(self, images: list[torch.Tensor], texts: tuple[str, ...], guidance: float | None = None) -> np.ndarray:
        """Float64 [images, texts] of images in codes. The empty text is no text."""
        table = np.empty((len(images), len(texts)))
        for column, text in enumerate(texts):
            inputs = self.inputs(text)
            inputs = inputs if text else self.without_text(inputs)
            for row, codes in enumerate(images):
                chosen = self.guided(inputs, codes, guidance).gather(-1, codes[:, None])
                table[row, column] = chosen.double().sum().item()
        return table
