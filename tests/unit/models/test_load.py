"""Loading checkpoints: what is forgiven, and what each refusal says."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from dice.errors import ModelError
from dice.models.generation import GenerationDefaults, load_generation_defaults
from dice.models.load import load_model, save_model
from dice.models.sdar import SdarConfig, SdarForCausalLM
from tests.data import shared_data
from tests.unit.models.tiny import EOS, MASK, tiny_model, tiny_tokenizer

GENERATION = GenerationDefaults(
    eos_token_id=(EOS, 0),
    template="nano",
    denoising_steps=2,
    remasking_strategy="entropy_bounded",
    confidence_threshold=0.8,
    max_new_tokens=77,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoint"
    save_model(path, tiny_model(), tiny_tokenizer(), GENERATION)
    return path


def edit_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def edit_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def test_a_saved_checkpoint_loads_with_its_settings(folder: Path) -> None:
    loaded = load_model(folder)
    assert loaded.generation == GENERATION
    assert loaded.stop_token_ids == {EOS, 0}
    assert (loaded.mask_token_id, loaded.block_size, loaded.template) == (MASK, 4, "nano")
    assert not loaded.model.training
    ids = torch.arange(9)[None]
    with torch.no_grad():
        assert torch.equal(loaded.model(ids).logits, tiny_model()(ids).logits)
    assert loaded.tokenizer.encode("w3 <|mask|> w4", add_special_tokens=False) == [8, MASK, 9]


def test_a_sharded_checkpoint_loads_in_another_type(tmp_path: Path) -> None:
    save_model(tmp_path, tiny_model(), tiny_tokenizer(), GENERATION, max_shard_size="10KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    loaded = load_model(tmp_path, dtype=torch.bfloat16)
    assert loaded.model.lm_head.weight.dtype == torch.bfloat16
    assert torch.equal(loaded.model.lm_head.weight, tiny_model().lm_head.weight.to(torch.bfloat16))


def test_a_folder_that_is_absent_or_empty_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no model folder"):
        load_model(tmp_path / "nothing")
    with pytest.raises(ModelError, match=r"no config\.json"):
        load_model(tmp_path)


def test_another_family_is_refused(folder: Path) -> None:
    edit_json(folder / "config.json", lambda c: c.update(model_type="qwen3"))
    with pytest.raises(ModelError, match="model_type is 'qwen3', expected 'sdar'"):
        load_model(folder)


def test_a_config_that_is_not_implemented_or_not_json_is_refused(folder: Path) -> None:
    edit_json(folder / "config.json", lambda c: c.update(use_sliding_window=True))
    with pytest.raises(ModelError, match="sliding"):
        load_model(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(ModelError, match="cannot be read as JSON"):
        load_model(folder)


def test_missing_tensors_are_named(folder: Path) -> None:
    edit_weights(folder, lambda t: t.pop("model.layers.1.self_attn.q_norm.weight"))
    with pytest.raises(ModelError, match=r"1 missing \(model\.layers\.1\.self_attn\.q_norm"):
        load_model(folder)


def test_unexpected_tensors_are_named(folder: Path) -> None:
    edit_weights(folder, lambda t: t.update({"model.layers.0.gate": torch.zeros(2)}))
    with pytest.raises(ModelError, match=r"1 unexpected \(model\.layers\.0\.gate\)"):
        load_model(folder)


def test_mis_shaped_tensors_are_named_with_both_shapes(folder: Path) -> None:
    edit_weights(folder, lambda t: t.update({"model.norm.weight": torch.zeros(7)}))
    with pytest.raises(ModelError, match=r"model\.norm\.weight \[7\] instead of \[32\]"):
        load_model(folder)


def test_unreadable_weights_and_no_weights_are_named(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ModelError, match="weights cannot be read"):
        load_model(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="holds no weights"):
        load_model(folder)


def test_the_mask_token_comes_from_the_tokenizer_where_the_config_has_none(folder: Path) -> None:
    edit_json(folder / "config.json", lambda c: c.pop("mask_token_id"))
    assert load_model(folder).mask_token_id == MASK
    edit_json(folder / "tokenizer_config.json", lambda c: c.pop("mask_token"))
    with pytest.raises(ModelError, match="names no mask token"):
        load_model(folder)


def test_a_mask_token_outside_the_vocabulary_is_refused(folder: Path) -> None:
    edit_json(folder / "config.json", lambda c: c.update(mask_token_id=1000))
    with pytest.raises(ModelError, match="1000 is outside the vocabulary"):
        load_model(folder)


def test_without_generation_config_the_stop_token_is_the_configs(folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    loaded = load_model(folder)
    assert loaded.stop_token_ids == {EOS}
    assert loaded.template == "kernelbench"


def test_a_missing_tokenizer_is_named(folder: Path) -> None:
    for path in folder.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(ModelError, match="no usable tokenizer"):
        load_model(folder)


def test_the_untidy_sdar_4b_folder_loads_but_for_its_weights(tmp_path: Path) -> None:
    source = shared_data("sdar_4b_chat")
    generation = load_generation_defaults(source)
    assert generation.eos_token_id == (151645, 151643)
    assert (generation.temperature, generation.top_k, generation.top_p) == (0.6, 20, 0.95)
    # The same files around a model small enough to save.
    for path in source.iterdir():
        shutil.copyfile(path, tmp_path / path.name)
    small = {"hidden_size": 8, "num_hidden_layers": 1, "intermediate_size": 8, "head_dim": 2}
    edit_json(tmp_path / "config.json", lambda c: c.update(small))
    model = SdarForCausalLM(SdarConfig.from_pretrained(tmp_path))
    save_file(model.state_dict(), tmp_path / "model.safetensors", metadata={"format": "pt"})
    loaded = load_model(tmp_path)
    assert (loaded.mask_token_id, loaded.block_size) == (151669, 4)
    assert loaded.stop_token_ids == {151645, 151643}
    assert loaded.tokenizer.convert_tokens_to_ids("<|MASK|>") == 151669
    assert loaded.tokenizer.encode("<|MASK|>") == [151669]
