"""A small Llama with random weights, and synthetic conversations, for the trials of language models. Needs only Python 3."""
import array
import calendar
import datetime
import json
import os
import random
import struct

SPECIAL = ["<|begin|>", "<|user|>", "<|answer|>", "<|end|>"]
# As short as a template can be, because each token costs time.
TEMPLATE = ("{{ '<|begin|>' }}{% for message in messages %}{{ '<|user|>' if message.role == 'user' else '<|answer|>' }}"
            "{{ message.content + '<|end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|answer|>' }}{% endif %}")
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 128, "intermediate_size": 384,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True,
    "bos_token_id": 0, "eos_token_id": 3, "vocab_size": len(SPECIAL) + 256, "dtype": "float32",
}


def byte_letters():
    """The letters by which byte-level tokenizers write the 256 bytes."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printed]
    return [chr(byte) for byte in printed] + [chr(256 + place) for place in range(len(others))]


def shapes(config):
    """The tensors of the network, each with its shape."""
    width, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    keys = config["num_key_value_heads"] * width // heads
    yield "model.embed_tokens.weight", (config["vocab_size"], width)
    for layer in range(config["num_hidden_layers"]):
        block = f"model.layers.{layer}."
        for name, shape in {
            "input_layernorm": (width,), "self_attn.q_proj": (width, width), "self_attn.k_proj": (keys, width),
            "self_attn.v_proj": (keys, width), "self_attn.o_proj": (width, width), "post_attention_layernorm": (width,),
            "mlp.gate_proj": (inner, width), "mlp.up_proj": (inner, width), "mlp.down_proj": (width, inner),
        }.items():
            yield f"{block}{name}.weight", shape
    yield "model.norm.weight", (width,)


def make_model(folder, **changes):
    """Writes a model with random weights, a tokenizer whose tokens are bytes, and a chat template. Returns its number of parameters."""
    os.makedirs(folder)
    config, draw = CONFIG | changes, random.Random(1)
    header, parts, at = {}, [], 0
    for name, shape in shapes(config):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        drawn = (draw.gauss(0, 0.02) for _ in range(count)) if len(shape) > 1 else [1.0] * count
        parts.append(array.array("f", drawn).tobytes())
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * count]}
        at += 4 * count
    head = json.dumps(header).encode()
    with open(f"{folder}/model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + b"".join(parts))
    special = [dict(id=at, content=text, special=True, single_word=False, lstrip=False, rstrip=False, normalized=False)
               for at, text in enumerate(SPECIAL)]
    vocabulary = {text: at for at, text in enumerate([*SPECIAL, *byte_letters()])}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    write(f"{folder}/tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocabulary, "merges": []}})
    write(f"{folder}/tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": SPECIAL[0], "eos_token": SPECIAL[3], "chat_template": TEMPLATE})
    write(f"{folder}/config.json", config)
    return at // 4


def write(path, value):
    with open(path, "w") as file:
        json.dump(value, file)


def write_rows(path, rows):
    with open(path, "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def date_task(draw):
    """A question about the format of a date, and its answer."""
    day = datetime.date(1900, 1, 1) + datetime.timedelta(draw.randrange(73_000))
    formats = {
        "YYYY-MM-DD": day.isoformat(),
        "DD.MM.YYYY": f"{day:%d.%m.%Y}",
        "D Month YYYY": f"{day.day} {calendar.month_name[day.month]} {day.year}",
    }
    given, wanted = draw.sample(sorted(formats), 2)
    return f"{formats[given]} to {wanted}", formats[wanted]


def unit_task(draw):
    """A length, weight or volume in another unit, and its answer."""
    large, small, factor = draw.choice(
        [("km", "m", 1000), ("m", "cm", 100), ("cm", "mm", 10), ("kg", "g", 1000), ("t", "kg", 1000), ("l", "ml", 1000), ("l", "dl", 10)])
    amount = draw.randrange(1, 10_000)
    if draw.random() < 0.5:
        return f"{amount} {large} to {small}", f"{amount * factor} {small}"
    return f"{amount * factor} {small} to {large}", f"{amount} {large}"


def distinct(task, count, seed):
    """This many different questions with their answers."""
    draw, found = random.Random(seed), {}
    while len(found) < count:
        question, answer = task(draw)
        found[question] = answer
    return list(found.items())


def long_chats(count, letters, seed):
    """Conversations of random words. `letters` is the range of their lengths."""
    draw = random.Random(seed)
    words = ["amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath", "inlet", "jetty"]

    def text(length):
        chosen = ""
        while len(chosen) < length:
            chosen += draw.choice(words) + " "
        return chosen[:length]

    lengths = (draw.randint(*letters) for _ in range(count))
    return [{"messages": [{"role": "user", "content": text(length // 3)}, {"role": "assistant", "content": text(length - length // 3)}]}
            for length in lengths]
