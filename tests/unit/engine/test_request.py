"""Chat prompts as token ids, and what is refused before decoding."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dice.engine import LLM, SamplingParams, decoding_bytes, make_canvas
from dice.errors import ModelError, UserError
from dice.models import memory
from dice.models.load import Checkpoint, load_model, open_checkpoint
from dice.models.sdar import KVCache
from dice.types import Message, Prompt
from tests.unit.models.published import IM_END, IM_START, MASK, write_checkpoint

PROMPT = Prompt(
    problem="p", template="kernelbench", messages=(Message(role="user", content="Add 1 & 2."),)
)
PARAMS = SamplingParams(max_new_tokens=8)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    write_checkpoint(tmp_path)
    return open_checkpoint(tmp_path)


def test_messages_become_the_chat_templates_token_ids(checkpoint: Checkpoint) -> None:
    def plain(text: str) -> list[int]:
        return checkpoint.tokenizer.encode(text, add_special_tokens=False)

    expected = [IM_START, *plain("user\nAdd 1 & 2."), IM_END, *plain("\n")]
    expected += [IM_START, *plain("assistant\n")]
    canvas = make_canvas(checkpoint, PROMPT, PARAMS)
    assert canvas.token_ids[: canvas.prompt_length] == expected
    assert canvas.token_ids[canvas.prompt_length :].count(MASK) == len(canvas) - len(expected)


def test_the_checkpoints_own_chat_template_is_honoured(checkpoint: Checkpoint) -> None:
    checkpoint.tokenizer.chat_template = "{{ messages[0].role }}:{{ messages[0].content }}>"
    canvas = make_canvas(checkpoint, PROMPT, PARAMS)
    ids = canvas.token_ids[: canvas.prompt_length]
    assert checkpoint.tokenizer.decode(ids) == "user:Add 1 & 2.>"


def test_an_unusable_chat_template_is_named(checkpoint: Checkpoint) -> None:
    checkpoint.tokenizer.chat_template = "{{ raise_exception('no users') }}"
    with pytest.raises(ModelError, match="chat template cannot be used: no users"):
        make_canvas(checkpoint, PROMPT, PARAMS)
    checkpoint.tokenizer.chat_template = None
    with pytest.raises(ModelError, match=r"has no chat template; add the chat_template\.jinja"):
        make_canvas(checkpoint, PROMPT, PARAMS)


def test_decoding_a_chat_prompt_stops_at_the_generation_configs_ids(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    loaded = load_model(tmp_path)
    loaded = replace(loaded, stop_token_ids=frozenset(range(200)))
    completion = LLM(loaded).generate([PROMPT], SamplingParams(max_new_tokens=64))[0]
    assert completion.finish_reason == "stop"
    assert completion.prompt_ids[0] == IM_START


def test_an_overflow_says_how_much_would_fit(checkpoint: Checkpoint) -> None:
    params = SamplingParams(max_new_tokens=8192)
    with pytest.raises(UserError, match=r"8192 positions; allow at most \d+ new tokens") as caught:
        make_canvas(checkpoint, PROMPT, params)
    allowed = int(str(caught.value).split("at most ")[1].split()[0])
    canvas = make_canvas(checkpoint, PROMPT, SamplingParams(max_new_tokens=allowed))
    assert 8192 - 8 <= len(canvas) <= 8192
    long = replace(PROMPT, messages=(Message(role="user", content="x" * 9000),))
    with pytest.raises(UserError, match="shorten the problem"):
        make_canvas(checkpoint, long, PARAMS)


def test_the_mask_token_in_a_prompt_is_refused(checkpoint: Checkpoint) -> None:
    for prompt in (
        replace(PROMPT, messages=(Message(role="user", content="a<|MASK|>b"),)),
        replace(PROMPT, forced_suffix="<|MASK|>"),
    ):
        with pytest.raises(UserError, match=r"mask token '<\|MASK\|>'; remove it"):
            make_canvas(checkpoint, prompt, PARAMS)


def test_the_memory_for_decoding_is_what_the_cache_allocates_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path)
    loaded = load_model(tmp_path)
    canvas = make_canvas(loaded, PROMPT, PARAMS)
    kv_cache = KVCache(loaded.config, 3, len(canvas), dtype=torch.bfloat16)
    allocated = kv_cache.keys.nbytes + kv_cache.values.nbytes
    assert decoding_bytes(loaded, [canvas], 3, torch.bfloat16) == allocated
    monkeypatch.setattr(memory, "available_bytes", lambda _: 2 * allocated - 1)
    LLM(loaded).check(PROMPT, PARAMS)
    with pytest.raises(ModelError, match="too little memory: decoding 3 sequences at a time"):
        LLM(loaded).generate([PROMPT] * 3, PARAMS)
