#!/usr/bin/env python3
"""Classifies texts as Ebb does: with the network and the n-gram baseline of a run together.

    python3 ebb_classifier.py "a text" "another text"

    from ebb_classifier import Classifier
    classifier = Classifier("FOLDER")
    classifier.probabilities("a text")  # {"ham": 0.98, "spam": 0.02}

Needs the Python packages transformers and torch. If the folder contains model.onnx, it needs numpy,
onnxruntime and tokenizers instead. If ebb_mixture.json has a baseline_share of 1, it needs nothing
but Python.
"""
import json
import math
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from ngram_baseline import Baseline


def token_ids(folder, most):
    """A function that tokenizes a text to at most this many tokens."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()

    def ids(text):
        found = tokenizer.encode(text).ids or [0]
        return found if len(found) <= most else found[: most - 1] + found[-1:]

    return ids


def onnx_scores(folder, ids):
    """A function that computes the class scores of a text with model.onnx."""
    import numpy
    import onnxruntime

    path = os.path.join(folder, "model.onnx")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def scores(text):
        row = numpy.array([ids(text)], dtype=numpy.int64)
        inputs = {"input_ids": row, "attention_mask": numpy.ones_like(row)}
        return session.run(["logits"], inputs)[0][0].astype(float).tolist()

    return scores


def transformers_scores(folder, ids):
    """A function that computes the class scores of a text with PyTorch."""
    import torch
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True).eval()

    def scores(text):
        row = torch.tensor([ids(text)])
        with torch.no_grad():
            return model(input_ids=row, attention_mask=torch.ones_like(row)).logits[0].tolist()

    return scores


def log_probabilities(scores):
    highest = max(scores)
    total = highest + math.log(sum(math.exp(score - highest) for score in scores))
    return [score - total for score in scores]


class Classifier:
    def __init__(self, folder=HERE):
        with open(os.path.join(folder, "ebb_mixture.json")) as file:
            mixture = json.load(file)
        self.share = mixture["baseline_share"]
        self.baseline = Baseline(os.path.join(folder, "baseline.safetensors"))
        if self.share < 1:
            ids = token_ids(folder, mixture["tokens"])
            is_onnx = os.path.exists(os.path.join(folder, "model.onnx"))
            self.network = (onnx_scores if is_onnx else transformers_scores)(folder, ids)

    def probabilities(self, text):
        """The probability of each class, by name."""
        scores = log_probabilities(self.baseline.scores(text))
        if self.share < 1:
            network = log_probabilities(self.network(text))
            pairs = zip(network, scores)
            scores = [(1 - self.share) * a + self.share * b for a, b in pairs]
        mixed = log_probabilities(scores)
        return {name: math.exp(score) for name, score in zip(self.baseline.classes, mixed)}


if __name__ == "__main__":
    classifier = Classifier()
    for text in sys.argv[1:]:
        ranked = sorted(classifier.probabilities(text).items(), key=lambda item: -item[1])
        print(f"{text}: " + ", ".join(f"{name} {100 * value:.1f} %" for name, value in ranked[:3]))
