"""LoRA adapters in peft's layout against low-rank paths that are computed beside the base weights."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from dice.errors import ModelError
from dice.models.load import load_model
from dice.models.sdar import SdarForCausalLM
from tests.unit.models.published import VOCABULARY, write_checkpoint, write_json

RANK, ALPHA = 3, 7
IDS = torch.arange(18)[None] * 11 % VOCABULARY


@pytest.fixture
def base(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "base")
    return tmp_path / "base"


def write_adapter(folder: Path, tensors: dict[str, Tensor], **config: Any) -> Path:
    folder.mkdir()
    settings = {
        "base_model_name_or_path": "JetLM/SDAR-tiny",
        "bias": "none",
        "fan_in_fan_out": False,
        "init_lora_weights": True,
        "lora_alpha": ALPHA,
        "modules_to_save": None,
        "peft_type": "LORA",
        "r": RANK,
        "target_modules": ["q_proj", "down_proj"],
        "task_type": "CAUSAL_LM",
        "use_dora": False,
        "use_rslora": False,
    }
    write_json(folder / "adapter_config.json", {**settings, **config})
    save_file(
        {f"base_model.model.{name}": tensor.contiguous() for name, tensor in tensors.items()},
        folder / "adapter_model.safetensors",
        metadata={"format": "pt"},
    )
    return folder


def pair(module: str, out: int, into: int, rank: int = RANK, seed: int = 1) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        f"{module}.lora_A.weight": torch.randn(rank, into, generator=generator),
        f"{module}.lora_B.weight": torch.randn(out, rank, generator=generator),
    }


Q_PROJ, DOWN = "model.layers.1.self_attn.q_proj", "model.layers.0.mlp.down_proj"


def with_path(
    model: SdarForCausalLM, module: str, tensors: dict[str, Tensor], scale: float
) -> None:
    """Adds the low-rank path to a module's output, its weight untouched: the oracle."""
    down = tensors[f"{module}.lora_A.weight"].double()
    up = tensors[f"{module}.lora_B.weight"].double()

    def add(_: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
        return output + scale * F.linear(F.linear(inputs[0], down), up)

    model.get_submodule(module).register_forward_hook(add)


def logits(model: SdarForCausalLM) -> Tensor:
    with torch.no_grad():
        return model.double()(IDS).logits.float()


@pytest.mark.parametrize("rank_stabilised", [False, True])
def test_merged_weights_give_the_logits_of_the_low_rank_paths(
    base: Path, tmp_path: Path, rank_stabilised: bool
) -> None:
    tensors = pair(Q_PROJ, 32, 32) | pair(DOWN, 32, 48, rank=2)
    adapter = write_adapter(
        tmp_path / "adapter",
        tensors,
        use_rslora=rank_stabilised,
        rank_pattern={"down_proj": 2},
        alpha_pattern={r"layers\.0\.mlp\.down_proj": 5, "q_proj.*x": 100},
    )
    oracle = load_model(base).model
    plain = logits(oracle)
    root = math.sqrt if rank_stabilised else float
    with_path(oracle, Q_PROJ, tensors, ALPHA / root(RANK))
    with_path(oracle, DOWN, tensors, 5 / root(2))
    merged = logits(load_model(base, adapter=adapter).model)
    torch.testing.assert_close(merged, logits(oracle), atol=1e-4, rtol=1e-4)
    assert (merged - plain).abs().max() > 0.1


def test_the_sum_is_rounded_once(base: Path, tmp_path: Path) -> None:
    tensors = pair(Q_PROJ, 32, 32)
    adapter = write_adapter(tmp_path / "adapter", tensors)
    weight = load_model(base).model.get_submodule(Q_PROJ).weight
    delta = tensors[f"{Q_PROJ}.lora_B.weight"] @ tensors[f"{Q_PROJ}.lora_A.weight"]
    expected = (weight + ALPHA / RANK * delta).to(torch.bfloat16)
    merged = load_model(base, adapter=adapter, dtype=torch.bfloat16).model
    assert torch.equal(merged.get_submodule(Q_PROJ).weight, expected)


def test_an_adapted_embedding_and_whole_tensors(base: Path, tmp_path: Path) -> None:
    embedding = "model.embed_tokens"
    down, up = torch.randn(RANK, VOCABULARY), torch.randn(32, RANK)
    norm = torch.rand(32)
    adapter = write_adapter(
        tmp_path / "adapter",
        {
            f"{embedding}.lora_embedding_A": down,
            f"{embedding}.lora_embedding_B": up,
            "model.norm.weight": norm,
        },
        modules_to_save=["norm"],
    )
    before = load_model(base).model.model
    after = load_model(base, adapter=adapter).model.model
    expected = before.embed_tokens.weight + ALPHA / RANK * (up @ down).T
    torch.testing.assert_close(after.embed_tokens.weight, expected)
    assert torch.equal(after.norm.weight, norm)
    assert torch.equal(after.layers[1].mlp.up_proj.weight, before.layers[1].mlp.up_proj.weight)


def refusal(base: Path, adapter: Path) -> str:
    with pytest.raises(ModelError) as caught:
        load_model(base, adapter=adapter)
    return str(caught.value)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("use_dora", True),
        ("bias", "all"),
        ("peft_type", "IA3"),
        ("layer_replication", [[0, 2]]),
        ("init_lora_weights", "pissa"),
        ("r", 0),
        ("lora_alpha", None),
    ],
)
def test_other_adapters_are_refused(base: Path, tmp_path: Path, setting: str, value: Any) -> None:
    adapter = write_adapter(tmp_path / "adapter", pair(Q_PROJ, 32, 32), **{setting: value})
    said = refusal(base, adapter)
    assert setting in said or "rank r >= 1" in said


def test_tensors_that_do_not_fit_are_named(base: Path, tmp_path: Path) -> None:
    tensors = pair(Q_PROJ, 32, 31) | pair("model.layers.9.mlp.up_proj", 48, 32) | pair(DOWN, 32, 48)
    del tensors[f"{DOWN}.lora_A.weight"]
    said = refusal(base, write_adapter(tmp_path / "adapter", tensors))
    assert f"{Q_PROJ}.lora_A.weight [3, 31] instead of [3, 32]" in said
    assert "2 unexpected (base_model.model.model.layers.9.mlp.up_proj.lora_A.weight" in said
    assert f"1 without partner (base_model.model.{DOWN}.lora_B.weight)" in said
    assert "it was trained on JetLM/SDAR-tiny" in said


def test_folders_that_are_no_adapter_are_refused(base: Path, tmp_path: Path) -> None:
    assert "has no adapter_config.json" in refusal(base, base)
    adapter = write_adapter(tmp_path / "adapter", {})
    assert "holds no tensors" in refusal(base, adapter)
    (adapter / "adapter_model.safetensors").unlink()
    assert "has no adapter_model.safetensors" in refusal(base, adapter)


def test_a_tied_embedding_cannot_be_adapted(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "tied", tied=True)
    tensors = {
        "model.embed_tokens.lora_embedding_A": torch.randn(RANK, VOCABULARY),
        "model.embed_tokens.lora_embedding_B": torch.randn(32, RANK),
    }
    adapter = write_adapter(tmp_path / "adapter", tensors)
    assert "both as embedding and as head" in refusal(tmp_path / "tied", adapter)
