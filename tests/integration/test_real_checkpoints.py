"""`dice generate` from a folder in the published layout to a judged file; and the real 1.7B shape."""

import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from dice.cli.main import main
from dice.models.generation import GenerationDefaults
from dice.models.load import load_model, save_model
from dice.models.memory import available_bytes
from dice.models.sdar import SdarConfig
from dice.models.weights import empty_model
from dice.prompts import template_texts
from tests.unit.models.published import (
    ENDOFTEXT,
    IM_END,
    MASK,
    write_checkpoint,
    write_tokenizer,
)

GIB = 2**30


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_generate_with_a_published_folder_fills_in_a_kernel_file_that_verifies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = template_texts("kernelbench")["kernelbench"]
    problem, kernel = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[:2]
    write_checkpoint(tmp_path / "model", tied=True)
    (tmp_path / "p.py").write_text(problem)
    # What a random model writes lands in a comment, so the template's own example is what is judged.
    (tmp_path / "prefix.py").write_text(f"{kernel}\n# ")
    (tmp_path / "suffix.py").write_text("\n# end")
    monkeypatch.chdir(tmp_path)
    words = ["--model", "model", "--device", "cpu", "--candidates", "1", "--max-new-tokens", "3"]
    words += ["--prefix", "prefix.py", "--suffix", "suffix.py"]
    monkeypatch.setattr(sys, "argv", ["dice", "generate", "p.py", *words])
    with pytest.raises(SystemExit) as caught:
        main()
    said = capsys.readouterr()
    assert caught.value.code == 0, said.out + said.err
    written = (tmp_path / "p_kernel.py").read_text()
    assert f"{kernel}\n# " in written
    assert written.endswith("\n# end\n")
    assert "model, seed 0" in written


@pytest.mark.large
def test_a_checkpoint_of_the_real_1_7b_shape_round_trips(tmp_path: Path) -> None:
    if (available_bytes("cpu") or 0) < 12 * GIB:
        pytest.skip("needs 12 GiB of memory: the model in bfloat16 twice, and its mapped files")
    if shutil.disk_usage(tmp_path).free < 5 * GIB:
        pytest.skip("needs 5 GiB of disk")
    config = SdarConfig(
        hidden_size=2048,
        intermediate_size=6144,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        tie_word_embeddings=True,
        mask_token_id=MASK,
        eos_token_id=ENDOFTEXT,
    )
    model = empty_model(config).to(torch.bfloat16).to_empty(device="cpu")
    model.tie_weights()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():  # every bit pattern of a finite bfloat16 occurs
            bits = torch.empty(parameter.shape, dtype=torch.int16)
            bits.random_(-(2**15), 2**15, generator=generator)
            parameter.copy_(bits.view(torch.bfloat16).nan_to_num_(1.0, 2.0, 3.0))
    (tmp_path / "tokenizer").mkdir()
    write_tokenizer(tmp_path / "tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "tokenizer", trust_remote_code=False)
    generation = GenerationDefaults(eos_token_id=(IM_END, ENDOFTEXT))
    try:
        save_model(tmp_path / "saved", model, tokenizer, generation, max_shard_size="1GB")
        shards = sorted((tmp_path / "saved").glob("*.safetensors"))
        assert len(shards) == 4
        assert sum(shard.stat().st_size for shard in shards) == pytest.approx(
            2 * 1_720_574_976, rel=1e-4
        )
        loaded = load_model(tmp_path / "saved", dtype=torch.bfloat16)
        again = loaded.model.state_dict()
        for name, tensor in model.state_dict().items():
            assert torch.equal(again[name].view(torch.int16), tensor.view(torch.int16)), name
        assert loaded.model.lm_head.weight is loaded.model.model.embed_tokens.weight
        assert loaded.stop_token_ids == {IM_END, ENDOFTEXT}
    finally:
        shutil.rmtree(tmp_path / "saved", ignore_errors=True)
