"""A pipeline's encoders on the devices, and the tables of latents and of text states that they fill."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from winobench import parallel
from winobench.base import caches, memory
from winobench.checkpoints import models
from winobench.data import images as image_files
from winobench.diffusion.pipeline import Pipeline
from winobench.engine import limits, tables, text_store
from winobench.engine.limits import Limit
from winobench.models import lora

# Images and texts that each device encodes at once, at most, and the pixels of these images. On a CPU, large images are
# encoded faster one by one, and places of a batch that stay empty cost as much as others.
_IMAGE_BATCH, TEXT_BATCH = Limit(8, cpu=4), Limit(64, cpu=8)
_PIXELS_PER_BATCH = Limit(1 << 21, cpu=1 << 16)
_CLIP_TOKENS = 77
# Memory of each table of latents or text states.
TABLE_BYTES = Limit(1 << 30, cpu=1 << 27)


def text_batch(ids: Any, mesh: Mesh) -> int:
    """Texts that each device encodes at once: fewer where they have more tokens than CLIP's."""
    longest = max(leaf.shape[1] if leaf.ndim > 1 else 1 for leaf in jax.tree.leaves(ids))
    return max(1, TEXT_BATCH.on(mesh) * _CLIP_TOKENS // max(_CLIP_TOKENS, longest))


def image_batch(image_size: int, mesh: Mesh) -> int:
    """Images of this height and width, in pixels, that each device encodes at once."""
    return min(max(1, _PIXELS_PER_BATCH.on(mesh) // image_size**2), _IMAGE_BATCH.on(mesh))


def encodes_images_in(pipeline: Pipeline, dtype: str | None) -> bool:
    """Whether a pipeline's autoencoder computes in this dtype. True when None, for any dtype."""
    return dtype is None or jnp.dtype(pipeline.autoencoder.dtype) == jnp.dtype(dtype)


def with_autoencoder_in(pipeline: Pipeline, dtype: str | None) -> Pipeline:
    """A pipeline that encodes images in this dtype. The pipeline itself when None."""
    if encodes_images_in(pipeline, dtype):
        return pipeline
    return pipeline.replace(**{pipeline.AUTOENCODER: models.in_dtype(pipeline.autoencoder, dtype)})


class ImageTables:
    """The autoencoder on the devices, and tables of latents [rows, h, w, c]."""

    def __init__(self, pipeline: Pipeline, image_size: int, mesh: Mesh, rows: int | None):
        self._size = image_size
        function, params = pipeline.image_function()
        batch = image_batch(image_size, mesh)
        latents = tables.encoded_shapes(function, params, mesh, batch, self.blank)
        self.latent_shape = tuple(latents.shape[1:])
        self._rows = rows or limits.table_rows(latents, TABLE_BYTES.on(mesh))
        self.table_bytes = self._rows * memory.array_bytes(latents)
        params = parallel.place_parameters(params, mesh)
        self.encoder = tables.Encoder(function, params, mesh, batch, "image")

    @property
    def blank(self) -> np.ndarray:
        """An image like those that are encoded: uint8 [image_size, image_size, 3]."""
        return np.zeros((self._size, self._size, 3), np.uint8)

    def empty(self) -> Any:
        return self.encoder.empty_table(self._rows, self.blank)

    def table(self, images: Sequence[Any]) -> tables.DeviceTable:
        """A table for some images, which are read in the background once they are needed."""

        def load(number: int) -> np.ndarray:
            return image_files.load_image(images[number], self._size)

        return tables.DeviceTable(
            self.encoder,
            len(images),
            self._rows,
            self.blank,
            lambda numbers: tables.load_ahead(load, numbers, 2 * self.encoder.batch_size),
        )


class TextTables:
    """The text encoders on the devices, or staged, and tables of what the denoiser gets of texts."""

    def __init__(
        self,
        pipeline: Pipeline,
        dtype: str,
        image_size: int,
        mesh: Mesh,
        rows: int | None,
        *,
        is_staged: bool,
        make_room: Callable[[], None],
    ):
        """Puts the text encoders on the devices, unless they are staged, or the host has them.

        Args:
          is_staged: whether they encode all of a table and then leave the devices.
          make_room: called before encoders are put on the devices that do not stay there.
        """
        self._pipeline, self._image_size = pipeline, image_size
        self.store: text_store.TextStore | None = None
        folder = os.path.join(caches.folder(), "text_states")
        if (of_texts := pipeline.host_texts(dtype)) is not None:
            self.store = text_store.HostTexts(*of_texts, folder, mesh, make_room)
            function: Callable[..., Any] = text_store.as_they_are
            params: Any = []
            batch = TEXT_BATCH.on(mesh)
            states = jax.tree.map(lambda leaf: leaf[None], self._example(self.tokenize([""])[0]))
        else:
            function, params = pipeline.text_function(dtype)
            ids = self._token_ids([""])
            batch = text_batch(ids, mesh)
            states = tables.encoded_shapes(function, params, mesh, batch, jax.tree.map(lambda leaf: leaf[0], ids))
        self._rows = rows or limits.table_rows(states, TABLE_BYTES.on(mesh))
        self.table_bytes = self._rows * memory.array_bytes(states)
        if is_staged and self.store is None:
            networks = pipeline.text_encoders
            identity = {
                "family": pipeline.CLASS_NAME,
                "weights": models.weights_sha256(*networks.values()),
                "lora_scales": [lora.scales(network) for network in networks.values()],
                "configs": [network.config.to_dict() for network in networks.values()],
                "dtypes": [dtype, *(jnp.dtype(network.dtype).name for network in networks.values())],
            }
            self.store = text_store.StagedTexts(function, params, identity, folder, mesh, batch, make_room)
            function, params = text_store.as_they_are, []
        self.encoder = tables.Encoder(function, parallel.place_parameters(params, mesh), mesh, batch, "text")

    def tokenize(self, texts: Sequence[str]) -> list[Any]:
        """The token ids of each text, trees of int32 arrays. Texts themselves where the host encodes them."""
        if isinstance(self.store, text_store.HostTexts):
            return self.store.items(texts)
        ids = self._token_ids(texts)
        return [jax.tree.map(lambda leaf, number=number: leaf[number], ids) for number in range(len(texts))]

    def empty(self) -> Any:
        return self.encoder.empty_table(self._rows, self._example(self.tokenize([""])[0]))

    def table(self, texts: Sequence[str]) -> tables.DeviceTable:
        """A table for some texts. Staged encoders encode all of them now."""
        items = self.tokenize(texts)
        if self.store is not None:
            self.store.prepare(items)

        def load(numbers: Sequence[int]) -> Iterator[Any]:
            chosen = [items[number] for number in numbers]
            return iter(chosen) if self.store is None else self.store.read(chosen)

        return tables.DeviceTable(self.encoder, len(items), self._rows, self._example(items[0]), load)

    def _example(self, item: Any) -> Any:
        """Input of the encoder for one text."""
        if self.store is None:
            return item
        self.store.prepare([item])
        return next(self.store.read([item]))

    def _token_ids(self, texts: Sequence[str]) -> Any:
        return jax.tree.map(np.asarray, self._pipeline.tokenize(texts, image_size=self._image_size))
