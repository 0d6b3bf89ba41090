#!/usr/bin/env python3
"""Predicts for images as Ebb does: with the network and the baseline of a run together.

    python3 ebb_predictor.py IMAGE [IMAGE ...]

    from ebb_predictor import Predictor
    predictor = Predictor("FOLDER")
    predictor.probabilities("cat.jpg")  # {"cat": 0.98, "dog": 0.02}
    predictor.targets("plate.jpg")  # {"calories": 312.4}, in the units of the columns

Needs the Python packages numpy, Pillow, transformers and torch. If the folder contains model.onnx,
it needs onnxruntime instead of the last two. If ebb_mixture.json has a baseline_share of 1, it needs
numpy and Pillow only.
"""
import json
import os
import sys

import numpy

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from image_baseline import Baseline, center, show


def read_json(folder, name):
    with open(os.path.join(folder, name)) as file:
        return json.load(file)


def onnx_outputs(folder, columns):
    """A function that computes the outputs of the network with model.onnx."""
    import onnxruntime

    path = os.path.join(folder, "model.onnx")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def outputs(pixels):
        found = dict(zip(names, session.run(names, {"pixel_values": pixels})))
        # The file gives targets in the units of their columns.
        targets = found.get("numbers", numpy.zeros((1, 0)))[0]
        pairs = zip(targets, columns)
        targets = [(value - column["mean"]) / column["deviation"] for value, column in pairs]
        return numpy.concatenate([found.get("logits", numpy.zeros((1, 0)))[0], targets])

    return outputs


def transformers_outputs(folder):
    """A function that computes the outputs of the network with PyTorch."""
    import torch
    from transformers import AutoModelForImageClassification

    model = AutoModelForImageClassification.from_pretrained(folder, trust_remote_code=True).eval()

    def outputs(pixels):
        with torch.no_grad():
            return model(pixel_values=torch.tensor(pixels)).logits[0].numpy()

    return outputs


def log_probabilities(scores):
    highest = scores.max()
    return scores - highest - numpy.log(numpy.exp(scores - highest).sum())


class Predictor:
    def __init__(self, folder=HERE):
        mixture = read_json(folder, "ebb_mixture.json")
        self.share, self.size = mixture["baseline_share"], mixture["image_size"]
        self.baseline = Baseline(os.path.join(folder, "baseline.safetensors"), self.size)
        self.classes, self.columns = self.baseline.classes, self.baseline.columns
        if self.share < 1:
            normalization = read_json(folder, "preprocessor_config.json")
            self.mean = numpy.array(normalization["image_mean"], numpy.float32)
            self.deviation = numpy.array(normalization["image_std"], numpy.float32)
            is_onnx = os.path.exists(os.path.join(folder, "model.onnx"))
            self.network = onnx_outputs(folder, self.columns) if is_onnx else transformers_outputs(folder)

    def outputs(self, path):
        """The log-probability of each class, then the targets in standard deviations."""
        pixels, count = center(path, self.size), len(self.classes)
        baseline = self.baseline.outputs(pixels)
        if self.share >= 1:
            return baseline
        pixels = (pixels.astype(numpy.float32) / 255 - self.mean) / self.deviation
        network = self.network(pixels.transpose(2, 0, 1)[None].astype(numpy.float32))
        if count:
            scores = [log_probabilities(outputs[:count]) for outputs in (network, baseline)]
            network, baseline = (
                numpy.concatenate([scores, outputs[count:]])
                for scores, outputs in zip(scores, (network, baseline))
            )
        return (1 - self.share) * network + self.share * baseline

    def probabilities(self, path):
        """The probability of each class, by name."""
        scores = numpy.exp(log_probabilities(self.outputs(path)[: len(self.classes)]))
        return {name: float(value) for name, value in zip(self.classes, scores)}

    def targets(self, path):
        """Each regression target in the unit of its column, by name."""
        pairs = zip(self.columns, self.outputs(path)[len(self.classes) :])
        return {column["name"]: column["mean"] + column["deviation"] * float(value) for column, value in pairs}


if __name__ == "__main__":
    show(Predictor(), sys.argv[1:])
