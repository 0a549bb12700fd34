"""The main job as a user runs it: the installed `dice` command in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "bias_gelu.py"
CONTRACT = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.randn(64, 33)]
def get_init_inputs():
    return []
"""


def dice(
    *args: str | Path, cwd: Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command; neither the caller's terminal width nor its colours leak in."""
    return subprocess.run(
        [sys.executable, "-c", "from dice.cli.main import main; main()", *map(str, args)],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "80", **(env or {})},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.fixture(scope="module")
def generated(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("generate")
    result = dice("generate", EXAMPLE, "--trace", "trace.jsonl", cwd=folder)
    return folder, result


def test_a_kernel_is_written_and_verified(
    generated: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, result = generated
    assert result.returncode == 0, result.stdout + result.stderr
    assert "4 candidates from nano" in result.stdout
    assert ": correct" in result.stdout
    assert "bias_gelu_kernel.py" in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 80
    text = (folder / "bias_gelu_kernel.py").read_text()
    assert "class ModelNew" in text
    assert "# Verdict: correct" in text
    assert "# nvcc: " in text
    assert sorted(p.name for p in folder.iterdir()) == ["bias_gelu_kernel.py", "trace.jsonl"]


def test_the_trace_replays_to_the_completions(
    generated: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    lines = [json.loads(line) for line in (generated[0] / "trace.jsonl").read_text().splitlines()]
    completions = [r for r in lines if r["type"] == "completion"]
    assert len(completions) == 4
    replayed: list[dict[int, int]] = [{} for _ in completions]
    for row in lines:
        if row["type"] == "step":
            replayed[row["request"]].update(zip(row["positions"], row["token_ids"], strict=True))
    for completion, tokens in zip(completions, replayed, strict=True):
        written = {
            i: t
            for i, t in enumerate(completion["token_ids"])
            if completion["steps"][i] is not None
        }
        assert tokens == written


def test_the_written_file_verifies_and_the_same_seed_gives_the_same_result(
    generated: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    kernel = generated[0] / "bias_gelu_kernel.py"
    verified = dice("verify", EXAMPLE, kernel, "--json", cwd=tmp_path)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert json.loads(verified.stdout)["kind"] == "correct"
    again = dice("generate", EXAMPLE, "--json", cwd=tmp_path)
    payload = json.loads(again.stdout)
    assert payload["written"] == "bias_gelu_kernel.py"
    assert (tmp_path / "bias_gelu_kernel.py").read_text() == kernel.read_text()


def test_a_wrong_candidate_exits_with_1_and_says_why(
    generated: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    code = (generated[0] / "bias_gelu_kernel.py").read_text()
    broken = tmp_path / "broken.py"
    broken.write_text(code.replace("out[", "if (false) out["))
    assert broken.read_text() != code
    result = dice("verify", EXAMPLE, broken, "--json", cwd=tmp_path)
    assert result.returncode == 1
    assert json.loads(result.stdout)["kind"] in ("wrong", "unsafe")


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (None, "no such file"),
        ("x = (", "not valid Python"),
        ("import torch\n", "no class `Model`"),
        (CONTRACT.replace("return [torch.randn(64, 33)]", "raise KeyError('boom')"), "get_inputs"),
    ],
)
def test_bad_problems_exit_with_2_and_a_message(
    code: str | None, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "problem.py"
    if code is not None:
        path.write_text(code)
    result = dice("generate", path, cwd=tmp_path)
    assert result.returncode == 2, result.stdout + result.stderr
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.glob("*_kernel.py"))


def test_without_a_compiler_the_message_says_what_to_install(tmp_path: Path) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    result = dice("generate", EXAMPLE, cwd=tmp_path, env={"PATH": str(empty), "CXX": ""})
    assert result.returncode == 2, result.stdout + result.stderr
    assert "g++" in result.stderr


@pytest.mark.parametrize(
    "option", [["--model", "no/such/folder"], ["--candidates", "0"], ["--out", "no/k.py"]]
)
def test_bad_options_exit_with_2(option: list[str], tmp_path: Path) -> None:
    assert dice("generate", EXAMPLE, *option, cwd=tmp_path).returncode == 2


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_a_file_of_the_users_is_never_overwritten(tmp_path: Path) -> None:
    mine = tmp_path / "bias_gelu_kernel.py"
    mine.write_text("precious = True\n")
    result = dice("generate", EXAMPLE, cwd=tmp_path)
    assert result.returncode == 2
    assert mine.read_text() == "precious = True\n"
