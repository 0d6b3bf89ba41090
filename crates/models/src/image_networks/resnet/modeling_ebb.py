"""Ebb's residual network with GroupNorm, for PyTorch and transformers. It is written beside the weights because transformers has
no such network of its own:

    AutoModelForImageClassification.from_pretrained(FOLDER, trust_remote_code=True)
"""

import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import ImageClassifierOutputWithNoAttention


class EbbResNetConfig(PretrainedConfig):
    model_type = "ebb_resnet"

    def __init__(self, stem="plain", channels=32, blocks=((32, 2),), groups=8, hidden_act="gelu", branch="basic", **rest):
        self.stem, self.channels, self.blocks, self.groups, self.hidden_act = stem, channels, blocks, groups, hidden_act
        self.branch = branch
        super().__init__(**rest)


def conv(inputs, outputs, kernel, stride):
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


class Shortcut(nn.Module):
    def __init__(self, inputs, outputs, stride, groups):
        super().__init__()
        self.conv, self.norm = conv(inputs, outputs, 1, stride), nn.GroupNorm(groups, outputs)

    def forward(self, x):
        return self.norm(self.conv(x))


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride, groups, act):
        super().__init__()
        self.conv1, self.norm1 = conv(inputs, outputs, 3, stride), nn.GroupNorm(groups, outputs)
        self.conv2, self.norm2 = conv(outputs, outputs, 3, 1), nn.GroupNorm(groups, outputs)
        changes = stride != 1 or inputs != outputs
        self.shortcut = Shortcut(inputs, outputs, stride, groups) if changes else nn.Identity()
        self.act = act

    def forward(self, x):
        y = self.norm2(self.conv2(self.act(self.norm1(self.conv1(x)))))
        return self.act(y + self.shortcut(x))


class Bottleneck(nn.Module):
    def __init__(self, inputs, outputs, stride, groups, act):
        super().__init__()
        inner = outputs // 4
        self.conv1, self.norm1 = conv(inputs, inner, 1, 1), nn.GroupNorm(groups, inner)
        self.conv2, self.norm2 = conv(inner, inner, 3, stride), nn.GroupNorm(groups, inner)
        self.conv3, self.norm3 = conv(inner, outputs, 1, 1), nn.GroupNorm(groups, outputs)
        changes = stride != 1 or inputs != outputs
        self.shortcut = Shortcut(inputs, outputs, stride, groups) if changes else nn.Identity()
        self.act = act

    def forward(self, x):
        y = self.act(self.norm1(self.conv1(x)))
        y = self.act(self.norm2(self.conv2(y)))
        return self.act(self.norm3(self.conv3(y)) + self.shortcut(x))


class Stem(nn.Module):
    def __init__(self, config, act):
        super().__init__()
        pooled = config.stem == "pooled"
        self.conv = conv(3, config.channels, 7 if pooled else 3, 2 if pooled else 1)
        self.norm = nn.GroupNorm(config.groups, config.channels)
        self.act = act
        self.pool = nn.MaxPool2d(3, 2, 1) if pooled else nn.Identity()

    def forward(self, x):
        return self.pool(self.act(self.norm(self.conv(x))))


class EbbResNetForImageClassification(PreTrainedModel):
    config_class = EbbResNetConfig
    main_input_name = "pixel_values"

    def __init__(self, config):
        super().__init__(config)
        act = nn.GELU(approximate="tanh") if config.hidden_act == "gelu" else nn.ReLU()
        self.stem = Stem(config, act)
        inputs = [config.channels] + [outputs for outputs, _ in config.blocks]
        block = Bottleneck if config.branch == "bottleneck" else Block
        self.blocks = nn.ModuleList(
            block(i, outputs, stride, config.groups, act) for i, (outputs, stride) in zip(inputs, config.blocks)
        )
        self.head = nn.Linear(inputs[-1], config.num_labels)
        self.post_init()

    def forward(self, pixel_values, labels=None, **_):
        x = self.stem(pixel_values)
        for block in self.blocks:
            x = block(x)
        logits = self.head(x.mean((2, 3)))
        loss = None if labels is None else torch.nn.functional.cross_entropy(logits, labels)
        return ImageClassifierOutputWithNoAttention(loss=loss, logits=logits)
