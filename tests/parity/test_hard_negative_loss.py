"""The loss with hard negatives and the adapters' gradients against torch autograd, diffusers' UNet and peft's adapters.

The torch side is written as fine-tuning code usually is, one pass for the positives and one for the negatives. Float32.
The loss, a difference of two errors, is compared relative to the positive's; gradients by the largest difference over
the largest expected value. Measured: 4e-7 and 4e-6.
"""

import diffusers
import jax
import jax.numpy as jnp
import numpy as np
import peft
import pytest
import torch
import torch.nn.functional as F
import transformers
from flax import nnx

from tests.parity.harness import QUICK_COMPILATION, from_torch, randomize, relative_error, to_torch
from tests.training.toy_run import loss_settings
from winobench.diffusion.schedules import NoiseSchedule
from winobench.diffusion.stable_diffusion import StableDiffusion
from winobench.models import lora
from winobench.models.clip import CLIPTextConfig, CLIPTextModel
from winobench.models.unet_2d_condition import UNet2DConditionModel
from winobench.models.unet_2d_condition_config import UNet2DConditionConfig
from winobench.training.hard_negatives import NEGATIVES, Draws, make_loss

TOLERANCE = 2e-5
RANK, ALPHA = 3, 6
UNET_TARGETS = ["to_q", "to_k", "to_v", "to_out.0"]
TEXT_TARGETS = ["q_proj", "k_proj", "v_proj", "out_proj"]
TIMESTEPS = [3, 250, 600, 990]
BATCH, LENGTH, WIDTH, TOKENS = len(TIMESTEPS), 5, 12, 30


@pytest.fixture(scope="module")
def unet():
    """diffusers' UNet with peft's adapters on both attentions."""
    sizes = {"sample_size": 4, "block_out_channels": (16,), "down_block_types": ("CrossAttnDownBlock2D",)}
    sizes |= {"up_block_types": ("CrossAttnUpBlock2D",), "layers_per_block": 1, "norm_num_groups": 4}
    sizes |= {"attention_head_dim": 4, "cross_attention_dim": WIDTH}
    network = diffusers.UNet2DConditionModel(**sizes)
    return with_adapters(network, UNET_TARGETS)


@pytest.fixture(scope="module")
def text_encoder():
    sizes = {"vocab_size": TOKENS, "hidden_size": WIDTH, "intermediate_size": 24, "num_hidden_layers": 1}
    sizes |= {"num_attention_heads": 2, "max_position_embeddings": LENGTH, "bos_token_id": TOKENS - 2}
    sizes |= {"eos_token_id": TOKENS - 1, "pad_token_id": TOKENS - 1}
    network = transformers.CLIPTextModel(transformers.CLIPTextConfig(**sizes))
    return with_adapters(network, TEXT_TARGETS)


def with_adapters(network, targets):
    """The network before peft changes its names, and the same with adapters that matter."""
    randomize(network)
    plain = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    network.add_adapter(peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=targets))
    generator = torch.Generator().manual_seed(1)
    for name, parameter in network.named_parameters():
        parameter.requires_grad_("lora_" in name)
        if "lora_" in name:
            parameter.data = 0.2 * torch.randn(parameter.shape, generator=generator)
    return network.eval(), plain


def torch_adapters(network, values):
    """{layer: {down, up}} in our layout, of parameters or of their gradients."""
    result = {}
    for name, parameter in network.named_parameters():
        if "lora_" in name:
            layer, _, factor = name.partition(".lora_")
            # transformers 5 has dropped this prefix, which all files have.
            layer = f"text_model.{layer}" if layer.startswith("encoder.") else layer
            part = {"A": "down", "B": "up"}[factor[0]]
            result.setdefault(layer, {})[part] = values(parameter).detach().numpy().T
    return result


def ours(cls, config, network, plain):
    """Our network with the same parameters and adapters, parted for training."""
    base = torch.nn.Module()
    base.state_dict = lambda: plain
    result = from_torch(cls, config, base)
    factors = {
        name: lora.Factors(values["down"], values["up"], ALPHA / RANK)
        for name, values in torch_adapters(network, lambda parameter: parameter).items()
    }
    lora.attach(result, factors)
    return lora.split(result)


@pytest.fixture(scope="module")
def networks(unet, text_encoder):
    """(graph definitions, params, frozen), each with the entries unet and text_encoder."""
    parts = {
        "unet": ours(UNet2DConditionModel, UNet2DConditionConfig.from_dict(dict(unet[0].config)), *unet),
        "text_encoder": ours(CLIPTextModel, CLIPTextConfig.from_dict(text_encoder[0].config.to_dict()), *text_encoder),
    }
    return tuple({name: part[index] for name, part in parts.items()} for index in range(3))


@pytest.fixture(scope="module")
def batch():
    random = np.random.default_rng(3)
    shape = (BATCH, 4, 4, 4)
    arrays = {name: random.normal(size=shape) for name in ("latents", "negative_latents", "noise")}
    names = ("text_states", "random_text_states", "negative_text_states")
    arrays |= {name: random.normal(size=(BATCH, LENGTH, WIDTH)) for name in names}
    arrays = {name: values.astype(np.float32) for name, values in arrays.items()}
    ids = {name: random.integers(0, TOKENS, (BATCH, LENGTH)) for name in ("input_ids", "random_ids", "negative_ids")}
    return arrays | ids


def our_function(networks, config, prediction_type, *, with_ids=False):
    """(batch, kinds) -> loss, metrics, {network: {layer: {down, up}}}; one compilation for all kinds drawn."""
    graphdefs, params, frozen = networks
    if not with_ids:
        params, frozen = ({"unet": part["unet"]} for part in (params, frozen))
    graphdefs = graphdefs if with_ids else {"unet": graphdefs["unet"]}
    schedule = NoiseSchedule(prediction_type=prediction_type)
    loss_fn = make_loss(StableDiffusion, graphdefs, schedule, config)
    function = jax.jit(jax.value_and_grad(loss_fn, has_aux=True), compiler_options=QUICK_COMPILATION)

    def call(batch, kinds):
        draws = Draws(batch["noise"], jnp.asarray(TIMESTEPS), kinds)
        with jax.default_matmul_precision("highest"):
            (loss, metrics), gradients = function(params, frozen, batch, None, draws)
        named = {key: lora.lora_params(nnx.merge(graphdefs[key], gradients[key], frozen[key])) for key in gradients}
        return loss, metrics, named

    return call


def torch_loss(unet, encode, batch, kinds, config, prediction_type):
    """Loss of a batch by torch; ``kinds`` names each example's negative, or is None."""
    scheduler = diffusers.DDPMScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", prediction_type=prediction_type
    )
    timesteps, noise = torch.tensor(TIMESTEPS), to_torch(batch["noise"])
    latents = to_torch(batch["latents"])

    def target(latents):
        return noise if prediction_type == "epsilon" else scheduler.get_velocity(latents, noise, timesteps)

    def predict(latents, states):
        return unet(scheduler.add_noise(latents, noise, timesteps), timesteps, states).sample

    states = encode("own")
    prediction = predict(latents, states)
    loss = F.mse_loss(prediction.float(), target(latents).float(), reduction="mean")
    if kinds is None:
        return loss
    images = torch.tensor([kind == "hard_image" for kind in kinds])[:, None, None, None]
    negative_latents = torch.where(images, to_torch(batch["negative_latents"]), latents)
    negative_states = torch.stack(
        [
            {"hard_image": states, "hard_text": encode("hard"), "random_text": encode("random")}[kind][row]
            for row, kind in enumerate(kinds)
        ]
    )
    negative_prediction = predict(negative_latents, negative_states)
    reference = target(negative_latents)
    if config.objective == "relativistic":
        reference = prediction
    if config.threshold_over == "example":

        def of_examples(prediction, target):
            return F.mse_loss(prediction.float(), target.float(), reduction="none").mean(dim=(1, 2, 3))

        own = of_examples(prediction, target(latents))
        limits = config.threshold * own.detach()
        return (own - torch.minimum(of_examples(negative_prediction, reference), limits)).mean()
    negative_loss = F.mse_loss(negative_prediction.float(), reference.float(), reduction="mean")
    if config.threshold is not None:
        negative_loss = torch.clamp(negative_loss, max=config.threshold * loss.item())
    return loss - negative_loss


def cached_states(batch):
    names = {"own": "text_states", "hard": "negative_text_states", "random": "random_text_states"}
    return lambda which: torch.from_numpy(batch[names[which]])


def torch_gradients(loss, **networks):
    for network in networks.values():
        network.zero_grad()
    loss.backward()
    return {name: torch_adapters(network, lambda parameter: parameter.grad) for name, network in networks.items()}


def cached_ids(batch, text_encoder):
    names = {"own": "input_ids", "hard": "negative_ids", "random": "random_ids"}
    return lambda which: text_encoder(torch.from_numpy(batch[names[which]]))[0]


def in_one_row(gradients):
    return np.concatenate(
        [
            np.ravel(layers[layer][part])
            for _, layers in sorted(gradients.items())
            for layer in sorted(layers)
            for part in ("down", "up")
        ]
    )


def compare(result, expected_loss, expected_gradients):
    """Asserts that loss and gradients agree, and that there are gradients everywhere."""
    loss, metrics, gradients = result
    names, expected_names = (
        {name: sorted(layers) for name, layers in found.items()} for found in (gradients, expected_gradients)
    )
    assert names == expected_names
    assert all(np.any(leaf) for leaf in jax.tree.leaves(expected_gradients))
    assert abs(float(loss) - expected_loss.item()) < TOLERANCE * float(metrics["positive_error"])
    assert relative_error(in_one_row(gradients), in_one_row(expected_gradients)) < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "threshold", "prediction_type", "clipped"),
    [
        # Thresholds that some kinds of negatives are above and others are not.
        ("hinged", 1.0, "v_prediction", {0, 1}),
        ("relativistic", 0.1, "epsilon", {0, 1}),
        ("relativistic", None, "v_prediction", {0}),
    ],
)
def test_every_kind(objective, threshold, prediction_type, clipped, networks, unet, batch):
    config = loss_settings("mixed", threshold, objective)
    function = our_function(networks, config, prediction_type)
    seen = set()
    for index, kind in enumerate(NEGATIVES):
        expected = torch_loss(unet[0], cached_states(batch), batch, [kind] * BATCH, config, prediction_type)
        result = function(batch, jnp.int32(index))
        compare(result, expected, torch_gradients(expected, unet=unet[0]))
        seen.add(int(result[1]["share_clipped"]))
    assert seen == clipped


@pytest.mark.slow
def test_kinds_and_thresholds_for_each_example(networks, unet, batch):
    """Some examples are above the threshold and others are not, which one over the batch does not tell apart."""
    config = loss_settings("mixed", 1.0, mixing="example", threshold_over="example")
    indices = [2, 0, 1, 2]
    kinds = [NEGATIVES[index] for index in indices]
    expected = torch_loss(unet[0], cached_states(batch), batch, kinds, config, "epsilon")
    result = our_function(networks, config, "epsilon")(batch, jnp.asarray(indices))
    compare(result, expected, torch_gradients(expected, unet=unet[0]))
    assert 0 < result[1]["share_clipped"] < 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["none", "mixed"])
def test_with_a_trained_text_encoder(kind, networks, unet, text_encoder, batch):
    """Token ids in; ``mixed`` has drawn an image, so each text goes through the encoder once."""
    config = loss_settings(kind, None)
    kinds = {"none": None, "mixed": ["hard_image"] * BATCH}[kind]
    expected = torch_loss(unet[0], cached_ids(batch, text_encoder[0]), batch, kinds, config, "epsilon")
    result = our_function(networks, config, "epsilon", with_ids=True)(batch, jnp.int32(2))
    compare(result, expected, torch_gradients(expected, unet=unet[0], text_encoder=text_encoder[0]))
