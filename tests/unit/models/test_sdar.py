"""SDAR against transformers' Qwen3 with the same weights and an explicit block-causal mask."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from dice.models.registry import register_auto_classes
from dice.models.sdar import SdarConfig, SdarForCausalLM, block_causal_mask
from tests.data import shared_data

SIZES = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    "initializer_range": 0.3,
}


def make_pair(block_size: int, *, tied: bool = False) -> tuple[SdarForCausalLM, Qwen3ForCausalLM]:
    torch.manual_seed(0)
    config = SdarConfig(**SIZES, block_size=block_size, mask_token_id=96, tie_word_embeddings=tied)
    sdar = SdarForCausalLM(config).eval()
    qwen = Qwen3ForCausalLM._from_config(
        Qwen3Config(**SIZES, tie_word_embeddings=tied), attn_implementation="sdpa"
    ).eval()
    assert qwen.load_state_dict(sdar.state_dict())
    with torch.no_grad():  # norms start at one: make them matter
        for ours, theirs in zip(sdar.parameters(), qwen.parameters(), strict=True):
            if ours.dim() == 1:
                ours.uniform_(0.5, 1.5)
                theirs.copy_(ours)
    return sdar, qwen


def reference_mask(position_ids: Tensor, block_size: int) -> Tensor:
    rows, length = position_ids.shape
    mask = torch.zeros(rows, 1, length, length, dtype=torch.bool)
    for row in range(rows):
        for query in range(length):
            for key in range(length):
                q, k = int(position_ids[row, query]), int(position_ids[row, key])
                if q < 0 or k < 0:
                    mask[row, 0, query, key] = q < 0 and k < 0
                else:
                    mask[row, 0, query, key] = k // block_size <= q // block_size
    return mask


@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("length", [1, 7, 16, 37])
@pytest.mark.parametrize("tied", [False, True])
def test_logits_equal_qwen3_under_a_block_causal_mask(
    block_size: int, length: int, tied: bool
) -> None:
    sdar, qwen = make_pair(block_size, tied=tied)
    ids = torch.randint(0, 97, (2, length))
    positions = torch.arange(length).expand(2, -1)
    mask = reference_mask(positions, block_size)
    with torch.no_grad():
        ours = sdar(ids).logits
        theirs = qwen(input_ids=ids, attention_mask=mask, position_ids=positions).logits
        handed_in = sdar(ids, attention_mask=mask).logits
        additive = torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))
        added = sdar(ids, attention_mask=additive).logits
    assert torch.equal(block_causal_mask(positions, block_size), mask)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
    torch.testing.assert_close(handed_in, theirs, atol=1e-5, rtol=0)
    torch.testing.assert_close(added, theirs, atol=1e-5, rtol=0)


@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_on_either_side_gives_the_logits_of_the_unpadded_rows(
    block_size: int, side: str
) -> None:
    sdar, qwen = make_pair(block_size)
    lengths, width = [5, 18, 21], 21
    rows = [torch.randint(0, 97, (length,)) for length in lengths]
    ids = torch.zeros(3, width, dtype=torch.long)
    tokens = torch.zeros(3, width, dtype=torch.long)
    for row, content in enumerate(rows):
        at = slice(width - len(content), width) if side == "left" else slice(0, len(content))
        ids[row, at], tokens[row, at] = content, 1
    positions = (tokens.cumsum(-1) - 1).masked_fill(tokens == 0, -1)
    with torch.no_grad():
        from_mask = sdar(ids, attention_mask=tokens).logits
        from_positions = sdar(ids, position_ids=positions).logits
        theirs = qwen(
            input_ids=ids,
            attention_mask=reference_mask(positions, block_size),
            position_ids=positions,
        ).logits
        for row, content in enumerate(rows):
            alone = sdar(content[None]).logits[0]
            real = tokens[row].bool()
            torch.testing.assert_close(from_mask[row, real], alone, atol=1e-5, rtol=0)
            torch.testing.assert_close(from_positions[row, real], alone, atol=1e-5, rtol=0)
            torch.testing.assert_close(theirs[row, real], alone, atol=1e-5, rtol=0)
    assert from_mask.isfinite().all()


def test_gradients_equal_qwen3() -> None:
    sdar, qwen = make_pair(4)
    ids = torch.randint(0, 97, (2, 13))
    mask = reference_mask(torch.arange(13).expand(2, -1), 4)
    sdar(ids).logits.square().mean().backward()
    qwen(input_ids=ids, attention_mask=mask).logits.square().mean().backward()
    for (name, ours), theirs in zip(sdar.named_parameters(), qwen.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-4, msg=name)


def test_gradient_checkpointing_changes_nothing() -> None:
    sdar, _ = make_pair(4)
    ids = torch.randint(0, 97, (2, 13))
    sdar.train()
    sdar(ids).logits.square().mean().backward()
    plain = {name: parameter.grad.clone() for name, parameter in sdar.named_parameters()}
    sdar.zero_grad()
    # transformers renames it from 5.24 on and warns about the old name
    rename = getattr(sdar, "activation_checkpointing_enable", None)
    (rename or sdar.gradient_checkpointing_enable)({"use_reentrant": False})
    sdar(ids).logits.square().mean().backward()
    for name, parameter in sdar.named_parameters():
        torch.testing.assert_close(parameter.grad, plain[name], msg=name)


def test_bfloat16_stays_close_to_float32() -> None:
    sdar, _ = make_pair(4)
    ids = torch.randint(0, 97, (1, 24))
    with torch.no_grad():
        exact = sdar(ids).logits
        half = sdar.to(torch.bfloat16)(ids).logits
    assert half.dtype == torch.bfloat16
    assert (half.float() - exact).norm() / exact.norm() < 0.03


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("shard_size", ["5GB", "20KB"])
def test_save_and_load_round_trip(tmp_path: Path, tied: bool, shard_size: str) -> None:
    register_auto_classes()
    sdar, _ = make_pair(4, tied=tied)
    sdar.save_pretrained(tmp_path, max_shard_size=shard_size)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert (saved["model_type"], saved["block_size"], saved["mask_token_id"]) == ("sdar", 4, 96)
    sharded = (tmp_path / "model.safetensors.index.json").exists()
    assert sharded == (shard_size == "20KB")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert type(loaded) is SdarForCausalLM
    ids = torch.randint(0, 97, (2, 11))
    with torch.no_grad():
        assert torch.equal(loaded(ids).logits, sdar(ids).logits)
    assert (loaded.lm_head.weight is loaded.model.embed_tokens.weight) == tied


def test_foreign_spellings_are_mapped_when_a_config_is_loaded(tmp_path: Path) -> None:
    foreign = {"model_type": "sdar", "block_length": 8, "auto_map": {"AutoConfig": "x.y"}}
    (tmp_path / "config.json").write_text(json.dumps(foreign))
    config = SdarConfig.from_pretrained(tmp_path)
    assert config.block_size == 8
    assert not hasattr(config, "auto_map")
    assert not hasattr(config, "block_length")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"use_sliding_window": True}, "sliding"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "linear"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"block_size": 0}, "block_size"),
        ({"num_attention_heads": 5, "num_key_value_heads": 2}, "multiple"),
    ],
)
def test_configurations_that_are_not_implemented_are_refused(
    setting: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        SdarConfig(**setting)


def test_sdar_4b_has_its_published_number_of_parameters() -> None:
    register_auto_classes()
    config = AutoConfig.from_pretrained(shared_data("sdar_4b_chat"))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    assert (config.block_size, config.mask_token_id) == (4, 151669)
    assert sum(p.numel() for p in model.parameters()) == 4_411_424_256


def test_sdar_8b_config_loads() -> None:
    config = SdarConfig.from_pretrained(shared_data("sdar_8b_config.json"))
    assert (config.hidden_size, config.num_hidden_layers) == (4096, 36)
    assert not config.tie_word_embeddings


def test_the_forward_is_one_graph_for_torch_compile() -> None:
    sdar, _ = make_pair(4)
    ids = torch.randint(0, 97, (2, 12))
    mask = block_causal_mask(torch.arange(12).expand(2, -1), 4)
    compiled = torch.compile(sdar.model, backend="eager", fullgraph=True)
    with torch.no_grad():
        expected = sdar.model(ids)
        torch.testing.assert_close(compiled(ids), expected)
        torch.testing.assert_close(compiled(ids, attention_mask=mask), expected)
