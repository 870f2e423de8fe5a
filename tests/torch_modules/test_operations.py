"""Operations that winobench computes in torchax's place, against torch on CPUs, under `jax.jit`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

from winobench.models import attention, fused_attention, plain_attention

torch = pytest.importorskip("torch")
from torch.nn import functional  # noqa: E402

from winobench.torch_modules import bridge, network, operations  # noqa: E402

# Differences of the largest value: float32 rounding, and one step of bfloat16 (2^-8 of the next power of two).
TOLERANCE = {torch.float32: 1e-6, torch.bfloat16: 2**-7}


@pytest.fixture(scope="module")
def environment():
    return bridge.environment()


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def equals_torch(environment, function, *tensors, dtypes=(torch.float32, torch.bfloat16)):
    """The function of tensors in torchax's environment under `jax.jit`, and in torch."""
    for dtype in dtypes:
        given = [tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in tensors]
        arrays = environment.t2j_copy(given)

        def in_jax(*arrays):
            with environment, torch.no_grad():
                return environment.t2j_iso(function(*environment.j2t_iso(list(arrays))))

        ours = jax.jit(in_jax)(*arrays)
        theirs = function(*given)
        assert ours.dtype == environment.t2j_copy(theirs).dtype
        theirs = theirs.float().numpy()
        assert ours.shape == theirs.shape
        difference = np.max(np.abs(np.asarray(ours, np.float32) - theirs))
        assert difference <= TOLERANCE[dtype] * max(1.0, np.max(np.abs(theirs))), (dtype, difference)


PADDING = torch.tensor([[1, 1, 0, 1, 0, 1, 1], [0, 1, 1, 1, 1, 0, 0]], dtype=torch.bool)
NOBODY = torch.stack([PADDING[0], torch.zeros(7, dtype=torch.bool)])
MASKS = {
    "none": None,
    "padding": PADDING[:, None, None],
    "padding of all": NOBODY[:, None, None],
    "one for all rows": PADDING[:1],
    "bias of keys": normal(2, 3, 1, 7, seed=5),
    "-10,000 at padding": -1e4 * (~PADDING).float()[:, None, None].repeat(1, 3, 1, 1),
    "heads": PADDING[:, None, None].repeat(1, 3, 1, 1) & (torch.arange(3)[:, None, None] < 2),
    "queries": (normal(2, 1, 5, 7, seed=6) > 0) & (torch.arange(5)[:, None] != 3),
    "bias": normal(3, 5, 7, seed=7),
    "-inf": torch.where(normal(2, 3, 5, 7, seed=8) > 0, normal(5, 7), -torch.inf),
    "two axes": normal(5, 7, seed=9),
}


@pytest.mark.parametrize("name", MASKS)
def test_attention(environment, name):
    arrays = [normal(2, 3, 5, 8), normal(2, 3, 7, 8, seed=1), normal(2, 3, 7, 8, seed=2)]
    mask = [] if MASKS[name] is None else [MASKS[name]]
    equals_torch(environment, functional.scaled_dot_product_attention, *arrays, *mask)


@pytest.mark.parametrize(
    ("shapes", "keywords"),
    [
        (((2, 3, 5, 8), (2, 3, 5, 8), (2, 3, 5, 8)), {"is_causal": True, "scale": 0.7}),
        (((2, 6, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8)), {"enable_gqa": True, "scale": 1.0}),
        (((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 11)), {}),
        (((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 5)), {"is_causal": True}),
        (((4, 5, 8), (4, 7, 8), (4, 7, 8)), {}),
        (((2, 1, 3, 5, 8), (2, 1, 3, 7, 8), (2, 1, 3, 7, 8)), {}),
        (((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8), (5, 7)), {"is_causal": True}),
    ],
)
def test_forms_of_attention(environment, shapes, keywords):
    arrays = [normal(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    equals_torch(environment, functools.partial(functional.scaled_dot_product_attention, **keywords), *arrays)


def test_dropout_is_refused(environment):
    with pytest.raises(ValueError, match="eval mode"):
        equals_torch(
            environment, lambda x: functional.scaled_dot_product_attention(x, x, x, dropout_p=0.1), normal(2, 4, 8)
        )


FORMS = {
    "cudnn": fused_attention.cudnn,
    "flash": fused_attention.flash,
    "in parts": lambda *arrays, **keywords: jnp.swapaxes(
        plain_attention.attend_in_parts(*(jnp.swapaxes(x, 1, 2) for x in arrays), 4 * 7, **keywords), 1, 2
    ),
}


@pytest.mark.parametrize("name", [name for name, mask in MASKS.items() if mask is not None and mask.ndim == 4])
@pytest.mark.parametrize("form", FORMS)
def test_kernels_with_masks(form, name, monkeypatch):
    """What cuDNN's attention is given, with JAX's own in its place; the TPU's in interpret mode; single queries."""
    query, key, value = (jnp.asarray(normal(2, n, 3, 8, seed=n).numpy()) for n in (5, 7, 7))
    mask = jnp.asarray(MASKS[name].numpy())
    if form == "flash" and mask.shape[2] > 1:
        assert not fused_attention.flash_takes(jax.ShapeDtypeStruct((2, 256, 3, 8), jnp.bfloat16), query, mask)
        return

    def call():
        return attention.dot_product_attention(query, key, value, mask=mask, scale=0.5)

    expected = call()
    real = jax.nn.dot_product_attention
    monkeypatch.setattr(attention, "_attention_of", lambda *of: FORMS[form])
    monkeypatch.setattr(jax.nn, "dot_product_attention", lambda *a, implementation, **kwargs: real(*a, **kwargs))
    with pltpu.force_tpu_interpret_mode():
        np.testing.assert_allclose(jax.jit(call)(), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("mask", "takes"), [((1, 1, 1, 64), True), ((2, 2, 1, 64), False), ((1, 1, 64, 64), True), (None, True)]
)
def test_widest_heads_with_masks(mask, takes):
    query = jax.ShapeDtypeStruct((2, 64, 2, 256), jnp.bfloat16)
    mask = mask and jax.ShapeDtypeStruct(mask, jnp.bool_)
    assert fused_attention.cudnn_takes(query, (9, 0), mask) == takes


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (functional.conv2d, [(2, 4, 5, 7), (6, 4, 1, 1), (6,)]),
        (functools.partial(functional.conv2d, padding=1, stride=2), [(2, 4, 5, 7), (6, 4, 3, 3), (6,)]),
        (functools.partial(functional.conv2d, padding=(1, 0), dilation=2), [(1, 4, 5, 7), (6, 4, 3, 2)]),
        (functools.partial(functional.conv2d, stride=2), [(3, 4, 5, 7), (6, 4, 2, 2), (6,)]),
        (functools.partial(functional.conv2d, padding="same", groups=4), [(2, 4, 5, 7), (4, 1, 3, 4), (4,)]),
        (functools.partial(functional.conv1d, padding=1), [(4, 7), (6, 4, 3), (6,)]),
        (functools.partial(functional.conv3d, stride=(1, 2, 1), groups=2), [(2, 4, 5, 7, 6), (6, 2, 1, 3, 2), (6,)]),
        (functools.partial(functional.conv3d, stride=(1, 2, 2)), [(2, 4, 3, 5, 6), (6, 4, 1, 2, 2), (6,)]),
        (
            functools.partial(
                functional.conv_transpose2d, stride=2, padding=1, output_padding=1, groups=2, dilation=(1, 2)
            ),
            [(2, 4, 5, 7), (4, 3, 3, 3), (6,)],
        ),
        (functional.conv_transpose3d, [(2, 4, 3, 5, 4), (4, 6, 2, 3, 1), (6,)]),
        (functools.partial(functional.group_norm, num_groups=3), [(2, 6, 5, 7)]),
        (lambda x, *a: functional.group_norm(30 + x, 2, *a), [(2, 6, 7), (6,), (6,)]),
        (lambda x, *a: functional.layer_norm(x + 3, (7,), *a, eps=1e-6), [(2, 5, 7), (7,), (7,)]),
        (lambda x, *a: functional.layer_norm(x, (5, 7), *a), [(2, 5, 7)]),
        (lambda x, *a: functional.rms_norm(1e-4 * x, (7,), *a), [(2, 5, 7), (7,)]),
        (lambda x: functional.rms_norm(x, (5, 7), eps=1e-2), [(2, 5, 7)]),
        (functional.linear, [(2, 5, 7), (11, 7), (11,)]),
        (lambda x: functional.interpolate(x, scale_factor=2.0), [(2, 3, 5, 7)]),
        (lambda x: functional.interpolate(x, size=(9, 21)), [(2, 3, 5, 7)]),
        (lambda x: functional.interpolate(x, scale_factor=1.7), [(2, 3, 5, 7)]),
    ],
)
def test_layers(environment, function, shapes):
    equals_torch(environment, function, *(normal(*shape, seed=seed) for seed, shape in enumerate(shapes)))


class Convolutions(torch.nn.Sequential):
    dtype = torch.float32


def test_kernels_lie_as_ours():
    """The axes that `winobench.engine.layouts` knows. Torch computes with its own."""
    layers = [torch.nn.Conv2d(4, 6, (3, 2)), torch.nn.Conv2d(6, 6, 1, groups=3), torch.nn.ConvTranspose2d(6, 2, 3)]
    weights = [layer.weight.detach().clone().numpy() for layer in layers]
    ours = network.TorchNetwork(Convolutions(*layers), network.TorchConfig({}))
    arrays = {name: parameter.get_value() for name, parameter in ours.arrays.items()}
    assert arrays["0.weight"].shape == (3, 2, 4, 6)
    assert arrays["1.weight"].shape == (1, 1, 2, 6)
    np.testing.assert_array_equal(arrays["0.weight"], weights[0].transpose(2, 3, 1, 0))
    np.testing.assert_array_equal(operations.weight_of(arrays["1.weight"]), weights[1])
    np.testing.assert_array_equal(arrays["2.weight"], weights[2])
    x = normal(2, 4, 7, 5).numpy()
    np.testing.assert_allclose(ours.run(x), ours.run_in_torch(x), atol=1e-6)
    for shape in ((6, 4, 3), (6, 4, 1, 3, 2)):
        weight = normal(*shape).numpy()
        kernel = operations.kernel_of(weight)
        assert kernel.shape == (*shape[2:], shape[1], shape[0])
        np.testing.assert_array_equal(operations.weight_of(kernel), weight)
