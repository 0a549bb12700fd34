"""Every CUDA feature that the emulator covers, against torch, in fast and in check mode.

Check mode must agree with the oracle and find nothing: these kernels are correct.
"""

import types

import pytest
import torch

from dice.toolchain.simt.runtime import Runtime
from tests.integration.simt.conftest import Loader


@pytest.fixture(params=[True, False], ids=["check", "fast"])
def features(request: pytest.FixtureRequest, compiled: Loader) -> types.ModuleType:
    return compiled("features", request.param)


@pytest.fixture(autouse=True)
def nothing_found(emulator: Runtime, clean_state: None):
    """Whatever a test here runs, the checks must not find anything."""
    yield
    assert emulator.diagnostics() == []


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def test_three_dimensional_grids_and_blocks(features):
    out = features.box(5, 6, 7)
    z, y, x = torch.meshgrid(torch.arange(5), torch.arange(6), torch.arange(7), indexing="ij")
    assert torch.equal(out.long(), x + 100 * y + 10000 * z + 1000000 * (4 + 2))


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int64]
)
def test_padded_tile_in_shared_memory(features, dtype):
    x = (numbers(37, 21) * 10).abs().to(dtype)
    assert torch.equal(features.transpose(x), x.t())


def test_dynamic_shared_memory_and_array_of_structs(features):
    x = numbers(5, 300)
    assert torch.equal(features.argmax(x), x.argmax(1))


def test_warp_operations(features):
    x = torch.randint(0, 100, (64,), generator=torch.Generator().manual_seed(2), dtype=torch.int32)
    rows = features.warp(x)
    v = x.long()
    lane, base = torch.arange(64) % 32, torch.arange(64) // 32 * 32

    def per_warp(f):
        return torch.cat([f(v[:32]).expand(32), f(v[32:]).expand(32)])

    def take(source, inside):
        return torch.where(inside, v[(base + source).clamp(0, 63)], v)

    bits = 1 << torch.arange(32)
    expected = [
        v[base + 5],
        v[base + lane // 8 * 8 + (lane + 3) % 8],
        take(lane - 2, lane % 16 >= 2),
        take(lane + 4, lane + 4 < 32) << 33,
        v[base + (lane ^ 7)],
        per_warp(lambda w: ((w & 1) * bits).sum()),
        per_warp(lambda w: (w > 90).any().long()),
        torch.ones(64, dtype=torch.long),
        per_warp(lambda w: w.sum()),
        per_warp(lambda w: w.max()),
        torch.stack(
            [((v[b : b + 32] % 3 == r % 3) * bits).sum() for b, r in zip(base, v, strict=True)]
        ),
        (v & 1).sum().expand(64),
        torch.ones(64, dtype=torch.long),
        torch.zeros(64, dtype=torch.long),
        torch.full((64,), 32),
        torch.where(lane < 16, take(lane + 8, lane + 8 < 16), 0),
        2 * v[base + 31],
    ]
    for index, (row, want) in enumerate(zip(rows, expected, strict=True)):
        assert torch.equal(row, want), f"row {index}"


def test_atomics(features, emulator):
    emulator.set_threads(2)
    x = torch.randint(0, 1000, (300,), generator=torch.Generator().manual_seed(3)).int()
    v = x.long()
    ands, ors, xors = -1, 0, 0
    for value in v.tolist():
        ands, ors, xors = ands & (value | 16), ors | value, xors ^ value
    block_tops = sum(int(part.max()) for part in v.split(64))
    total = int(v.sum())
    expected = [total, int(v.max()), int(v.min()), ands, ors, xors, -total, block_tops]
    expected += [total / 2, float(v.max()), total / 4, 300, 300 % 10]
    assert features.atomics(x).tolist() == expected


def test_math_functions(features):
    x = numbers(50).abs() + 0.1
    want = [
        x.exp(), x.log(), x / 3, x.rsqrt(), 1 / x, x * 3 + 0.5, x.erf(), x**1.5, x.tanh(),
        x.clamp(min=1) + x.clamp(max=1), torch.special.ndtr(x), x.clamp(0, 1), (x * 2).round(), x,
        x ** (-1 / 3), 2 * x,
    ]  # fmt: skip
    torch.testing.assert_close(features.math(x), torch.stack(want), rtol=2e-6, atol=1e-6)


def test_integer_functions(features):
    x = torch.tensor([0, 1, 2, 12345, 0x7FFFFFFF, 0x00ABCDEF], dtype=torch.int32)
    rows = features.integers(x).tolist()
    for column, v in enumerate(x.tolist()):
        low24 = (v & 0xFFFFFF) - ((v & 0x800000) << 1)
        product = (low24 * 3 + 2**31) % 2**32 - 2**31
        want = [
            v.bit_count(), 32 - v.bit_length(), (v & -v).bit_length(), int(f"{v:032b}"[::-1], 2),
            v * 0x80000001 >> 32, product, int.from_bytes(v.to_bytes(4, "little"), "big"),
            2 * v.bit_count(),
        ]  # fmt: skip
        assert [row[column] for row in rows] == want


def test_vector_types_and_a_ragged_tail(features):
    x = numbers(203)
    want = x.clone()
    q = x[:200].view(-1, 4)
    want[:200] = torch.stack([q[:, 0] + q[:, 1], q[:, 1] * 2, q[:, 2] - 1, q[:, 3]], 1).flatten()
    want[201:] += 1
    assert torch.equal(features.vectors(x), want)


def test_half_arithmetic(features):
    a, b = numbers(64).half(), numbers(64).flip(0).half()
    half = features.halves(a, b)
    fma = (a.float() * b.float() + 1).half()
    want = [a + b, fma, a * b - 0.5, a.float().exp().half(), a * (b + 1), torch.maximum(a, b)]
    torch.testing.assert_close(half, torch.stack(want), rtol=1e-3, atol=1e-4)


def test_bfloat16_arithmetic(features):
    a = numbers(32).bfloat16()
    assert torch.equal(features.bf16(a), torch.stack([a * 3, a + a]))


def test_cooperative_groups_and_cub(features):
    x = numbers(256)
    sums = features.groups(x)
    want = torch.stack([x.sum(), x.view(-1, 4).amax(1).sum(), x.sum()])
    torch.testing.assert_close(sums[:3], want, rtol=1e-5, atol=1e-5)
    assert sums[3] == (x > 0).sum()


def test_runtime_calls_and_accessors(features):
    x = numbers(9, 12)
    out = features.runtime_calls(x)
    torch.testing.assert_close(out[0], x.trace())
    assert out[1:].tolist() == [0, 0, 0]


def test_last_block_sums_up(features, emulator):
    emulator.set_threads(2)
    x = numbers(1000)
    for _ in range(2):
        torch.testing.assert_close(features.last_block(x)[0], x.sum(), rtol=1e-5, atol=1e-4)


def test_softmax(features):
    x = numbers(6, 333)
    torch.testing.assert_close(features.softmax(x), x.softmax(1))


def test_matrix_product_by_cublas(features):
    a, b = numbers(5, 7), numbers(7, 6)
    torch.testing.assert_close(features.gemm(a, b), a @ b)


def test_host_checks_become_python_exceptions(features):
    with pytest.raises(RuntimeError, match="seven dimensions wanted, got 1"):
        features.throws(numbers(3))


def test_tensors_made_before_the_checks_are_inputs_all_the_same(features):
    import numpy

    x = torch.from_numpy(numpy.ones(203, dtype=numpy.float32))
    assert features.vectors(x)[0] == 2
