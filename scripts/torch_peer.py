#!/usr/bin/env python3
"""Trains one workload of `ebb bench` with PyTorch, and prints the time of a step and the memory as one line of JSON.

  scripts/torch_peer.py --workload gpt --batch 16 [--device cuda] [--steps 12] [--warmup 3] [--threads 2]

The networks have the sizes of Ebb's workloads, the optimizer is AdamW, and each step trains on the same made-up batch. ResNets have
GroupNorm with 32 groups, as Ebb has; `--norm batch` uses BatchNorm instead. ConvNeXt has LayerNorm, as published. Started by
torchrun, each process trains on a GPU of its own with `--batch` samples (DistributedDataParallel), and the first one prints. Needs
torch; on Linux and macOS. Times are in seconds, memory in MB of 2^20 bytes."""
import argparse
import json
import os
import resource
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

IMAGE, IMAGE_CLASSES, TEXT_CLASSES = 224, 101, 4
LANGUAGE_MODELS = {
    "gpt": dict(tokens=256, vocabulary=256, width=384, depth=6, heads=6),
    "gpt125m": dict(tokens=512, vocabulary=16384, width=768, depth=12, heads=12),
}
TEXT_ENCODER = dict(tokens=128, vocabulary=8192, width=256, depth=4, heads=4)
VIT_TINY = dict(patch=16, width=192, depth=12, heads=3)
RESNETS = {"resnet18": ([64, 128, 256, 512], [2, 2, 2, 2], False), "resnet50": ([256, 512, 1024, 2048], [3, 4, 6, 3], True)}
CONVNEXT_TINY = ([96, 192, 384, 768], [3, 3, 9, 3])
WORKLOADS = [*LANGUAGE_MODELS, "resnet18", "resnet50", "convnext_tiny", "vit_tiny", "bert_mini"]


class TransformerBlock(nn.Module):
    """Pre-norm block with an MLP of four times the width."""

    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def attend(self, x):
        samples, tokens, width = x.shape
        parts = self.qkv(x).chunk(3, dim=2)
        q, k, v = (part.reshape(samples, tokens, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.projection(mixed.transpose(1, 2).reshape(samples, tokens, width))

    def forward(self, x):
        x = x + self.attend(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Network(nn.Module):
    """A network whose blocks can be recomputed in the backward pass."""

    def __init__(self):
        super().__init__()
        self.recompute = False

    def run_blocks(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return x


class TextNetwork(Network):
    """A language model whose output weights are its embeddings or, with `classes`, a text encoder with the mean token."""

    def __init__(self, tokens, vocabulary, width, depth, heads, classes=0):
        super().__init__()
        self.embedding, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(TransformerBlock(width, heads, causal=not classes) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes) if classes else None

    def forward(self, ids):
        x = self.embedding(ids) + self.positions.weight[:ids.shape[1]]
        x = self.norm(self.run_blocks(x))
        if self.head is None:
            return F.linear(x, self.embedding.weight).flatten(0, 1)
        return self.head(x.mean(dim=1))


class VisionTransformer(Network):
    def __init__(self, patch, width, depth, heads):
        super().__init__()
        self.patches = nn.Conv2d(3, width, kernel_size=patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, (IMAGE // patch) ** 2 + 1, width))
        self.blocks = nn.ModuleList(TransformerBlock(width, heads, causal=False) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, IMAGE_CLASSES)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], dim=1) + self.positions
        return self.head(self.norm(self.run_blocks(x)[:, 0]))


def convolution(inputs, outputs, kernel, stride=1):
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


class ResidualBlock(nn.Module):
    """Two convolutions of 3x3, or a bottleneck: 1x1, a strided 3x3, and 1x1."""

    def __init__(self, inputs, outputs, stride, bottleneck, norm):
        super().__init__()
        inner = outputs // 4 if bottleneck else outputs
        relu = nn.ReLU(inplace=True)
        if bottleneck:
            layers = [convolution(inputs, inner, 1), norm(inner), relu, convolution(inner, inner, 3, stride), norm(inner), relu,
                      convolution(inner, outputs, 1), norm(outputs)]
        else:
            layers = [convolution(inputs, inner, 3, stride), norm(inner), relu, convolution(inner, outputs, 3), norm(outputs)]
        self.branch = nn.Sequential(*layers)
        changes = stride != 1 or inputs != outputs
        self.shortcut = nn.Sequential(convolution(inputs, outputs, 1, stride), norm(outputs)) if changes else nn.Identity()

    def forward(self, x):
        return F.relu(self.branch(x) + self.shortcut(x), inplace=True)


class ResNet(Network):
    def __init__(self, widths, depths, bottleneck, norm):
        super().__init__()
        self.stem = nn.Sequential(convolution(3, 64, 7, 2), norm(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1))
        blocks, inputs = [], 64
        for stage, (width, depth) in enumerate(zip(widths, depths)):
            for block in range(depth):
                stride = 2 if stage > 0 and block == 0 else 1
                blocks.append(ResidualBlock(inputs, width, stride, bottleneck, norm))
                inputs = width
        self.blocks, self.head = nn.ModuleList(blocks), nn.Linear(inputs, IMAGE_CLASSES)

    def forward(self, images):
        return self.head(self.run_blocks(self.stem(images)).mean(dim=(2, 3)))


class ChannelNorm(nn.Module):
    """LayerNorm over the channels of [samples, channels, height, width]."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=1e-6)

    def forward(self, x):
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    def __init__(self, inputs, width, halves):
        super().__init__()
        self.downsample = nn.Sequential(ChannelNorm(inputs), nn.Conv2d(inputs, width, 2, stride=2)) if halves else nn.Identity()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.mlp = nn.Sequential(nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.scale = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x):
        x = self.downsample(x)
        y = self.scale * self.mlp(self.depthwise(x).permute(0, 2, 3, 1))
        return x + y.permute(0, 3, 1, 2)


class ConvNext(Network):
    def __init__(self, widths, depths):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, widths[0], 4, stride=4), ChannelNorm(widths[0]))
        blocks, inputs = [], widths[0]
        for stage, (width, depth) in enumerate(zip(widths, depths)):
            for block in range(depth):
                blocks.append(ConvNextBlock(inputs, width, halves=stage > 0 and block == 0))
                inputs = width
        self.blocks = nn.ModuleList(blocks)
        self.norm, self.head = nn.LayerNorm(inputs, eps=1e-6), nn.Linear(inputs, IMAGE_CLASSES)

    def forward(self, images):
        return self.head(self.norm(self.run_blocks(self.stem(images)).mean(dim=(2, 3))))


def build(workload, norm):
    if workload in LANGUAGE_MODELS:
        model = TextNetwork(**LANGUAGE_MODELS[workload])
    elif workload == "bert_mini":
        model = TextNetwork(**TEXT_ENCODER, classes=TEXT_CLASSES)
    elif workload == "vit_tiny":
        model = VisionTransformer(**VIT_TINY)
    elif workload == "convnext_tiny":
        model = ConvNext(*CONVNEXT_TINY)
    else:
        model = ResNet(*RESNETS[workload], norm=nn.BatchNorm2d if norm == "batch" else lambda width: nn.GroupNorm(32, width))
    for layer in model.modules():
        if isinstance(layer, (nn.Linear, nn.Embedding)):
            nn.init.normal_(layer.weight, std=0.02)
        if isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.bias)
    return model


def made_up_batch(workload, samples):
    """Inputs and targets with a pattern to learn, on the CPU."""
    if workload in LANGUAGE_MODELS:
        # Each token follows from the one before it, except for one in eight, which is random.
        shape = LANGUAGE_MODELS[workload]
        tokens, vocabulary = shape["tokens"], shape["vocabulary"]
        ids = torch.randint(vocabulary, (samples, tokens + 1))
        is_random = torch.rand(samples, tokens + 1) < 0.125
        for i in range(1, tokens + 1):
            ids[:, i] = torch.where(is_random[:, i], ids[:, i], (5 * ids[:, i - 1] + 17) % vocabulary)
        return ids[:, :-1].contiguous(), ids[:, 1:].flatten()
    if workload == "bert_mini":
        # The class decides which quarter of the vocabulary is more frequent.
        vocabulary = TEXT_ENCODER["vocabulary"]
        targets = torch.randint(TEXT_CLASSES, (samples,))
        ids = torch.randint(vocabulary, (samples, TEXT_ENCODER["tokens"]))
        frequent = ids // TEXT_CLASSES + targets[:, None] * (vocabulary // TEXT_CLASSES)
        return torch.where(torch.rand(ids.shape) < 0.3, frequent, ids), targets
    # Noise whose red channel is shifted by the class.
    targets = torch.randint(IMAGE_CLASSES, (samples,))
    images = torch.randn(samples, 3, IMAGE, IMAGE)
    images[:, 0] += (4 * targets / IMAGE_CLASSES - 2)[:, None, None]
    return images, targets


def peak_process_mb():
    """The largest footprint of this process so far."""
    scale = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale


def wait_for(device):
    if device.type == "cuda":
        torch.cuda.synchronize()
    elif device.type == "mps":
        torch.mps.synchronize()


def train(args, device):
    """Trains and returns the network, the seconds of each step, and the loss of each step."""
    model = build(args.workload, args.norm).to(device)
    model.recompute = args.recompute
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    forward = torch.compile(model) if args.compile else model
    if torch.distributed.is_initialized():
        forward = nn.parallel.DistributedDataParallel(forward, device_ids=[device.index])
    inputs, targets = made_up_batch(args.workload, args.batch)
    micro, per_sample = args.micro or args.batch, len(targets) // args.batch
    half = {"bf16": torch.bfloat16, "f16": torch.float16}.get(args.precision)
    scaler = torch.amp.GradScaler(device.type, enabled=args.precision == "f16")
    seconds, losses = [], []
    for _ in range(args.warmup + args.steps):
        begun, loss_of_step = time.perf_counter(), 0.0
        optimizer.zero_grad(set_to_none=True)
        for first in range(0, args.batch, micro):
            x = inputs[first:first + micro].to(device)
            y = targets[first * per_sample:(first + micro) * per_sample].to(device)
            with torch.autocast(device.type, dtype=half, enabled=half is not None):
                loss = F.cross_entropy(forward(x), y, reduction="sum") / len(targets)
            scaler.scale(loss).backward()
            loss_of_step += loss.item()
        scaler.step(optimizer)
        scaler.update()
        wait_for(device)
        seconds.append(time.perf_counter() - begun)
        losses.append(loss_of_step)
    return model, seconds[args.warmup:], losses


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", required=True, choices=WORKLOADS)
    parser.add_argument("--batch", type=int, default=8, help="samples per step")
    parser.add_argument("--micro", type=int, default=0, help="samples per micro-batch; 0 is the whole batch")
    parser.add_argument("--steps", type=int, default=6, help="steps that are measured")
    parser.add_argument("--warmup", type=int, default=2, help="steps before them")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or mps")
    parser.add_argument("--threads", type=int, default=2, help="threads on the CPU")
    parser.add_argument("--precision", choices=["f32", "bf16", "f16"], default="f32", help="type of products (automatic mixed precision)")
    parser.add_argument("--tf32", choices=["default", "on", "off"], default="default",
                        help="TF32 for f32 on CUDA; by default, PyTorch uses it for convolutions only")
    parser.add_argument("--norm", choices=["group", "batch"], default="group", help="norm of the ResNets")
    parser.add_argument("--recompute", action="store_true", help="recompute the activations of all blocks")
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    args = parser.parse_args()
    if min(args.batch, args.steps, args.threads) < 1 or args.micro < 0 or args.warmup < 0:
        parser.error("--batch, --steps and --threads are at least 1, --micro and --warmup at least 0")
    return args


def main():
    args = arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    if args.tf32 != "default":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.tf32 == "on"
    device = torch.device(args.device)
    rank = int(os.environ.get("RANK", "0"))
    if "RANK" in os.environ:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        torch.distributed.init_process_group("nccl")
    model, seconds, losses = train(args, device)
    row = {"program": "torch", "version": torch.__version__, "workload": args.workload, "batch": args.batch,
           "micro": args.micro or args.batch, "device": args.device, "precision": args.precision, "tf32": args.tf32,
           "recompute": args.recompute, "compile": args.compile, "parameters": sum(p.numel() for p in model.parameters()),
           "steps": args.steps, "seconds_per_step": round(statistics.median(seconds), 5), "fastest": round(min(seconds), 5),
           "slowest": round(max(seconds), 5), "peak_process_mb": round(peak_process_mb(), 1),
           "first_loss": round(losses[0], 5), "last_loss": round(losses[-1], 5)}
    if args.workload in RESNETS:
        row["norm"] = args.norm
    if device.type == "cpu":
        row["threads"] = args.threads
    if device.type == "cuda":
        row["peak_device_mb"] = round(torch.cuda.max_memory_allocated() / 2**20, 1)
    if torch.distributed.is_initialized():
        row["processes"] = torch.distributed.get_world_size()
        torch.distributed.destroy_process_group()
    if rank == 0:
        print(json.dumps(row), flush=True)


main()
