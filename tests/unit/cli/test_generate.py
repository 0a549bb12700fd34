"""`dice generate` over checkpoints: every refusal exits with 2 before the judge is opened."""

import ast
import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dice.cli.generate import sampling_plan
from dice.cli.main import main
from dice.models import memory
from dice.models.generation import GenerationDefaults
from dice.types import Candidate, Problem, Verdict, VerdictKind
from tests.unit.models.published import write_checkpoint

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.randn(64, 33)]
def get_init_inputs():
    return []
"""
Refuse = Callable[..., str]


@pytest.fixture
def refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Refuse:
    """Runs the command over `tmp_path/model`; returns what it said before it exited with 2."""
    write_checkpoint(tmp_path / "model")
    (tmp_path / "p.py").write_text(PROBLEM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dice.cli.machine.open_judge", lambda *_, **__: pytest.fail("work"))

    def run(*words: str) -> str:
        monkeypatch.setattr(
            sys, "argv", ["dice", "generate", "p.py", "--model", "model", "--device", "cpu", *words]
        )
        with pytest.raises(SystemExit) as caught:
            main()
        assert caught.value.code == 2
        return capsys.readouterr().err

    return run


def edit(path: str, **changes: Any) -> None:
    content = json.loads(Path(path).read_text())
    Path(path).write_text(json.dumps(content | changes))


def test_a_model_that_does_not_fit_is_refused(refuse: Refuse) -> None:
    edit("model/config.json", num_hidden_layers=3)
    assert "11 missing (model.layers.2." in refuse()
    edit("model/config.json", num_hidden_layers=1)
    assert "11 unexpected (model.layers.1." in refuse()
    edit("model/config.json", num_hidden_layers=2, intermediate_size=64)
    assert "6 mis-shaped (model.layers.0.mlp.down_proj.weight [32, 48]" in refuse()
    edit("model/config.json", intermediate_size=48, mask_token_id=271)
    assert "the tokenizer has no mask token" in refuse()
    edit("model/config.json", model_type="qwen3")
    assert "is not an SDAR config" in refuse()


def test_prompts_that_do_not_fit_are_refused(refuse: Refuse) -> None:
    assert "exceeds the model's 8192 positions" in refuse("--max-new-tokens", "8000")
    assert "exceeds the block size 4" in refuse("--steps", "5")
    edit("model/generation_config.json", template="mine")
    assert "no prompt template 'mine'" in refuse()
    edit("model/generation_config.json", template="kernelbench", remasking_strategy="guess")
    assert "unknown remasking_strategy 'guess'" in refuse()


def test_a_checkpoint_without_chat_template_is_refused(refuse: Refuse) -> None:
    Path("model/chat_template.jinja").unlink()
    edit("model/tokenizer_config.json", chat_template=None)
    assert "has no chat template" in refuse()


def test_too_little_memory_for_weights_and_decoding_is_refused(
    refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda _: 10_000_000)
    assert "too little memory: loading model in float32" in refuse("--candidates", "200")


def test_an_adapter_a_device_or_a_skeleton_that_cannot_be_used_is_refused(refuse: Refuse) -> None:
    assert "no model folder nothing" in refuse("--adapter", "nothing")
    assert "has no adapter_config.json" in refuse("--adapter", "model")
    assert "no such kind of device" in refuse("--device", "tpu9")
    assert "usable GPUs" in refuse("--device", "cuda:99")
    assert "belong together" in refuse("--prefix", "p.py")
    assert "cannot be read" in refuse("--prefix", "p.py", "--suffix", "absent.py")


class TrustingJudge:
    """Calls every file correct that Python can parse and that names ModelNew."""

    def prepare(self, problem: Problem) -> Any:
        return SimpleNamespace(problem=problem)

    def judge(self, prepared: Any, candidate: Candidate) -> Verdict:
        try:
            ast.parse(candidate.code)
        except (SyntaxError, ValueError):
            return Verdict(kind=VerdictKind.COMPILE_ERROR)
        named = "class ModelNew" in candidate.code
        return Verdict(kind=VerdictKind.CORRECT if named else VerdictKind.COMPILE_ERROR)


@pytest.mark.parametrize("tied", [False, True])
def test_a_folder_in_the_published_layout_generates(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tied: bool,
) -> None:
    write_checkpoint(tmp_path / "model", tied=tied)
    (tmp_path / "p.py").write_text(PROBLEM)
    (tmp_path / "prefix.py").write_text("class ModelNew:  # ")
    (tmp_path / "suffix.py").write_text("\n    pass")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "dice.cli.machine.open_judge", lambda *_, **__: nullcontext(TrustingJudge())
    )
    words = ["--model", "model", "--device", "cpu", "--max-new-tokens", "5", "--candidates", "3"]

    def run(*more: str) -> tuple[int, dict[str, Any]]:
        monkeypatch.setattr(sys, "argv", ["dice", "generate", "p.py", *words, "--json", *more])
        with pytest.raises(SystemExit) as caught:
            main()
        return int(caught.value.code or 0), json.loads(capsys.readouterr().out)

    code, result = run()
    assert code == 1  # what a random model writes is no kernel
    assert [one["seed"] for one in result["candidates"]] == [0, 1, 2]
    assert all(one["tokens"] >= 5 for one in result["candidates"])
    code, result = run("--prefix", "prefix.py", "--suffix", "suffix.py")
    for one in result["candidates"]:
        assert one["code"].startswith("class ModelNew:  # ")
        assert one["code"].endswith("\n    pass\n")
    assert code == 0
    assert (tmp_path / "p_kernel.py").exists()
    assert run("--prefix", "prefix.py", "--suffix", "suffix.py", "--force")[1] == result


def plan(defaults: GenerationDefaults, **chosen: Any) -> Any:
    options = {"temperature": None, "threshold": None, "steps": None, "max_new_tokens": None}
    return sampling_plan(2, 5, defaults, **{**options, **chosen})


def test_the_generation_config_fills_in_what_the_user_left_open() -> None:
    defaults = GenerationDefaults(
        temperature=0.6, top_k=20, top_p=0.95, denoising_steps=2, confidence_threshold=0.7
    )
    greedy, warm = plan(defaults)
    assert (greedy.temperature, warm.temperature) == (0.0, 0.6)
    assert (warm.top_k, warm.top_p, warm.denoising_steps, warm.seed) == (20, 0.95, 2, 6)
    assert (warm.confidence_threshold, warm.max_new_tokens) == (0.7, 4096)
    (_, warm) = plan(defaults, temperature=1.2, threshold=0.9, max_new_tokens=64)
    assert (warm.temperature, warm.confidence_threshold, warm.max_new_tokens) == (1.2, 0.9, 64)
    assert plan(defaults, steps=3)[0].remasking_strategy == "low_confidence_static"
    assert plan(GenerationDefaults(temperature=0.0))[1].temperature == 1.0
