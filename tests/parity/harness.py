"""The parity harness: random torch networks, networks of ours with the same weights, and comparisons."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import nnx

from winobench import checkpoints
from winobench.checkpoints import models as checkpoint_models
from winobench.checkpoints.tensors import FileTensor
from winobench.models.base import only_shapes

# Largest difference over largest expected value, in float32. Rounding reaches 2e-6 for whole networks and full-width
# blocks; the smallest mistake that matters, GELU by its tanh formula, 1.3e-4.
NETWORK_TOLERANCE = 2e-5

# Compiling takes most of the time of these tests; the results differ in rounding only.
QUICK_COMPILATION = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def randomize(module: Any, seed: int = 0) -> Any:
    """Gives every parameter of a torch module a random value, so that no bias is 0 and no norm is 1.

    Torch's own start would hide swapped norms and missing biases. Activations keep a spread of about one.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim > 1:
                parameter.copy_(noise * parameter[0].numel() ** -0.5)
            else:
                parameter.copy_(0.2 * noise)
        for part in module.modules():
            is_norm = isinstance(part, torch.nn.GroupNorm | torch.nn.LayerNorm) or "RMSNorm" in type(part).__name__
            if is_norm and getattr(part, "weight", None) is not None:
                part.weight += 1.0
    return module.eval()


def pair(theirs: Any, ours: type, **options: Any) -> tuple[Any, nnx.Module]:
    """Makes a torch network random. Returns it, and a network of class ``ours`` with its config and weights."""
    randomize(theirs)
    config = theirs.config.to_dict() if hasattr(theirs.config, "to_dict") else dict(theirs.config)
    return theirs, from_torch(ours, ours.config_class.from_dict(config), theirs, **options)


def from_torch(cls: type, config: Any, source: Any, **kwargs: Any) -> nnx.Module:
    """Builds a network of ours with the parameters of a torch network, as loading its weight file would."""
    return checkpoint_models.build_model(cls, config, file_tensors(source), **kwargs)


def file_tensors(source: Any) -> dict[str, FileTensor]:
    """The parameters of a torch network, as from its file."""

    def of(name: str, tensor: Any) -> FileTensor:
        return FileTensor(name, tuple(tensor.shape), "a torch module", lambda: tensor.detach().numpy())

    return {name: of(name, tensor) for name, tensor in source.state_dict().items()}


def copy_parameters(source: Any, target: nnx.Module) -> nnx.Module:
    """Fills a part of a network, which may be abstract, from its torch counterpart; all names must agree."""
    tensors = dict(source.named_parameters())
    names = checkpoint_models.torch_names(target)
    assert torch_shapes(tensors) == our_shapes(target)
    graph, state = nnx.split(target)
    leaves = dict(nnx.to_flat_state(state))
    for name, (path, _) in names.items():
        values = checkpoint_models._from_torch(path, tensors[name].detach().numpy())
        leaves[path] = leaves[path].replace(jax.device_put(np.array(values)))
    return nnx.merge(graph, nnx.from_flat_state(leaves))


def abstract(build: Any) -> nnx.Module:
    """The module that ``build(rngs)`` makes, without values."""
    key = checkpoint_models._SameKey(jax.random.key(0))
    with only_shapes():
        return nnx.eval_shape(lambda: build(key))


@functools.partial(jax.jit, static_argnums=(0, 1), compiler_options=QUICK_COMPILATION)
def _call(graph, method, state, args, keywords):
    return getattr(nnx.merge(graph, state), method)(*args, **keywords)


def call(module: nnx.Module, *args: Any, method: str = "__call__", **keywords: Any) -> Any:
    """Calls a network or one of its methods the way the library does: split once, then plain ``jax.jit``."""
    with jax.default_matmul_precision("highest"):
        graph, state = nnx.split(module)
        return _call(graph, method, state, args, keywords)


@functools.partial(jax.jit, static_argnums=0, compiler_options=QUICK_COMPILATION)
def _clip_outputs(graph, state, pixels, ids):
    model = nnx.merge(graph, state)
    return model.encode_images(pixels), model.encode_texts(ids), model(pixels, ids)


def clip_outputs(model: nnx.Module, pixels: np.ndarray, ids: np.ndarray) -> tuple[Any, Any, Any]:
    """Image features, text features and logits of a ``CLIPModel``, in one compilation."""
    with jax.default_matmul_precision("highest"):
        return _clip_outputs(*nnx.split(model), pixels, ids)


def torch_clip_outputs(model: Any, pixels: Any, ids: np.ndarray) -> list[Any]:
    """The same of a CLIP or SigLIP in torch."""
    import torch

    ids = torch.from_numpy(ids).long()
    with torch.no_grad():
        images = model.get_image_features(pixel_values=pixels).pooler_output
        texts = model.get_text_features(input_ids=ids).pooler_output
        return [images, texts, model(input_ids=ids, pixel_values=pixels).logits_per_image]


def our_shapes(module: nnx.Module) -> dict[str, tuple[int, ...]]:
    """Torch name -> shape of all parameters."""
    return {name: shape for name, (_, shape) in checkpoint_models.torch_names(module).items()}


def torch_shapes(tensors: Any) -> dict[str, tuple[int, ...]]:
    """The same of a torch module, or of what its ``state_dict`` and ``named_parameters`` give."""
    tensors = tensors.state_dict() if hasattr(tensors, "state_dict") else dict(tensors)
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def group_norm_epsilons(theirs: Any, ours: nnx.Module) -> tuple[dict[str, float], dict[str, float]]:
    """Name of each group norm -> its epsilon, of both."""
    import torch

    from winobench.models.layers import GroupNorm

    modules = {".".join(map(str, path)): module for path, module in nnx.iter_modules(ours)}
    found = {name: module.epsilon for name, module in modules.items() if isinstance(module, GroupNorm)}
    return {name: m.eps for name, m in theirs.named_modules() if isinstance(m, torch.nn.GroupNorm)}, found


def odd_images(sizes: Any = ((51, 70), (20, 9), (1, 3))) -> list[Any]:
    """Images of odd shapes, a gray one, and one with an alpha channel that is opaque."""
    from PIL import Image

    rng = np.random.default_rng(4)
    arrays = [rng.integers(0, 256, (*size, 3), dtype=np.uint8) for size in sizes]
    images = [Image.fromarray(array) for array in (*arrays, rng.integers(0, 256, (33, 47), dtype=np.uint8))]
    alpha = images[0].copy()
    alpha.putalpha(255)
    return [*images, alpha]


def check_tensors(first: Any, second: Any) -> None:
    """Checks that two torch networks have equal tensors under the same names."""
    import torch

    tensors, expected = first.state_dict(), second.state_dict()
    assert tensors.keys() == expected.keys()
    assert [name for name, values in expected.items() if not torch.equal(tensors[name], values)] == []


def check_files(theirs: Any, ours: nnx.Module, folder: pathlib.Path, **saving: Any) -> None:
    """Checks that torch and we read each other's files without a change. ``saving`` are torch's options."""
    theirs.save_pretrained(folder / "theirs", **saving)
    read = type(ours).from_pretrained(folder / "theirs")
    assert checkpoints.weights_sha256(read) == checkpoints.weights_sha256(ours)
    checkpoints.save_model(ours, folder / "ours")
    check_tensors(type(theirs).from_pretrained(folder / "ours"), theirs)


def check_shapes(ours: type, config: Any, make: Callable[[], Any], rename: Callable[[str], str] = str) -> Any:
    """Checks names and shapes of parameters against the torch network that ``make`` makes. Returns that network.

    ``rename`` makes the names of published files from torch's attributes.
    """
    import torch

    with torch.device("meta"):
        network = make()
    expected = {rename(name): shape for name, shape in torch_shapes(network).items()}
    assert our_shapes(checkpoints.abstract_model(ours, config)) == expected
    return network


def to_torch(array: np.ndarray) -> Any:
    """NHWC (or [B, L, D]) NumPy array -> torch tensor in torch's layout."""
    import torch

    return torch.from_numpy(array.transpose(0, 3, 1, 2).copy() if array.ndim == 4 else array)


def from_nchw(tensor: Any) -> np.ndarray:
    """Torch feature map [B, C, H, W] -> NHWC NumPy array."""
    return tensor.detach().permute(0, 2, 3, 1).numpy()


def check_close(ours: Any, theirs: Any, tolerance: float) -> None:
    """Checks that the `relative_error` of an array, or of each in a list, is below a tolerance.

    Torch's feature maps [B, C, H, W] are compared as NHWC.
    """
    for mine, expected in zip(ours, theirs, strict=True) if isinstance(theirs, list) else [(ours, theirs)]:
        is_map = hasattr(expected, "detach") and expected.ndim == 4
        assert relative_error(mine, from_nchw(expected) if is_map else expected) < tolerance


def relative_error(ours: Any, theirs: Any) -> float:
    """Largest absolute difference over the largest absolute expected value, unless that is 0. Shapes must agree."""
    ours = np.asarray(ours, np.float64)
    theirs = np.asarray(theirs.detach() if hasattr(theirs, "detach") else theirs, np.float64)
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    return float(np.max(np.abs(ours - theirs)) / (np.max(np.abs(theirs)) or 1.0))
