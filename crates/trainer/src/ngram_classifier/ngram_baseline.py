#!/usr/bin/env python3
"""Classifies texts with an n-gram baseline that Ebb trained. Needs Python 3.8 and nothing else.

    python3 ngram_baseline.py "a text" "another text"

    from ngram_baseline import Baseline
    baseline = Baseline("baseline.safetensors")
    baseline.probabilities("a text")  # {"ham": 0.98, "spam": 0.02}

Letters of scripts whose vowels are combining marks (such as Devanagari) are split differently than
in Ebb, so that the probabilities of such texts may differ.
"""
import array
import bisect
import json
import math
import os
import struct
import sys

MAX_TEXT_BYTES = 16 << 10
MASK = (1 << 64) - 1


def ngram_hash(kind, ngram):
    value = 0xCBF29CE484222325 ^ (kind * 0x9E3779B97F4A7C15 & MASK)
    for byte in ngram.encode():
        value = (value ^ byte) * 0x100000001B3 & MASK
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & MASK
    return (value ^ (value >> 31)) >> 32


def split_words(text):
    words = [""]
    for character in text:
        if character.isalnum() or character in "'_":
            words[-1] += character
            continue
        if not character.isspace():
            words.append(character)
        words.append("")
    return [word for word in words if word]


def ngrams(text):
    """The hashes of the n-grams of words, and of characters inside words, with their weights."""
    text = text.encode()[:MAX_TEXT_BYTES].decode(errors="ignore").lower()
    words, counts = split_words(text), ({}, {})
    for start in range(len(words)):
        for length in range(1, min(2, len(words) - start) + 1):
            key = ngram_hash(length, " ".join(words[start : start + length]))
            counts[0][key] = counts[0].get(key, 0) + 1
    for word in words:
        padded = f" {word} "
        for start in range(len(padded)):
            for length in range(1, min(4, len(padded) - start) + 1):
                key = ngram_hash(0, padded[start : start + length])
                counts[1][key] = counts[1].get(key, 0) + 1
    return [{key: 1 + math.log(count) for key, count in kind.items()} for kind in counts]


def with_norm_one(features):
    norm = math.sqrt(sum(value * value for _, value in features))
    return [(row, value / norm) for row, value in features]


class Baseline:
    def __init__(self, path):
        with open(path, "rb") as file:
            size = struct.unpack("<Q", file.read(8))[0]
            header, data = json.loads(file.read(size)), file.read()

        def tensor(name, code):
            start, end = header[name]["data_offsets"]
            values = array.array(code, data[start:end])
            if sys.byteorder == "big":
                values.byteswap()
            return values

        description = json.loads(header["__metadata__"]["ebb_baseline"])
        if description["version"] != 1:
            raise ValueError("another version of Ebb wrote this baseline; export it again")
        self.classes = description["classes"]
        self.hashes, self.weights, self.bias = tensor("hashes", "I"), tensor("weights", "f"), tensor("bias", "f")

    def row(self, key):
        row = bisect.bisect_left(self.hashes, key)
        return row if row < len(self.hashes) and self.hashes[row] == key else None

    def scores(self, text):
        """The logarithm of the probability of each class, plus a constant."""
        features = []
        for kind in ngrams(text):
            rows = ((self.row(key), value) for key, value in kind.items())
            features += with_norm_one([(row, value) for row, value in rows if row is not None])
        scores, classes = list(self.bias), len(self.classes)
        for row, value in with_norm_one(features):
            for label in range(classes):
                scores[label] += value * self.weights[row * classes + label]
        return scores

    def probabilities(self, text):
        """The probability of each class, by name."""
        scores = self.scores(text)
        powers = [math.exp(score - max(scores)) for score in scores]
        return {name: power / sum(powers) for name, power in zip(self.classes, powers)}


if __name__ == "__main__":
    baseline = Baseline(os.path.join(os.path.dirname(os.path.abspath(__file__)), "baseline.safetensors"))
    for text in sys.argv[1:]:
        ranked = sorted(baseline.probabilities(text).items(), key=lambda item: -item[1])
        print(f"{text}: " + ", ".join(f"{name} {100 * value:.1f} %" for name, value in ranked[:3]))
