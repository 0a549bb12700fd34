"""Unusual problems, judged from end to end with candidates in plain PyTorch, which this policy accepts."""

import pytest

from dice.errors import ToolchainError
from dice.types import Candidate, Problem
from dice.verify import Judge, Policy

HEAD = "import torch\nimport torch.nn as nn\n"
INIT = "def get_init_inputs():\n    return []\n"


@pytest.fixture(scope="module")
def judge():
    try:
        judge = Judge(Policy(pytorch="correct"))
    except ToolchainError as error:
        pytest.skip(str(error))
    with judge:
        yield judge


def _module(name, body, init=""):
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    made = f"    def __init__(self):\n        super().__init__()\n        {init}\n" if init else ""
    return f"class {name}(nn.Module):\n{made}    def forward(self, x, *more):\n{lines}"


def _judge(judge, reference, candidate, inputs="[torch.randn(6, 7)]", init="", own_init=None):
    code = HEAD + _module("Model", reference, init)
    code += f"def get_inputs():\n    return {inputs}\n" + INIT
    own = HEAD + _module("ModelNew", candidate, init if own_init is None else own_init)
    prepared = judge.prepare(Problem(name="p", code=code))
    return judge.judge(prepared, Candidate(problem="p", code=own))


@pytest.mark.parametrize(
    ("reference", "good", "bad"),
    [
        ("return x, x.sum(1)", "return [x + 0, x.sum(1)]", "return x + 0, x.sum(0)"),
        ("return {'a': x.exp(), 'n': None}", "return {'n': None, 'a': x.exp()}", "return {'a': x.exp()}"),
        ("return x.sum(1), None", "return x.sum(1), None", "return x.sum(1), x"),
        ("return (x * 2, [x.sum(1), 3])", "return (x + x, [x.sum(1), 3])", "return (x + x, [x.sum(1), 4])"),
        ("return x > 0", "return ~(x <= 0)", "return (x > 0).int()"),
        ("return x.argsort(1)", "return x.sort(1).indices", "return x.argsort(1).int()"),
        ("return (x * 5).round().to(torch.int16)", "return (x * 5).round().short()", "return (x * 5).round() "),
        ("return x.sum().item()", "return float(x.sum())", "return float(x.sum()) + 1"),
    ],
)  # fmt: skip
def test_outputs_are_compared_with_their_structure_and_dtype(judge, reference, good, bad):
    assert _judge(judge, reference, good).correct
    verdict = _judge(judge, reference, bad)
    assert verdict.kind == "wrong"
    assert verdict.evidence[0].kind == "wrong_output"


def test_inputs_may_be_numbers_strings_and_lists(judge):
    inputs = "[torch.randn(6, 7), 3, [torch.randn(7), torch.randn(7)], 'mean', 0.5, None]"
    body = "n, pair, mode, scale, none = more\nassert mode == 'mean' and none is None\n"
    good = body + "return x * n + pair[0] - pair[1] * scale"
    assert _judge(judge, good, good, inputs=inputs).correct
    assert _judge(judge, good, good.replace("pair[1]", "pair[0]"), inputs=inputs).kind == "wrong"


def test_a_random_reference_is_untestable(judge):
    verdict = _judge(judge, "return x + torch.rand_like(x)", "return x + 0.5")
    assert verdict.kind == "untestable"
    assert verdict.evidence[0].kind == "random_reference"


def test_state_that_changes_from_call_to_call_is_compared_in_order(judge):
    init = "self.norm = nn.BatchNorm1d(7, momentum=0.5)"
    body = "y = self.norm(x)\nreturn y + self.norm.running_mean"
    assert _judge(judge, body, body, init=init).correct
    frozen = "y = nn.functional.batch_norm(x, None, None, self.norm.weight, self.norm.bias, True)\n"
    frozen += "return y + self.norm.running_mean"
    assert _judge(judge, body, frozen, init=init).kind == "wrong"


def test_weights_without_a_counterpart_are_named(judge):
    init = "self.scale = nn.Parameter(torch.rand(7))"
    own = "self.other = nn.Parameter(torch.full((7,), 2.0))"
    verdict = _judge(
        judge, "return x * self.scale", "return x * self.other", init=init, own_init=own
    )
    assert verdict.kind == "wrong"
    unmatched = [one for one in verdict.evidence if one.kind == "unmatched_weights"]
    assert unmatched[0].details == {"names": ["scale"]}


def test_a_half_precision_output_has_its_own_tolerance(judge):
    inputs = "[torch.randn(6, 7).half()]"
    body = "return x * 3 + 1"
    assert _judge(judge, body, "return (x.float() * 3 + 1).half()", inputs=inputs).correct
    assert _judge(judge, body, "return x.float() * 3 + 1", inputs=inputs).kind == "wrong"
    assert _judge(judge, body, "return x * 3 + 1.1", inputs=inputs).kind == "wrong"


def test_float32_in_half_precision_passes_only_when_declared(judge):
    from dataclasses import replace

    body, half = "return x * 3 + 1", "return (x.half() * 3 + 1).float()"
    assert _judge(judge, body, half).kind == "wrong"
    declared = replace(judge.policy, precision="float16")
    judge.policy, kept = declared, judge.policy
    try:
        assert _judge(judge, body, half).correct
    finally:
        judge.policy = kept


def test_what_pytorch_alone_earns_is_the_policys_decision(judge):
    verdict = _judge(judge, "return x.exp()", "return x.exp()")
    assert verdict.correct
    assert verdict.attribution == "pytorch"
