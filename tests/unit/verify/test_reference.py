"""Preparing a problem: the author's mistakes get a message that helps, good problems get their data."""

import pytest
import torch

from dice.errors import ProblemError
from dice.sandbox import Zygote
from dice.types import Problem
from dice.verify.policy import Policy
from dice.verify.reference import prepare

HEAD = "import torch\nimport torch.nn as nn\n"
MODEL = """
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""
INIT = "def get_init_inputs():\n    return []\n"
INPUTS = "def get_inputs():\n    return [torch.randn(8, 9)]\n"


@pytest.fixture(scope="module")
def zygote():
    with Zygote(preload=("dice.verify.warm:warm_up",)) as zygote:
        yield zygote


def _prepare(zygote, code, **policy):
    return prepare(Problem(name="p", code=HEAD + code), zygote, Policy(**policy))


def test_a_good_problem_gives_six_input_sets_and_an_oracle(zygote):
    prepared = _prepare(zygote, MODEL + INPUTS + INIT)
    assert prepared.findings == ()
    assert not prepared.reduced
    assert len(prepared.cases) == 6
    assert len({case.path.read_bytes() for case in prepared.cases}) == 6
    for case in prepared.cases:
        assert case.oracle.dtype == torch.float64
        assert torch.equal(case.reference.double(), case.oracle)


def test_the_same_seed_gives_the_same_inputs_and_another_seed_others(zygote):
    code = MODEL + INPUTS + INIT
    runs = [_prepare(zygote, code, seed=seed) for seed in (0, 0, 1)]
    texts = [[case.path.read_bytes() for case in run.cases] for run in runs]
    assert texts[0] == texts[1]
    assert not set(texts[0]) & set(texts[2])


def test_variations_keep_to_what_the_problem_permits(zygote):
    code = MODEL.replace("torch.relu(x)", "torch.log(x)") + INPUTS.replace("randn", "rand") + INIT
    variations = [case.variation for case in _prepare(zygote, code).cases]
    assert "negated" not in variations
    assert not {"a row of zeros", "zeros mixed in"} & set(variations)


def test_inputs_that_overflow_float16_are_not_used_where_it_may_be_computed_in(zygote):
    code = MODEL + INPUTS + INIT
    tried = [case.variation for case in _prepare(zygote, code).cases]
    assert "rows lowered" in tried
    declared = [case.variation for case in _prepare(zygote, code, precision="float16").cases]
    assert declared == [one if one != "rows lowered" else "plain" for one in tried]


def test_labels_are_never_varied(zygote):
    code = """
class Model(nn.Module):
    def forward(self, x, y):
        return nn.functional.cross_entropy(x, y)
def get_inputs():
    return [torch.randn(8, 5), torch.randint(0, 5, (8,))]
"""
    assert len(_prepare(zygote, code + INIT).cases) == 6


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (MODEL + "def get_inputs():\n    return [torch.randn(1 / 0)]\n" + INIT,
         r"get_inputs\(\) raised ZeroDivisionError: division by zero \(line 8\)"),
        (MODEL + "def get_inputs():\n    return torch.randn(3)\n" + INIT, "returned Tensor, not the list"),
        (MODEL + "def get_inputs():\n    return [3]\n" + INIT, "returned no tensor"),
        (MODEL + INPUTS + "def get_init_inputs():\n    return 3\n", "returned int, not the list"),
        (MODEL + INPUTS + "def get_init_inputs():\n    return [3]\n", r"Model\(.*\) raised TypeError"),
        (MODEL.replace("torch.relu(x)", "x @ x") + INPUTS + INIT, "Model.forward raised RuntimeError"),
        (MODEL.replace("torch.relu(x)", "None") + INPUTS + INIT, "returned NoneType"),
        ("import no_such_module_anywhere\n" + MODEL + INPUTS + INIT, "ModuleNotFoundError"),
        ("import os\nos._exit(3)\n" + MODEL + INPUTS + INIT, "ended its process"),
    ],
)  # fmt: skip
def test_the_authors_mistakes_are_explained(zygote, code, message):
    with pytest.raises(ProblemError, match=message):
        _prepare(zygote, code)


def test_a_problem_for_a_gpu_runs_without_one(zygote):
    code = MODEL + INPUTS.replace("randn(8, 9)", "randn(8, 9, device='cuda').cuda()") + INIT
    assert len(_prepare(zygote, code).cases) == 6


def test_a_large_problem_is_reduced_and_says_so(zygote):
    prepared = _prepare(zygote, MODEL + INPUTS.replace("8, 9", "65536, 4096") + INIT)
    assert prepared.reduced
    assert any("65536 -> " in note for note in prepared.notes)
    assert prepared.cases[0].reference.numel() <= Policy().max_elements


def test_a_problem_without_end_is_stopped(zygote):
    from dice.sandbox import Limits

    code = "while True:\n    pass\n" + MODEL + INPUTS + INIT
    with pytest.raises(ProblemError, match="did not finish"):
        _prepare(zygote, code, reference_limits=Limits(wall_s=1.0))


@pytest.mark.parametrize(
    ("body", "finding"),
    [
        ("torch.zeros_like(x)", "zero_output"),
        ("x * 0 + 7", "constant_output"),
        ("torch.arange(8.0)", "ignores_inputs"),
        ("nn.functional.dropout(x)", "random_reference"),
        ("torch.log(-x.abs() - 1)", "nan_reference"),
    ],
)
def test_untestable_problems_are_found(zygote, body, finding):
    code = MODEL.replace("torch.relu(x)", body) + INPUTS + INIT
    assert finding in [one.kind for one in _prepare(zygote, code).findings]


def test_weights_that_do_not_matter_are_found(zygote):
    code = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(9))
    def forward(self, x):
        return torch.softmax(x + self.bias.sum(), dim=1)
"""
    findings = _prepare(zygote, code + INPUTS + INIT).findings
    assert [one.kind for one in findings] == ["ignores_weights"]


def test_weights_that_forward_never_uses_are_only_noted(zygote):
    code = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.unused = nn.Parameter(torch.randn(9))
    def forward(self, x):
        return x.min(dim=1)[0].sum(dim=0, keepdim=True)
"""
    prepared = _prepare(zygote, code + INPUTS + INIT)
    assert prepared.findings == ()
    assert any("never uses" in note for note in prepared.notes)


def test_batch_norm_in_training_mode_is_handled(zygote):
    code = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(9)
    def forward(self, x):
        return self.norm(x)
"""
    assert _prepare(zygote, code + INPUTS + INIT).findings == ()


def test_the_problem_cannot_write_outside(zygote, tmp_path):
    target = tmp_path / "planted"
    code = f"open({str(target)!r}, 'w')\n" + MODEL + INPUTS + INIT
    with pytest.raises(ProblemError, match="PermissionError"):
        _prepare(zygote, code)
    assert not target.exists()


def test_the_warm_parent_has_one_thread(caplog):
    with Zygote(preload=("dice.verify.warm:warm_up",)):
        assert caplog.records == []
