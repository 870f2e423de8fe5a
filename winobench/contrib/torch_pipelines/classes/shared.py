"""Changes that several families need."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def of_tensors(**methods: Any) -> Iterator[None]:
    """Replaces methods of traced tensors, for code that reads values without need."""
    from winobench.torch_modules.bridge import environment, replaced

    environment()  # imports torchax
    from torchax.tensor import Tensor
    from torchax.view import View

    with contextlib.ExitStack() as stack:
        for kind in (Tensor, View):
            for name, method in methods.items():
                stack.enter_context(replaced(kind, name, method))
        yield


@contextlib.contextmanager
def times_in_lists(pipe: Any, latents: Any, results: tuple[Any, ...]) -> Iterator[None]:
    """Gives each row its time, in loops that make a tensor from a list of one time or of equal times."""
    from winobench.torch_modules.bridge import replaced, torch

    make = torch.tensor

    def tensor(data: Any, *others: Any, **keywords: Any) -> Any:
        of_rows = isinstance(data, list) and isinstance(data[0], torch.Tensor) and data[0].ndim == 1
        return data[0] if of_rows else make(data, *others, **keywords)

    with replaced(torch, "tensor", tensor):
        yield
