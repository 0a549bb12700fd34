from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from dice.data.records import PairRecord
from dice.data.synth import sample_pair
from dice.data.tokenize import tokenize_pairs, training_texts
from dice.data.tokenizer import SPECIAL_TOKENS, STOP_TOKEN, save_tokenizer, train_tokenizer
from dice.prompts.render import canonical_code


def _records(count: int) -> list[PairRecord]:
    pairs = [sample_pair(Random(f"tokenizer:{i}")) for i in range(count)]
    return [
        PairRecord(
            index=i,
            family=p.family,
            schedule=p.schedule,
            ops=p.ops,
            problem_code=canonical_code(p.problem_code),
            kernel_code=p.kernel_code,
        )
        for i, p in enumerate(pairs)
    ]


RECORDS = _records(300)
TOKENIZER = train_tokenizer(training_texts(RECORDS), vocab_size=1500)


def _pieces(text: str) -> list[str]:
    ids = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    return [TOKENIZER.decode([i]) for i in ids]


@settings(max_examples=300)
@given(st.text())
def test_any_text_survives_unchanged(text: str) -> None:
    if any(token in text for token in SPECIAL_TOKENS):
        return
    ids = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    assert TOKENIZER.decode(ids) == text


@given(
    st.lists(
        st.sampled_from(
            ["    ", "\n", "\t", "x", "1.63", "_", "__", "é", "🦊", " ", "self.", "\r\n"]
        ),
        max_size=40,
    )
)
def test_whitespace_and_odd_characters_survive(parts: list[str]) -> None:
    text = "".join(parts)
    assert TOKENIZER.decode(TOKENIZER(text, add_special_tokens=False)["input_ids"]) == text


def test_every_training_text_survives() -> None:
    for text in training_texts(RECORDS):
        assert "".join(_pieces(text)) == text


@pytest.mark.parametrize("number", ["1.63", "1e-08", "2048", "0.044715", "256"])
def test_numbers_are_the_same_single_digits_in_python_and_in_c(number: str) -> None:
    bare = _pieces(number)
    assert all(len(p) == 1 for p in bare if any(c.isdigit() for c in p))
    for text in (f"x = {number}\n", f"v * {number}f;", f"({number})", f"[{number}, 1]"):
        pieces = _pieces(text)
        start = next(i for i, p in enumerate(pieces) if p == bare[0])
        assert pieces[start : start + len(bare)] in (bare, [*bare[:-1], bare[-1]])


def test_a_newline_and_its_indentation_are_one_token() -> None:
    assert "\n    " in _pieces("def f():\n    return 1")
    assert "\n        " in _pieces("    def f(self):\n        return x")


def test_identifiers_fall_apart_at_underscores_and_keep_short_numbers() -> None:
    assert _pieces("input_size") == ["input", "_size"]
    small = train_tokenizer(["float4 v1234 = threadIdx.x;"] * 3, vocab_size=400)
    pieces = [small.decode([i]) for i in small("float4 v1234 threadIdx.x")["input_ids"]]
    assert pieces == ["float4", " v", "1", "2", "3", "4", " threadIdx.x"]


def test_special_tokens_come_first_and_are_atoms() -> None:
    assert [TOKENIZER.convert_tokens_to_ids(t) for t in SPECIAL_TOKENS] == list(range(5))
    assert _pieces("<|problem|>x<|kernel|>") == ["<|problem|>", "x", "<|kernel|>"]
    assert TOKENIZER.mask_token == "<|mask|>"
    assert TOKENIZER.eos_token == STOP_TOKEN
    assert TOKENIZER.pad_token == "<|pad|>"


def test_saved_tokenizer_loads_with_auto_tokenizer(tmp_path: Path) -> None:
    save_tokenizer(TOKENIZER, tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = RECORDS[0].kernel_code
    assert loaded(text)["input_ids"] == TOKENIZER(text)["input_ids"]
    assert loaded.decode(loaded(text)["input_ids"]) == text
    assert {p.name for p in tmp_path.iterdir()} >= {
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
    }


def test_training_the_tokenizer_twice_gives_the_same_one() -> None:
    again = train_tokenizer(training_texts(RECORDS), vocab_size=1500)
    assert again.get_vocab() == TOKENIZER.get_vocab()


def test_a_pair_becomes_prompt_kernel_and_stop_token() -> None:
    store = tokenize_pairs(RECORDS[:20], TOKENIZER)
    assert len(store) == 20
    for record, sample in zip(RECORDS, (store[i] for i in range(20)), strict=False):
        prompt = TOKENIZER.decode(list(sample.token_ids[: sample.prompt_length]))
        rest = TOKENIZER.decode(list(sample.token_ids[sample.prompt_length :]))
        assert prompt == f"<|problem|>{record.problem_code}<|kernel|>"
        assert rest == f"{record.kernel_code}<|endoftext|>"
