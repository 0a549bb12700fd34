"""Shrinking: what may change, what must not, and that the relations between numbers hold."""

import ast

import pytest
import torch

from dice.verify.measure import load_namespace, measure
from dice.verify.policy import Policy
from dice.verify.reduce import Measured, cost, reduce_code
from tests.data import shared_data

POLICY = Policy()
HEAD = "import torch\nimport torch.nn as nn\n"


def _reduced(body):
    return reduce_code(HEAD + body, measure, POLICY)


def _constants(code):
    return {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(code).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }


MATMUL = """
M, K, N = 2048, 4096, 1024
class Model(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.w = nn.Parameter(torch.randn(k, n))
    def forward(self, x):
        return x @ self.w
def get_inputs():
    return [torch.randn(M, K)]
def get_init_inputs():
    return [K, N]
"""


def test_small_problem_is_left_alone():
    code = HEAD + MATMUL.replace("2048, 4096, 1024", "64, 32, 16")
    assert reduce_code(code, measure, POLICY).code == code


def test_matmul_shrinks_and_still_fits_together():
    reduced = _reduced(MATMUL)
    assert reduced.measured.error is None
    assert cost(reduced.measured, POLICY) <= 1
    names = load_namespace(reduced.code)
    (x,) = names["get_inputs"]()
    assert names["Model"](*names["get_init_inputs"]())(x).shape == (names["M"], names["N"])
    assert any(change.startswith("K 4096 -> ") for change in reduced.changes)


CONVOLUTION = """
batch_size = 64
in_channels = 96
out_channels = 192
groups = 12
kernel_size = 5
stride = 2
height = width = 512
class Model(nn.Module):
    def __init__(self, i, o, k, s, g):
        super().__init__()
        self.conv = nn.Conv2d(i, o, k, stride=s, groups=g)
    def forward(self, x):
        return self.conv(x)
def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]
def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, groups]
"""


def test_kernel_stride_and_groups_stay_and_channels_stay_divisible():
    reduced = _reduced(CONVOLUTION)
    assert reduced.measured.error is None
    assert cost(reduced.measured, POLICY) <= 1
    names = load_namespace(reduced.code)
    assert (names["groups"], names["kernel_size"], names["stride"]) == (12, 5, 2)
    assert names["in_channels"] % 12 == 0
    assert names["batch_size"] >= 2


@pytest.mark.parametrize(
    ("sizes", "kept"),
    [
        ("2048, 1024, 512", "K"),
        ("512, 4096, 128", "N"),
        ("64, 8192, 8191", ""),
        ("96, 768, 3072", ""),
    ],
)
def test_sizes_that_differ_still_do(sizes, kept):
    """A kernel that takes one size for another must not pass."""
    reduced = _reduced(MATMUL.replace("2048, 4096, 1024", sizes))
    names = load_namespace(reduced.code)
    assert reduced.measured.error is None
    assert cost(reduced.measured, POLICY) <= 1
    assert len({names[name] for name in "MKN"}) == 3
    assert all(names[n] % 2 == int(s) % 2 for n, s in zip("MKN", sizes.split(","), strict=True))


def test_sizes_are_parted_by_a_batch_size_where_they_only_fit_smaller():
    body = """
batch_size = 64
height = 128
width = 256
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x).permute(0, 2, 3, 1)
def get_inputs():
    return [torch.rand(batch_size, 3, height, width)]
def get_init_inputs():
    return []
"""
    names = load_namespace(_reduced(body).code)
    sizes = [names[name] for name in ("batch_size", "height", "width")]
    assert sizes == [16, 32, 64]


LITERALS = """
class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(n))
    def forward(self, x):
        return x + self.bias
def get_inputs():
    return [torch.randn(8192, 2048)]
def get_init_inputs():
    return [2048]
"""


def test_equal_literals_shrink_together():
    reduced = _reduced(LITERALS)
    names = load_namespace(reduced.code)
    assert names["get_init_inputs"]()[0] == names["get_inputs"]()[0].shape[1]
    assert cost(reduced.measured, POLICY) <= 1


def test_odd_sizes_stay_odd():
    body = MATMUL.replace("2048, 4096, 1024", "8205, 2949, 5921")
    names = load_namespace(_reduced(body).code)
    assert [names[n] % 2 for n in "MKN"] == [1, 1, 1]


def test_products_are_one_number():
    reduced = _reduced(
        "SIZE = 1024 * 64 * 64\n" + LITERALS.replace("8192, 2048", "SIZE").replace("[2048]", "[1]")
    )
    assert reduced.changes
    assert reduced.changes[0].startswith("SIZE 4194304 -> ")
    assert isinstance(_constants(reduced.code)["SIZE"], int)


def test_labels_stay_below_the_number_of_classes():
    body = """
classes = 50000
class Model(nn.Module):
    def forward(self, x, y):
        return nn.functional.cross_entropy(x, y)
def get_inputs():
    return [torch.randn(4096, classes), torch.randint(0, classes, (4096,))]
def get_init_inputs():
    return []
"""
    names = load_namespace(_reduced(body).code)
    x, y = names["get_inputs"]()
    assert int(y.max()) < x.shape[1]
    assert x.shape[0] == y.shape[0]


def test_a_problem_that_cannot_shrink_is_returned_as_it_is():
    code = "x = 4096"
    reduced = reduce_code(code, lambda _: Measured(error="never runs"), POLICY)
    assert reduced.code == code
    assert reduced.measured.error == "never runs"


@pytest.mark.slow
def test_every_level_1_problem_of_kernelbench_shrinks():
    import json

    torch.set_num_threads(1)
    rows = map(json.loads, shared_data("kernelbench_v0.2.jsonl").read_text().splitlines())
    left = []
    for row in rows:
        if row["level"] == 1:
            reduced = reduce_code(row["code"], measure, POLICY)
            if reduced.measured.error or cost(reduced.measured, POLICY) > 1:
                left.append(row["name"])
    assert left == []
