"""Inputs of timed calls are new and of the same kind; facts of a problem are what can be counted by hand."""

import torch

from dice.verify.timing.calls import TimedCalls
from dice.verify.timing.ceilings import measure_ceilings
from dice.verify.timing.facts import facts_of
from dice.verify.timing.loop import NOISE, HostStopwatch, fresh


def test_fresh_values_are_reproducible_and_never_the_same():
    base = [torch.randn(40, 30), 3]
    one, again, other = fresh(base, 5), fresh(base, 5), fresh(base, 6)
    assert torch.equal(one[0], again[0])
    assert one[1] == 3
    share = one[0] / base[0]
    assert bool(((share > 1 - NOISE - 1e-6) & (share <= 1)).all())
    assert not bool((one[0] == other[0]).any())
    assert one[0].data_ptr() != base[0].data_ptr()


def test_two_inputs_get_values_of_their_own():
    base = torch.ones(500)
    one, other = fresh([base, base], 5)
    assert not bool((one == other).all())


def test_what_a_kernel_may_rely_on_stays():
    square = torch.randn(9, 9)
    symmetric = square + square.T
    triangular, strided = torch.triu(square), torch.randn(6, 4).T
    indices, half = torch.arange(7), torch.randn(5).half()
    made = fresh([symmetric, triangular, strided, indices, half], 1)
    assert torch.equal(made[0], made[0].T)
    assert torch.equal(made[1] == 0, triangular == 0)
    assert made[2].stride() == strided.stride()
    assert torch.equal(made[3], indices)
    assert made[3].data_ptr() != indices.data_ptr()
    assert made[4].dtype == torch.float16


def test_every_call_of_a_batch_has_its_inputs_and_its_output(tmp_path):
    base = [[torch.randn(20, 10)], [torch.randn(20, 10)]]
    calls = TimedCalls(HostStopwatch(), lambda x: x * 2, base)
    calls.ready(5, 100)
    times = calls.go()
    assert len(times) == 5
    assert min(times) > 0
    for call, output in enumerate(calls.outputs):
        assert torch.equal(output, 2 * fresh(base[call % 2], 100 + call)[0])


def test_a_longer_call_takes_longer():
    calls = TimedCalls(
        HostStopwatch(), lambda x: [x @ x for _ in range(20)], [[torch.rand(400, 400)]]
    )
    calls.ready(5, 1)
    slow = sorted(calls.go())[2]
    calls = TimedCalls(HostStopwatch(), lambda x: x @ x, [[torch.rand(400, 400)]])
    calls.ready(5, 1)
    assert sorted(calls.go())[2] < slow / 4


def test_bytes_and_arithmetic_of_a_linear_layer():
    model = torch.nn.Linear(64, 32)
    facts = facts_of(model, [torch.randn(16, 64)])
    assert facts.input_bytes == 4 * 16 * 64
    assert facts.output_bytes == 4 * 16 * 32
    assert facts.read_bytes == 4 * (16 * 64 + 64 * 32 + 32)
    assert facts.flops == 2 * 16 * 64 * 32


class Half(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.unused = torch.nn.Parameter(torch.ones(1000))

    def forward(self, x, index):
        return x[: x.shape[0] // 2].relu() + 1


def test_what_need_not_be_read_is_not_counted():
    facts = facts_of(Half(), [torch.randn(16, 64), torch.arange(5)])
    assert facts.read_bytes == 0
    assert facts.input_bytes == 4 * 16 * 64 + 8 * 5


def test_the_model_is_left_as_it_was():
    model = torch.nn.BatchNorm1d(8)
    facts_of(model, [torch.randn(16, 8)])
    assert int(model.num_batches_tracked) == 0


def test_ceilings_of_a_cpu_have_the_order_of_a_cpu():
    found = measure_ceilings("cpu")
    assert found.gpu == "cpu"
    assert 0.1 < found.peak_gbps < 2000
    assert 1e-4 < found.peak_tflops < 50
    assert 0 < found.loop_us < 1000


def test_the_host_clock_returns_the_value():
    value, us = HostStopwatch().measure(lambda: "value")
    assert value == "value"
    assert us >= 0
