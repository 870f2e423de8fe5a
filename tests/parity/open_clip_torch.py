"""CLIP in torch with the parameter names of OpenAI's and OpenCLIP's files, for comparison.

transformers has no modified ResNet, and OpenCLIP cannot be installed without torchvision. Everything here is built on
torch's own layers, attention included.
"""

import json
import pathlib

import safetensors.torch
import torch
from torch import nn
from torch.nn import functional

from tests.parity.harness import randomize
from winobench.checkpoints.tokenizer_files import write_clip_tokenizer

WORDS = ["a", "blue", "cube", "left", "of", "photo", "red", "sphere", "the"]


class QuickGELU(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class Block(nn.Module):
    def __init__(self, width, heads, ratio, activation):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential()
        self.mlp.add_module("c_fc", nn.Linear(width, int(width * ratio)))
        self.mlp.add_module("gelu", activation())
        self.mlp.add_module("c_proj", nn.Linear(int(width * ratio), width))

    def forward(self, x, mask):
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class Transformer(nn.Module):
    def __init__(self, width, layers, heads, ratio, activation):
        super().__init__()
        self.resblocks = nn.ModuleList([Block(width, heads, ratio, activation) for _ in range(layers)])

    def forward(self, x, mask=None):
        for block in self.resblocks:
            x = block(x, mask)
        return x


class VisionTransformer(nn.Module):
    def __init__(self, options, embed, activation):
        super().__init__()
        width, patch = options["width"], options["patch_size"]
        self.conv1 = nn.Conv2d(3, width, patch, stride=patch, bias=False)
        self.class_embedding = nn.Parameter(torch.zeros(width))
        self.positional_embedding = nn.Parameter(torch.zeros((options["image_size"] // patch) ** 2 + 1, width))
        self.ln_pre = nn.LayerNorm(width)
        heads, ratio = width // options.get("head_width", 64), options.get("mlp_ratio", 4.0)
        self.transformer = Transformer(width, options["layers"], heads, ratio, activation)
        self.ln_post = nn.LayerNorm(width)
        self.proj = nn.Parameter(torch.zeros(width, embed))

    def forward(self, x):
        x = self.conv1(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_embedding.expand(len(x), 1, -1), x], dim=1) + self.positional_embedding
        return self.ln_post(self.transformer(self.ln_pre(x))[:, 0]) @ self.proj


class Bottleneck(nn.Module):
    def __init__(self, inputs, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, 4 * channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * channels)
        self.stride = stride
        self.downsample = None
        if stride > 1 or inputs != 4 * channels:
            self.downsample = nn.Sequential()
            self.downsample.add_module("-1", nn.AvgPool2d(stride))
            self.downsample.add_module("0", nn.Conv2d(inputs, 4 * channels, 1, bias=False))
            self.downsample.add_module("1", nn.BatchNorm2d(4 * channels))

    def forward(self, x):
        y = functional.relu(self.bn1(self.conv1(x)))
        y = functional.avg_pool2d(functional.relu(self.bn2(self.conv2(y))), self.stride)
        return functional.relu(self.bn3(self.conv3(y)) + (x if self.downsample is None else self.downsample(x)))


class AttentionPool(nn.Module):
    """As OpenAI published it: attention from all positions to all, of which the first is kept."""

    def __init__(self, side, channels, heads, outputs):
        super().__init__()
        self.positional_embedding = nn.Parameter(torch.zeros(side**2 + 1, channels))
        self.k_proj, self.q_proj, self.v_proj = (nn.Linear(channels, channels) for _ in range(3))
        self.c_proj = nn.Linear(channels, outputs)
        self.heads = heads

    def forward(self, x):
        x = x.flatten(2).transpose(1, 2)
        x = torch.cat([x.mean(1, keepdim=True), x], dim=1) + self.positional_embedding
        heads = [layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in self.projections()]
        x = functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        return self.c_proj(x[:, 0])

    def projections(self):
        return self.q_proj, self.k_proj, self.v_proj


class ModifiedResNet(nn.Module):
    def __init__(self, options, embed):
        super().__init__()
        width = options["width"]
        self.conv1 = nn.Conv2d(3, width // 2, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width // 2)
        self.conv2 = nn.Conv2d(width // 2, width // 2, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width // 2)
        self.conv3 = nn.Conv2d(width // 2, width, 3, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(width)
        inputs = width
        for number, depth in enumerate(options["layers"]):
            blocks = []
            for block in range(depth):
                blocks.append(Bottleneck(inputs, width * 2**number, 2 if number and not block else 1))
                inputs = 4 * width * 2**number
            self.add_module(f"layer{number + 1}", nn.Sequential(*blocks))
        heads = 32 * width // options.get("head_width", 64)
        self.attnpool = AttentionPool(options["image_size"] // 32, inputs, heads, embed)

    def forward(self, x):
        for number in (1, 2, 3):
            x = functional.relu(getattr(self, f"bn{number}")(getattr(self, f"conv{number}")(x)))
        x = functional.avg_pool2d(x, 2)
        return self.attnpool(self.layer4(self.layer3(self.layer2(self.layer1(x)))))


class CLIP(nn.Module):
    """Args: ``model_cfg`` of an ``open_clip_config.json``."""

    def __init__(self, options):
        super().__init__()
        activation = QuickGELU if options.get("quick_gelu", False) else nn.GELU
        embed, vision, text = options["embed_dim"], options["vision_cfg"], options["text_cfg"]
        resnet = isinstance(vision["layers"], list)
        self.visual = ModifiedResNet(vision, embed) if resnet else VisionTransformer(vision, embed, activation)
        ratio = text.get("mlp_ratio", 4.0)
        self.transformer = Transformer(text["width"], text["layers"], text["heads"], ratio, activation)
        self.token_embedding = nn.Embedding(text["vocab_size"], text["width"])
        self.positional_embedding = nn.Parameter(torch.zeros(text["context_length"], text["width"]))
        self.ln_final = nn.LayerNorm(text["width"])
        self.text_projection = nn.Parameter(torch.zeros(text["width"], embed))
        self.logit_scale = nn.Parameter(torch.zeros([]))

    def encode_image(self, pixels):
        return self.visual(pixels)

    def encode_text(self, ids):
        x = self.token_embedding(ids) + self.positional_embedding[: ids.shape[1]]
        mask = torch.full((ids.shape[1],) * 2, -torch.inf).triu(1)
        x = self.ln_final(self.transformer(x, mask))
        return x[torch.arange(len(x)), ids.argmax(-1)] @ self.text_projection

    def forward(self, pixels, ids):
        images = functional.normalize(self.encode_image(pixels), dim=-1)
        texts = functional.normalize(self.encode_text(ids), dim=-1)
        return self.logit_scale.exp() * images @ texts.T


def random_clip(options, seed=0):
    """A CLIP of which everything is random, running statistics too, so that nothing swapped can stay unseen."""
    model = randomize(CLIP(options), seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight += 1.0
                module.running_mean.copy_(0.2 * torch.randn(module.running_mean.shape, generator=generator))
                module.running_var.copy_(0.5 + torch.rand(module.running_var.shape, generator=generator))
    return model


def write_folder(folder, model, options, *, preprocess=None, name="open_clip_model.safetensors", tokenizer=True):
    """Writes a model as OpenCLIP publishes it."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    content = {"model_cfg": options, "preprocess_cfg": preprocess if preprocess is not None else {}}
    (folder / "open_clip_config.json").write_text(json.dumps(content))
    state = {key: value.contiguous() for key, value in model.state_dict().items()}
    if name.endswith(".safetensors"):
        safetensors.torch.save_file(state, folder / name)
    else:
        torch.save(state, folder / name)
    if tokenizer:
        write_clip_tokenizer(folder, WORDS, options["text_cfg"]["context_length"])
    return folder


def vocabulary_size(folder):
    """Number of tokens of the tokenizer that ``write_folder`` writes."""
    return write_clip_tokenizer(folder, WORDS, 16)
