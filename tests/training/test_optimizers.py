import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.expectations import raises
from winobench.training import optimizers


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("constant", [0.0, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ("linear", [0.0, 0.5, 1.0, 0.75, 0.5, 0.25, 0.0]),
        ("cosine", [0.0, 0.5, 1.0, (1 + 0.5**0.5) / 2, 0.5, (1 - 0.5**0.5) / 2, 0.0]),
    ],
)
def test_schedules(kind, expected):
    rate = optimizers.make_schedule(kind, 2.0, warmup_steps=2, total_steps=6)
    np.testing.assert_allclose([rate(step) for step in range(7)], 2.0 * np.asarray(expected), atol=1e-6)
    without = optimizers.make_schedule(kind, 2.0, warmup_steps=0, total_steps=4)
    np.testing.assert_allclose([without(step) for step in range(5)], 2.0 * np.asarray(expected[2:]), atol=1e-6)


def test_learning_rate_rises_stays_and_falls():
    rate = optimizers.warmup_constant_decay(1.0, warmup_steps=10, total_steps=100, decay_steps=20)
    np.testing.assert_allclose([rate(step) for step in (0, 5, 10, 80, 90, 100)], [0, 0.5, 1, 1, 0.5, 0], atol=1e-6)


@pytest.mark.slow
def test_muon_orthogonalises_convolutions_and_leaves_biases_to_adam():
    params = {"conv": {"kernel": jnp.zeros((3, 3, 4, 8)), "bias": jnp.zeros(8)}}
    gradients = {"conv": {"kernel": jax.random.normal(jax.random.key(0), (3, 3, 4, 8)), "bias": jnp.arange(1.0, 9.0)}}
    params["layers.0.mlp.up_proj.weight"] = jnp.zeros((12, 8))  # torch's name
    gradients["layers.0.mlp.up_proj.weight"] = jax.random.normal(jax.random.key(1), (12, 8))
    optimizer = optimizers.make_optimizer("muon", 1.0, clip_norm=1e9)
    updates, _ = optimizer.update(gradients, optimizer.init(params), params)
    for matrix in (updates["conv"]["kernel"].reshape(36, 8), updates["layers.0.mlp.up_proj.weight"]):
        singular = jnp.linalg.svd(matrix, compute_uv=False)
        assert singular.max() / singular.min() < 2.0  # all near 1 before the scale: Newton-Schulz ends in [0.7, 1.2]
    # Adam's first step is the same for gradients 1 to 8; with Nesterov's momentum it is longer than the rate.
    np.testing.assert_allclose(updates["conv"]["bias"], -(0.9 * 0.1 / (1 - 0.9**2) + 1.0), rtol=1e-4)


def test_what_is_unknown_or_too_long():
    with raises("bad-value", "'sgd'"):
        optimizers.make_optimizer("sgd", 0.1)
    with raises("bad-value", "'step'"):
        optimizers.make_schedule("step", 1.0, warmup_steps=0, total_steps=10)
    with raises("out-of-range", "10"):
        optimizers.make_schedule("cosine", 1.0, warmup_steps=10, total_steps=10)
    optimizers.make_schedule("constant", 1.0, warmup_steps=10, total_steps=10)


def test_adamw_is_torchs():
    torch = pytest.importorskip("torch")
    start = np.linspace(-1, 1, 5, dtype=np.float32)
    gradients = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32) * 3
    parameter = torch.nn.Parameter(torch.tensor(start))
    theirs = torch.optim.AdamW([parameter], lr=0.1, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.2)
    ours = optimizers.make_optimizer("adamw", 0.1, weight_decay=0.2, clip_norm=2.0, b1=0.8, b2=0.95, eps=1e-6)
    params = jnp.asarray(start)
    state = ours.init(params)
    for gradient in gradients:
        parameter.grad = torch.tensor(gradient)
        torch.nn.utils.clip_grad_norm_([parameter], 2.0)
        theirs.step()
        updates, state = ours.update(jnp.asarray(gradient), state, params)
        params = params + updates
    np.testing.assert_allclose(params, parameter.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_without_a_clip_gradients_stay_as_they_are():
    ours, clipped = (optimizers.make_optimizer("adamw", 0.1, clip_norm=norm, eps=1.0) for norm in (None, 1.0))
    params, gradient = jnp.zeros(3), jnp.full(3, 100.0)
    update, smaller = (one.update(gradient, one.init(params), params)[0] for one in (ours, clipped))
    # Adam's first update with an eps of 1: g / (|g| + 1), times the rate.
    np.testing.assert_allclose(update, -0.1 * 100 / 101, rtol=1e-5)
    np.testing.assert_allclose(smaller, -0.1 * (3**-0.5) / (3**-0.5 + 1), rtol=1e-5)
