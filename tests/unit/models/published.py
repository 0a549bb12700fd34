"""Writes tiny random checkpoints in the layout of the published SDAR ones, untidiness included."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers.pre_tokenizers import ByteLevel

from dice.models.sdar import SdarConfig, SdarForCausalLM

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<|MASK|>")
BYTES = 256
ENDOFTEXT, IM_START, IM_END, THINK, _, MASK = range(BYTES, BYTES + len(SPECIAL))
VOCABULARY = 272
"""More rows than tokens, as published."""

CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
CONFIG: dict[str, Any] = {
    "architectures": ["SDARForCausalLM"],
    "auto_map": {
        "AutoConfig": "configuration_sdar.SDARConfig",
        "AutoModelForCausalLM": "modeling_sdar.SDARForCausalLM",
    },
    "attention_bias": False,
    "attention_dropout": 0.0,
    "attn_implementation": "flex_attention",
    "block_size": 4,
    "bos_token_id": ENDOFTEXT,
    "debug": False,
    "eos_token_id": ENDOFTEXT,
    "fuse_cross_entropy": True,
    "head_dim": 8,
    "hidden_act": "silu",
    "hidden_size": 32,
    "initializer_range": 0.3,
    "intermediate_size": 48,
    "mask_token_id": MASK,
    "max_position_embeddings": 8192,
    "max_window_layers": 2,
    "model_type": "sdar",
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.52.4",
    "use_cache": False,
    "use_sliding_window": False,
    "vocab_size": VOCABULARY,
}
GENERATION: dict[str, Any] = {
    "bos_token_id": ENDOFTEXT,
    "do_sample": True,
    "eos_token_id": [IM_END, ENDOFTEXT],
    "pad_token_id": ENDOFTEXT,
    "temperature": 0.6,
    "top_k": 20,
    "top_p": 0.95,
    "transformers_version": "4.51.0",
}


def write_checkpoint(folder: Path, *, tied: bool = False, shards: int = 3) -> SdarForCausalLM:
    """Fills `folder`; returns the model whose weights lie there, in bfloat16."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", {**CONFIG, "tie_word_embeddings": tied})
    write_json(folder / "generation_config.json", GENERATION)
    write_tokenizer(folder)
    for name in ("configuration_sdar", "modeling_sdar", "tokenization_qwen2"):
        (folder / f"{name}.py").write_text("raise RuntimeError('code of a checkpoint was run')\n")
    torch.manual_seed(0)
    model = SdarForCausalLM(SdarConfig.from_dict(json.loads((folder / "config.json").read_text())))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:  # norms start at one: make them matter
                parameter.uniform_(0.5, 1.5)
    model = model.to(torch.bfloat16).eval()
    state = model.state_dict()
    if tied:
        del state["lm_head.weight"]
    write_shards(folder, state, shards)
    return model


def write_shards(folder: Path, tensors: dict[str, torch.Tensor], shards: int) -> None:
    names = sorted(tensors)
    weight_map: dict[str, str] = {}
    for index in range(shards):
        file = f"model-{index + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name].contiguous() for name in names[index::shards]}
        save_file(part, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    size = sum(one.numel() * one.element_size() for one in tensors.values())
    index_content = {"metadata": {"total_size": size}, "weight_map": weight_map}
    write_json(folder / "model.safetensors.index.json", index_content)


def write_tokenizer(folder: Path) -> None:
    """Byte-level BPE without merges; the mask token has another name in every second file."""
    vocabulary = {symbol: index for index, symbol in enumerate(sorted(ByteLevel.alphabet()))}
    write_json(folder / "vocab.json", vocabulary)
    (folder / "merges.txt").write_text("#version: 0.2\n")
    write_json(
        folder / "added_tokens.json",
        {t.replace("<|MASK|>", "<MASK>"): BYTES + i for i, t in enumerate(SPECIAL)},
    )
    eos = {"content": "<|endoftext|>", "lstrip": False, "normalized": False, "rstrip": False}
    write_json(
        folder / "special_tokens_map.json",
        {
            "additional_special_tokens": ["<|im_start|>", "<|im_end|>", "<MASK>"],
            "eos_token": eos,
            "pad_token": eos,
        },
    )
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    decoder = {
        str(BYTES + index): {
            "content": token,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": index < 3,
        }
        for index, token in enumerate(SPECIAL)
    }
    write_json(
        folder / "tokenizer_config.json",
        {
            "add_bos_token": False,
            "add_prefix_space": False,
            "added_tokens_decoder": decoder,
            "additional_special_tokens": ["<|im_start|>", "<|im_end|>", "<|MASK|>"],
            "auto_map": {"AutoTokenizer": ["tokenization_qwen2.Qwen2Tokenizer", None]},
            "bos_token": None,
            "chat_template": CHAT_TEMPLATE,
            "clean_up_tokenization_spaces": False,
            "eos_token": "<|endoftext|>",
            "errors": "replace",
            "mask_token": "<|MASK|>",
            "model_max_length": 131072,
            "pad_token": "<|endoftext|>",
            "split_special_tokens": False,
            "tokenizer_class": "Qwen2Tokenizer",
            "unk_token": None,
        },
    )


def write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")
