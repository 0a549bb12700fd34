"""PyTorch's own speed, on a CPU: batches by name, what is missing and why, a process of its own, a cache."""

import json

import pytest
import torch

from dice.errors import SandboxError
from dice.verify.timing import clean
from dice.verify.timing.baseline import time_problem
from dice.verify.timing.settings import TimingSettings

SETTINGS = TimingSettings(batches=3, batch_ms=1.0, max_calls=8, input_sets=2)
PROBLEM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.linear = nn.Linear(n, n)

    def forward(self, x):
        return torch.relu(self.linear(x))

def get_inputs():
    return [torch.randn(8, 64)]

def get_init_inputs():
    return [64]
"""


def job(**changes):
    base = {
        "do": "baselines",
        "device": "cpu",
        "code": PROBLEM,
        "construction_seed": 42,
        "seed": 0,
        "compile": False,
        "settings": {name: getattr(SETTINGS, name) for name in SETTINGS.__dataclass_fields__},
    }
    return {**base, **changes}


def test_eager_batches_have_both_clocks():
    found = time_problem(job(), SETTINGS)
    assert found["missing"] == {}
    eager = found["batches"]["eager"]
    assert len(eager) == 3
    for batch in eager:
        assert len(batch["calls_us"]) <= 8
        assert 0 < sum(batch["calls_us"]) < batch["wall_us"]


def test_what_cannot_be_compiled_is_missing_and_says_why(monkeypatch):
    def broken(model, **_):
        def call(*_):
            raise RuntimeError("no such lowering\nand a long log")

        return call

    monkeypatch.setattr(torch, "compile", broken)
    found = time_problem(job(compile=True), SETTINGS)
    assert list(found["batches"]) == ["eager"]
    assert found["missing"] == {"compile": "torch.compile: RuntimeError: no such lowering"}


def test_a_compiled_side_is_timed_too(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda model, **_: model)
    found = time_problem(job(compile=True), SETTINGS)
    assert len(found["batches"]["compile"]) == 3


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DICE_CACHE", str(tmp_path))
    return tmp_path / "timing"


def test_a_clean_process_measures_once(cache):
    first = clean.run_clean(job(), key="this machine", visible="")
    assert len(first["batches"]["eager"]) == 3
    assert clean.run_clean(job(), key="this machine", visible="") == first
    assert len(list(cache.glob("*.json"))) == 1
    assert not list(cache.glob("*.tmp"))


def test_another_machine_or_problem_is_measured_anew(cache, monkeypatch):
    measured = []
    monkeypatch.setattr(clean, "_measured", lambda job, visible: measured.append(job) or {"n": 1})
    for one in (job(), job(code=PROBLEM + "#"), job(seed=1)):
        clean.run_clean(one, key="a", visible="0")
    clean.run_clean(job(), key="b", visible="0")
    clean.run_clean(job(), key="b", visible="0")
    assert len(measured) == 4


def test_a_process_that_fails_says_why_and_leaves_no_result(cache):
    broken = job(code=PROBLEM.replace("get_inputs", "get_nothing"))
    with pytest.raises(SandboxError, match="get_inputs"):
        clean.run_clean(broken, key="this machine", visible="")
    assert not list(cache.glob("*.json"))


def test_half_a_result_is_none(cache, monkeypatch, tmp_path):
    """The process writes under another name and renames."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.json").write_text(json.dumps(job()))
    assert clean.main(str(tmp_path)) == 0
    assert json.loads((tmp_path / "result.json").read_text())["missing"] == {}
    assert not (tmp_path / "result.tmp").exists()
