"""Ebb's text encoder, for PyTorch and transformers: norms before the branches, and the mean of the tokens tells the class. It is
written beside the weights because transformers has no such network of its own:

    AutoModelForSequenceClassification.from_pretrained(FOLDER, trust_remote_code=True)
"""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput


class EbbEncoderConfig(PretrainedConfig):
    model_type = "ebb_text_encoder"

    def __init__(
        self,
        vocab_size=8000,
        max_position_embeddings=64,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=512,
        layer_norm_eps=1e-5,
        **rest,
    ):
        self.vocab_size, self.max_position_embeddings, self.hidden_size = vocab_size, max_position_embeddings, hidden_size
        self.num_hidden_layers, self.num_attention_heads = num_hidden_layers, num_attention_heads
        self.intermediate_size, self.layer_norm_eps = intermediate_size, layer_norm_eps
        super().__init__(**rest)


class Bias(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(width))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, self.heads = config.hidden_size, config.num_attention_heads
        self.norm1, self.norm2 = (nn.LayerNorm(width, eps=config.layer_norm_eps) for _ in range(2))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        # A bias of keys would change no attention.
        self.query, self.value = Bias(width), Bias(width)
        self.projection = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, config.intermediate_size), nn.Linear(config.intermediate_size, width)

    def forward(self, x, seen):
        query, key, value = self.qkv(self.norm1(x)).chunk(3, -1)
        cut = lambda y: y.view(*y.shape[:2], self.heads, -1).transpose(1, 2)
        query, key, value = cut(query + self.query.bias), cut(key), cut(value + self.value.bias)
        y = F.scaled_dot_product_attention(query, key, value, attn_mask=seen[:, None, None, :])
        x = x + self.projection(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class EbbEncoderForSequenceClassification(PreTrainedModel):
    config_class = EbbEncoderConfig

    def __init__(self, config):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.positions = nn.Parameter(torch.zeros(config.max_position_embeddings, config.hidden_size))
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.head = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(self, input_ids, attention_mask=None, labels=None, **_):
        seen = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        seen = seen.bool()
        x = self.embedding(input_ids) + self.positions[: input_ids.shape[1]]
        for block in self.blocks:
            x = block(x, seen)
        counted = seen.unsqueeze(-1).to(x.dtype)
        logits = self.head((self.norm(x) * counted).sum(1) / counted.sum(1))
        loss = None if labels is None else F.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)
