"""The compiled forward against the plain model."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dice.engine.llm import LLM
from dice.engine.native import NativeForward, library, worthwhile
from dice.engine.sampling import SamplingParams
from dice.models.load import load_model
from dice.models.sdar import KVCache, SdarConfig, SdarForCausalLM, Segment
from dice.types import Prompt
from tests.unit.engine.test_llm import random_prompt
from tests.unit.models.tiny import tiny_loaded

VOCABULARY = 53


@pytest.fixture(autouse=True)
def needs_the_compiled_forward() -> None:
    if library.load_library() is None:
        pytest.skip("no C++ compiler")


def random_model(
    block_size: int = 4, *, heads: tuple[int, int, int] = (6, 6, 64), tied: bool = True,
    bias: bool = False, short: bool = True,
) -> SdarForCausalLM:  # fmt: skip
    torch.manual_seed(1)
    config = SdarConfig(
        vocab_size=VOCABULARY,
        hidden_size=40,
        intermediate_size=72,
        num_hidden_layers=3,
        num_attention_heads=heads[0],
        num_key_value_heads=heads[1],
        head_dim=heads[2],
        block_size=block_size,
        mask_token_id=1,
        initializer_range=0.3,
        attention_bias=bias,
        tie_word_embeddings=tied,
    )
    model = SdarForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:  # norms and biases are born as ones and zeros
                parameter += 0.3 * torch.randn(parameter.shape)
            if short:
                parameter.copy_(parameter.bfloat16().float())
    return model


@torch.inference_mode()
def plain_logits(
    model: SdarForCausalLM, cache: KVCache, ids: list[int], segments: list[Segment],
    wanted: list[int],
) -> torch.Tensor:  # fmt: skip
    cache.plan(segments)
    hidden = model.model(
        torch.tensor([ids]), position_ids=cache.planned_positions[None], cache=cache
    )
    return model.lm_head(hidden[0, torch.tensor(wanted, dtype=torch.long)])


def segments_of(lengths: dict[int, tuple[int, int]]) -> list[Segment]:
    """Row -> (position, tokens)."""
    segments, start = [], 0
    for row, (position, count) in lengths.items():
        segments.append(Segment(row=row, start=start, stop=start + count, position=position))
        start += count
    return segments


def assert_close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert ours.shape == theirs.shape
    assert float((ours - theirs).abs().max()) <= 1e-4 * float(theirs.abs().max())


@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"tied": False, "short": False},
        {"heads": (6, 2, 24), "bias": True},
        {"heads": (4, 1, 8), "tied": False, "bias": True, "short": False},
    ],
    ids=["nano", "untied float32", "grouped biased", "one kv head"],
)
def test_logits_equal_the_plain_model_over_ragged_batches(
    block_size: int, kind: dict[str, object]
) -> None:
    model = random_model(block_size, **kind)
    rows, capacity = 5, 128
    cache, native = KVCache(model.config, rows, capacity), NativeForward(model, rows, capacity)
    generator = torch.Generator().manual_seed(2)

    def compare(lengths: dict[int, tuple[int, int]], wanted: Callable[[int], list[int]]) -> None:
        segments = segments_of(lengths)
        ids = torch.randint(VOCABULARY, (segments[-1].stop,), generator=generator).tolist()
        at = wanted(len(ids))
        assert_close(
            native.logits(ids, segments, at), plain_logits(model, cache, ids, segments, at)
        )

    prefixes = {0: 1, 2: 2, 3: 5, 4: 48 // block_size}
    compare({row: (0, n * block_size) for row, n in prefixes.items()}, lambda n: [n - 1, 0, n // 2])
    for kept in (cache, native):
        for row, blocks in prefixes.items():
            kept.commit(row, blocks * block_size)
        kept.share_prefix(4, 1, prefixes[4] * block_size)
    prefixes[1] = prefixes[4]
    order = (1, 3, 0, 4, 2)
    for blocks in (1, 2):  # a row's denoised block, without and with a final block before it
        compare(
            {row: (prefixes[row] * block_size, blocks * block_size) for row in order},
            lambda n: list(range(0, n, 3)),
        )
    for kept in (cache, native):
        kept.commit(1, (prefixes[1] + 1) * block_size)
        kept.clear(4)
    compare({1: ((prefixes[1] + 1) * block_size, block_size)}, lambda n: list(range(n)))


def test_a_shared_prefix_outlives_the_row_it_was_read_from() -> None:
    model = random_model()
    native = NativeForward(model, 4, 64)
    ids = list(range(44))
    native.logits(ids, segments_of({0: (0, 44)}), [])
    native.commit(0, 44)
    native.share_prefix(0, 1, 44)
    native.share_prefix(1, 2, 44)
    before = native.logits([7, 1, 1, 1], segments_of({2: (44, 4)}), [0, 3])
    native.clear(0)
    native.logits(ids[::-1], segments_of({0: (0, 44)}), [])
    for row in (1, 2):
        after = native.logits([7, 1, 1, 1], segments_of({row: (44, 4)}), [0, 3])
        assert torch.equal(before, after)


def test_a_row_of_logits_does_not_depend_on_what_else_is_in_the_step() -> None:
    model = random_model()
    alone, together = NativeForward(model, 1, 64), NativeForward(model, 9, 64)
    rows = {row: (0, 4 + 4 * row) for row in range(9)}
    ids = torch.randint(VOCABULARY, (sum(n for _, n in rows.values()),)).tolist()
    segments = segments_of(rows)
    logits = together.logits(ids, segments, [s.stop - 1 for s in segments])
    for segment, expected in zip(segments, logits, strict=True):
        alone.clear(0)
        part = ids[segment.start : segment.stop]
        one = alone.logits(part, segments_of({0: (0, len(part))}), [len(part) - 1])
        assert torch.equal(one[0], expected)


def test_weights_updated_in_place_are_noticed_by_the_next_call() -> None:
    loaded = tiny_loaded(4, stop_token_ids=frozenset())
    assert worthwhile(loaded.model)
    prompt, params = random_prompt(9, seed=1), SamplingParams(max_new_tokens=20)
    fast, plain = LLM(loaded), LLM(loaded, native=False)
    first = fast.generate([prompt], params)[0]
    for parameter in loaded.model.parameters():
        parameter.data.mul_(0.5).add_(0.1 * torch.randn(parameter.shape))
    second = fast.generate([prompt], params)[0]
    assert second.token_ids != first.token_ids
    assert second.token_ids == plain.generate([prompt], params)[0].token_ids


def test_what_cannot_be_compiled_is_decoded_by_the_plain_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DICE_CACHE", str(tmp_path))
    broken = tmp_path / "broken.cpp"
    broken.write_text("int f() { return; }")
    monkeypatch.setattr(library, "_SOURCE", broken)
    with caplog.at_level(logging.WARNING):
        assert library.load_library.__wrapped__() is None
    assert "without the compiled forward" in caplog.text
    monkeypatch.setattr("dice.engine.native.forward.load_library", lambda: None)
    loaded = tiny_loaded(4)
    assert not worthwhile(loaded.model)
    prompt, params = random_prompt(9, seed=1), SamplingParams(max_new_tokens=8)
    expected = LLM(loaded, native=False).generate([prompt], params)
    assert LLM(loaded).generate([prompt], params) == expected


def test_other_weight_types_and_large_models_are_left_to_the_plain_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = random_model()
    assert worthwhile(model)
    assert not worthwhile(random_model().bfloat16())
    monkeypatch.setattr("dice.engine.native.forward._MOST_PARAMETERS", 100)
    assert not worthwhile(model)


def test_nano_writes_the_same_tokens() -> None:
    loaded = load_model("nano")
    prompts = [
        Prompt(problem=str(n), template="nano", text="import torch\n" + "x = x + 1\n" * n)
        for n in (1, 4, 11)
    ]
    params = [SamplingParams(max_new_tokens=24, temperature=t, seed=3) for t in (0.0, 0.0, 0.8)]
    fast = LLM(loaded).generate(prompts, params)
    plain = LLM(loaded, native=False).generate(prompts, params)
    assert [c.token_ids for c in fast] == [c.token_ids for c in plain]
    assert [c.steps for c in fast] == [c.steps for c in plain]
