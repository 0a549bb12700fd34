"""Train a byte-level BPE tokenizer for Python and CUDA source.

What the pieces are decides what a small model can copy: digits of numbers stand alone, so a constant is
the same tokens in Python and in C; a newline and the indentation behind it are one piece; identifiers
fall apart at underscores, a short number at the end staying with its word (`float4`, `dim1`). Any text
survives encoding and decoding unchanged, special tokens excepted.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

PAD_TOKEN = "<|pad|>"
MASK_TOKEN = "<|mask|>"
STOP_TOKEN = "<|endoftext|>"
PROBLEM_TOKEN = "<|problem|>"
KERNEL_TOKEN = "<|kernel|>"
SPECIAL_TOKENS = (PAD_TOKEN, MASK_TOKEN, STOP_TOKEN, PROBLEM_TOKEN, KERNEL_TOKEN)

_PIECES = "|".join(
    (
        r" ?#include <[^>\n]+>",
        r" ?\(?[a-z]+\d*_t(?![A-Za-z_\d])\)?",  # int64_t, also as a cast
        r" ?[a-z]+::[A-Za-z]+(?:_[a-z]+)*",  # torch::Tensor
        r" ?(?:blockIdx|threadIdx|blockDim|gridDim)\.[xyz]",
        r"\.data_ptr<[a-z]+>\(\)",
        r"\.[a-z]+\(\)",  # .contiguous()
        r" ?(?:self|nn|torch|ext)\.",
        r"\n+ *",
        r" ?__[A-Za-z]+(?:_[A-Za-z]+)*__",  # __global__, __init__
        r" ?_*[A-Za-z]+(?:\d{1,2}(?!\d))?",
        r"\d",
        r"_+",
        r" ?[^\sA-Za-z\d_]+",
        r" +",
        r"\s",
    )
)
"""What BPE never merges across. The first seven are idioms of the API that may become one token each;
they save a seventh of the tokens of a kernel file."""


def train_tokenizer(
    texts: Iterable[str], *, vocab_size: int = 4096, model_max_length: int = 4096
) -> Any:
    """Train on `texts`, which hold no special tokens.

    Returns:
        A `PreTrainedTokenizerFast` with at most `vocab_size` tokens; `SPECIAL_TOKENS` have the first ids.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD_TOKEN,
        mask_token=MASK_TOKEN,
        eos_token=STOP_TOKEN,
        additional_special_tokens=[PROBLEM_TOKEN, KERNEL_TOKEN],
        model_max_length=model_max_length,
        clean_up_tokenization_spaces=False,
    )


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Write Hugging Face's layout, special_tokens_map.json included (transformers 5 writes none)."""
    tokenizer.save_pretrained(folder)
    (folder / "special_tokens_map.json").write_text(
        json.dumps(tokenizer.special_tokens_map, indent=2) + "\n"
    )
