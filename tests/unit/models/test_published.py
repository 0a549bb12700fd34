"""Checkpoints in the published layout: what is read from them, and every refusal."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3Config, Qwen3ForCausalLM

from dice.errors import ModelError
from dice.models import memory
from dice.models.generation import GenerationDefaults
from dice.models.load import load_model, open_checkpoint, save_model
from dice.models.sdar import SdarConfig, block_causal_mask
from dice.models.weights import expected_shapes
from tests.unit.models.published import (
    ENDOFTEXT,
    IM_END,
    IM_START,
    MASK,
    VOCABULARY,
    write_checkpoint,
    write_shards,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def edit(path: Path, **changes: Any) -> None:
    """Set keys of a JSON file; `None` removes one."""
    content = json.loads(path.read_text())
    content.update(changes)
    kept = {key: value for key, value in content.items() if value is not None}
    path.write_text(json.dumps(kept))


def edit_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(path)
    change(tensors)
    write_shards(folder, tensors, 2)


def refusal(folder: Path | str, **options: Any) -> str:
    with pytest.raises(ModelError) as caught:
        load_model(folder, **options)
    return str(caught.value)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_published_folder_loads_to_qwen3s_logits(
    tmp_path: Path, tied: bool, dtype: torch.dtype
) -> None:
    written = write_checkpoint(tmp_path, tied=tied)
    loaded = load_model(tmp_path, dtype=dtype)
    state = loaded.model.state_dict()
    assert state.keys() == written.state_dict().keys()
    for name, tensor in written.state_dict().items():
        assert state[name].dtype == dtype
        assert torch.equal(state[name], tensor.to(dtype)), name
    assert (loaded.model.lm_head.weight is loaded.model.model.embed_tokens.weight) == tied
    if dtype == torch.float32:
        sizes = json.loads((tmp_path / "config.json").read_text())
        sizes = {k: v for k, v in sizes.items() if k in Qwen3Config().to_dict()}
        sizes["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e6}
        qwen = Qwen3ForCausalLM._from_config(Qwen3Config(**sizes), attn_implementation="sdpa")
        qwen.load_state_dict(state)
        ids = torch.arange(22)[None] * 7 % VOCABULARY
        mask = block_causal_mask(torch.arange(22)[None], 4)
        with torch.no_grad():
            ours = loaded.model(ids).logits
            theirs = qwen.float().eval()(input_ids=ids, attention_mask=mask).logits
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)


def test_settings_and_untidy_special_tokens_are_understood(folder: Path) -> None:
    checkpoint = open_checkpoint(folder)
    assert checkpoint.stop_token_ids == {IM_END, ENDOFTEXT}
    assert (checkpoint.mask_token_id, checkpoint.block_size) == (MASK, 4)
    assert checkpoint.template == "kernelbench"
    assert checkpoint.generation == GenerationDefaults(
        eos_token_id=(IM_END, ENDOFTEXT), temperature=0.6, top_k=20, top_p=0.95
    )
    ids = checkpoint.tokenizer.encode("<|im_start|>a<|MASK|>", add_special_tokens=False)
    assert (ids[0], ids[2], len(ids)) == (IM_START, MASK, 3)
    assert checkpoint.tokenizer.decode([*ids, IM_END], skip_special_tokens=True) == "a"


def test_saving_and_loading_again_changes_nothing(folder: Path, tmp_path: Path) -> None:
    first = load_model(folder, dtype=torch.bfloat16)
    own = GenerationDefaults(
        eos_token_id=(IM_END, ENDOFTEXT),
        template="mine",
        template_texts={"mine": "Speed this up:\n{{problem}}\n"},
        denoising_steps=2,
    )
    save_model(tmp_path / "again", first.model, first.tokenizer, own, max_shard_size="20KB")
    assert len(list((tmp_path / "again").glob("*.safetensors"))) > 1
    second = load_model(tmp_path / "again", dtype=torch.bfloat16)
    assert second.generation == own
    assert second.template == "mine"
    assert second.stop_token_ids == first.stop_token_ids
    assert second.tokenizer.chat_template == first.tokenizer.chat_template
    assert second.tokenizer.get_vocab() == first.tokenizer.get_vocab()
    for name, tensor in first.model.state_dict().items():
        assert torch.equal(second.model.state_dict()[name], tensor), name
    content = json.loads((tmp_path / "again" / "config.json").read_text())
    original = json.loads((folder / "config.json").read_text())
    for key in ("architectures", "model_type", "rope_theta", "torch_dtype", "block_size"):
        assert content[key] == original[key]


def test_the_published_1_7b_shape_is_what_its_config_describes() -> None:
    config = SdarConfig(
        hidden_size=2048,
        intermediate_size=6144,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        tie_word_embeddings=True,
    )
    shapes = expected_shapes(config)
    assert len(shapes) == 2 + 28 * 11
    assert "lm_head.weight" not in shapes
    assert shapes["model.embed_tokens.weight"] == (151936, 2048)
    assert shapes["model.layers.27.self_attn.k_proj.weight"] == (1024, 2048)
    assert shapes["model.layers.27.mlp.down_proj.weight"] == (2048, 6144)
    assert sum(torch.Size(shape).numel() for shape in shapes.values()) == 1_720_574_976


def test_foreign_spellings_are_mapped(folder: Path) -> None:
    edit(folder / "config.json", block_size=None, block_length=8, mask_token_id=None, mask_id=MASK)
    edit(
        folder / "generation_config.json",
        block_length=8,
        denoising_steps_per_block=2,
        dynamic_threshold=0.85,
        eb_threshold=0.3,
        max_token=4096,
        top_k=0,
        mask_id=MASK,
    )
    checkpoint = open_checkpoint(folder)
    generation = checkpoint.generation
    assert (checkpoint.block_size, checkpoint.mask_token_id) == (8, MASK)
    assert (generation.denoising_steps, generation.max_new_tokens) == (2, 4096)
    assert (generation.confidence_threshold, generation.entropy_bound) == (0.85, 0.3)
    assert generation.top_k is None


@pytest.mark.parametrize("absent", ["", '"block_size": null, '])
def test_the_block_size_may_stand_in_the_generation_config_alone(folder: Path, absent: str) -> None:
    edit(folder / "config.json", block_size=None)
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text("{" + absent + text[1:])
    edit(folder / "generation_config.json", block_length=16)
    assert open_checkpoint(folder).block_size == 16


def test_files_that_contradict_each_other_are_refused(folder: Path) -> None:
    edit(folder / "generation_config.json", block_length=8)
    assert "block_size is 4 in config.json but 8 in generation_config.json" in refusal(folder)
    edit(folder / "generation_config.json", block_length=None, mask_id=MASK - 1)
    assert f"mask_token_id is {MASK} in config.json but {MASK - 1}" in refusal(folder)
    edit(
        folder / "generation_config.json",
        mask_id=None,
        dynamic_threshold=0.9,
        confidence_threshold=0.8,
    )
    assert "two spellings of one setting" in refusal(folder)
    edit(folder / "generation_config.json", dynamic_threshold=None)
    edit(folder / "config.json", block_length=32)
    assert "says block_size 4 and block_length 32, two spellings of one setting" in refusal(folder)
    with pytest.raises(ValueError, match="block_size 4 and block_length 32 are two spellings"):
        SdarConfig.from_dict(json.loads((folder / "config.json").read_text()))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", "x"),
        ("head_dim", None),
        ("num_key_value_heads", 0),
        ("num_hidden_layers", -1),
        ("vocab_size", True),
        ("block_size", "4"),
        ("mask_token_id", "<|MASK|>"),
        ("eos_token_id", [1, "x"]),
        ("rope_theta", "big"),
        ("rms_norm_eps", 0),
        ("tie_word_embeddings", "yes"),
        ("torch_dtype", "float99"),
    ],
)
def test_a_config_of_wrong_types_is_refused(folder: Path, key: str, value: object) -> None:
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**content, key: value}))
    said = refusal(folder)
    assert "config.json cannot be used" in said
    assert key in said or "float99" in said


def test_the_configs_mask_token_wins_over_the_tokenizers(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    edit(folder / "tokenizer_config.json", mask_token="<think>")
    assert open_checkpoint(folder).mask_token_id == MASK
    assert f"config.json's, {MASK}, is used" in caplog.text


def test_a_tokenizer_file_that_names_the_mask_token_differently_is_understood(folder: Path) -> None:
    open_checkpoint(folder).tokenizer.save_pretrained(folder / "fast")
    text = (folder / "fast" / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(text.replace("<|MASK|>", "<MASK>"))
    checkpoint = open_checkpoint(folder)
    assert checkpoint.mask_token_id == MASK
    assert checkpoint.tokenizer.encode("<|MASK|>", add_special_tokens=False) == [MASK]


def test_a_generation_config_of_wrong_types_is_refused(folder: Path) -> None:
    edit(folder / "generation_config.json", temperature="warm", eos_token_id=[1, "x"])
    said = refusal(folder)
    assert "eos_token_id.1" in said
    assert "temperature" in said


def test_stop_ids_outside_the_vocabulary_are_refused(folder: Path) -> None:
    edit(folder / "generation_config.json", eos_token_id=[IM_END, 99_999])
    assert "stop ids [99999]" in refusal(folder)
    edit(folder / "generation_config.json", eos_token_id=[MASK])
    assert "the mask token" in refusal(folder)


def test_a_tokenizer_without_the_mask_token_is_refused(folder: Path) -> None:
    config = json.loads((folder / "tokenizer_config.json").read_text())
    del config["mask_token"], config["added_tokens_decoder"][str(MASK)]
    config["additional_special_tokens"] = []
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "added_tokens.json").unlink()
    (folder / "special_tokens_map.json").unlink()
    assert f"the tokenizer has no mask token: nothing has the id {MASK}" in refusal(folder)
    edit(folder / "config.json", mask_token_id=None)
    assert "names no mask token" in refusal(folder)


def test_code_of_a_checkpoint_is_neither_run_nor_offered_to_be_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(prompt: str = "") -> str:
        raise AssertionError(f"asked: {prompt}")

    monkeypatch.setattr("builtins.input", ask)
    load_model(folder)
    config = folder / "config.json"
    edit(folder / "tokenizer_config.json", tokenizer_class="OwnTokenizer")
    assert "never run" in refusal(folder)
    edit(config, model_type="llada")
    assert "is not an SDAR config: model_type is 'llada'" in refusal(folder)


def test_a_missing_shard_and_a_tensor_that_no_shard_holds_are_named(folder: Path) -> None:
    shard = folder / "model-00002-of-00003.safetensors"
    tensors = load_file(shard)
    lost = tensors.pop("model.norm.weight", None)
    if lost is None:
        tensors.pop(next(iter(tensors)))
    save_file(tensors, shard)
    assert "names 1 tensors that no shard holds" in refusal(folder)
    shard.unlink()
    assert "1 of 3 shards" in refusal(folder)
    assert "model-00002-of-00003.safetensors" in refusal(folder)


def test_a_shard_cut_short_is_named(folder: Path) -> None:
    shard = folder / "model-00003-of-00003.safetensors"
    shard.write_bytes(shard.read_bytes()[:-10])
    assert "model-00003-of-00003.safetensors: the weights cannot be read" in refusal(folder)


def test_pickles_are_not_loaded(folder: Path) -> None:
    for path in folder.glob("model*"):
        path.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n.")
    assert "pickles, which are never loaded" in refusal(folder)


def test_missing_unexpected_and_mis_shaped_tensors_are_named_at_once(folder: Path) -> None:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        del tensors["model.layers.0.self_attn.q_norm.weight"]
        tensors["model.layers.0.mlp.gate.weight"] = torch.zeros(2)
        tensors["model.norm.weight"] = torch.zeros(7)

    edit_weights(folder, change)
    said = refusal(folder)
    assert "1 missing (model.layers.0.self_attn.q_norm.weight)" in said
    assert "1 unexpected (model.layers.0.mlp.gate.weight)" in said
    assert "1 mis-shaped (model.norm.weight [7] instead of [32])" in said


def test_quantised_weights_are_refused(folder: Path) -> None:
    edit_weights(folder, lambda t: t.update({"lm_head.weight": t["lm_head.weight"].to(torch.int8)}))
    assert "1 not in a floating-point type (lm_head.weight I8)" in refusal(folder)
    edit(folder / "config.json", quantization_config={"quant_method": "fp8"})
    assert "quantised checkpoints are not supported" in refusal(folder)


def test_a_tied_head_may_be_saved_twice_but_not_differ(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, tied=True)
    embedding = "model.embed_tokens.weight"
    edit_weights(tmp_path, lambda t: t.update({"lm_head.weight": t[embedding].clone()}))
    load_model(tmp_path)
    edit_weights(tmp_path, lambda t: t.update({"lm_head.weight": t[embedding] + 1}))
    assert "set tie_word_embeddings to false" in refusal(tmp_path)


def test_an_untied_head_must_be_there(folder: Path) -> None:
    edit_weights(folder, lambda t: t.pop("lm_head.weight"))
    assert "1 missing (lm_head.weight)" in refusal(folder)


def test_leftover_rotary_buffers_are_ignored(folder: Path) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    edit_weights(folder, lambda t: t.update({name: torch.zeros(4)}))
    load_model(folder)


def test_too_little_memory_is_refused_before_a_weight_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dice.models.load.load_weights", lambda *_, **__: pytest.fail("read"))
    monkeypatch.setattr("dice.models.load.available_bytes", lambda _: 150_000)
    monkeypatch.setattr(memory, "available_bytes", lambda _: 150_000)
    said = refusal(folder)
    assert "too little memory: loading" in said
    assert "in bfloat16 (--dtype bfloat16)" in said
    monkeypatch.setattr("dice.models.load.available_bytes", lambda _: 1000)
    monkeypatch.setattr(memory, "available_bytes", lambda _: 1000)
    assert "load a smaller model" in refusal(folder)


def test_available_memory_heeds_the_tightest_control_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9000 kB\nMemAvailable: 5000 kB\n")
    monkeypatch.setattr(memory, "_MEMINFO", meminfo)
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path)
    assert memory.available_bytes("cpu") == 5000 * 1024
    (tmp_path / "memory.max").write_text("3000000\n")
    (tmp_path / "memory.current").write_text("2500000\n")
    (tmp_path / "memory.stat").write_text("anon 7\ninactive_file 200000\n")
    assert memory.available_bytes("cpu") == 700_000
    assert memory.available_bytes("meta") is None


def test_a_hub_id_fetches_the_small_files_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[list[str]] = []

    def fetch(name: str, *, allow_patterns: list[str]) -> str:
        assert name == "someone/SDAR-tiny"
        fetched.append(allow_patterns)
        return str(folder)

    monkeypatch.setattr("dice.models.fetch.snapshot_download", fetch)
    checkpoint = open_checkpoint("someone/SDAR-tiny")
    assert "*.safetensors" not in fetched[0]
    checkpoint.load()
    assert "*.safetensors" in fetched[1]

    def fail(name: str, *, allow_patterns: list[str]) -> str:
        raise OSError("offline")

    monkeypatch.setattr("dice.models.fetch.snapshot_download", fail)
    assert "could not be fetched from the hub: offline" in refusal("someone/SDAR-tiny")


def test_a_file_and_an_adapter_are_no_model(folder: Path, tmp_path: Path) -> None:
    assert "is a file" in refusal(folder / "config.json")
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "JetLM/SDAR"}')
    said = refusal(tmp_path)
    assert "is a LoRA adapter" in said
    assert "JetLM/SDAR" in said
