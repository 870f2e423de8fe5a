"""Denoising errors that are requested in parts. Later parts use the encoded images and texts of earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike

from winobench.engine import batch_size, sharing, tables
from winobench.scorers import common

Step = Callable[..., jax.Array]


class Session:
    """Images, texts and samples of one evaluation, and their encoded states. `DiffusionITM.session` makes it."""

    def __init__(
        self,
        make_step: Callable[[int], Step],
        images: tables.DeviceTable,
        texts: tables.DeviceTable,
        timesteps: np.ndarray,
        noise: jax.Array,
        *,
        size: batch_size.BatchSize,
        shares_texts: bool,
    ):
        """Prepares nothing yet.

        Args:
          make_step: number of texts that share an image and a sample -> the step that scores such batches, a function
            of (latents, text states, noise, index int32 [4, n]: image row, text row, sample, timestep).
          timesteps: int32 [num_samples] (`Schedule.as_whole_numbers`).
        """
        self._make_step = make_step
        self._images = images
        self._texts = texts
        self._timesteps = timesteps
        self._noise = noise
        self._size = size
        self._shares_texts = shares_texts
        self._texts_to_share: int | None = None  # until there are triples to choose it by

    @property
    def capacity(self) -> tuple[int, int]:
        return self._images.capacity, self._texts.capacity

    def iter_errors(
        self, triples: ArrayLike, among: ArrayLike | None = None, *, choose_again: bool = False
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The errors of chosen triples. Arguments, result and errors as in `DiffusionITM.iter_errors`.

        Finish one iteration before the next begins: they share the tables. The first call decides for how many texts
        about each image and sample programs are prepared, so it should be the same one each time, even if no triple is
        left to be scored; ``choose_again`` decides again, by this call's triples.
        """
        limits = {"image": self._images.num_items, "text": self._texts.num_items, "sample": len(self._timesteps)}
        triples = common.checked_rows("triples", triples, limits)
        everything = triples if among is None else common.checked_rows("among", among, limits)
        if (self._texts_to_share is None or choose_again) and len(everything):
            # Not for each small part, as each number is a program to be compiled.
            self._texts_to_share = sharing.texts_to_share(everything) if self._shares_texts else 1
        texts = self._texts_to_share or 1
        parts = self._size.total // self._size.per_device
        shared: Any = None if among is None else sharing.Shared(everything, texts)
        sharing_step, lone_step = self._make_step(texts), self._make_step(1)

        def step(image_rows: np.ndarray, text_rows: np.ndarray, batch: np.ndarray) -> jax.Array:
            index = np.stack([image_rows, text_rows, batch[:, 2], self._timesteps[batch[:, 2]]])
            fused = sharing_step if shared is None or shared.of(batch[:1])[0] else lone_step
            return fused(self._images.array, self._texts.array, self._noise, index)

        def order(items: np.ndarray) -> np.ndarray:
            return sharing.order(items, None if shared is None else shared.of(items))

        def cut(items: np.ndarray, size: int) -> Iterator[np.ndarray]:
            return sharing.cut(items, shared.of(items), parts, size // parts, texts)

        return tables.score_rows(
            self._images, self._texts, triples, self._size, step, order, None if shared is None else cut
        )
