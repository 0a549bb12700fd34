import torch

from dice.verify.attribution import library_calls
from dice.verify.optrace import OpTrace


def test_arithmetic_counts_and_layout_does_not():
    x = torch.randn(4, 6)
    with OpTrace() as trace:
        y = torch.empty(6, 4)
        y.copy_(x.t().contiguous().view(6, 4))
        torch.cat([y, y.clone()]).reshape(-1)
    assert dict(trace.ops) == {}
    with trace:
        torch.relu(x @ y).add_(1)
    assert dict(trace.ops) == {"mm": 1, "relu": 1, "add_": 1}


def test_results_are_offered_in_the_outputs_shape_the_newest_first():
    x = torch.randn(4, 6)
    with OpTrace(keep_bytes=1 << 20) as trace:
        doubled = x * 2
        turned = doubled.t().contiguous()
    guesses = trace.guesses(torch.empty(4, 6))
    assert torch.equal(guesses[0], turned.reshape(4, 6))
    assert torch.equal(guesses[1], turned.t())
    assert any(torch.equal(guess, doubled) for guess in guesses)


def test_a_buffer_filled_in_pieces_is_offered_as_a_whole():
    x = torch.randn(4, 6)
    with OpTrace(keep_bytes=1 << 20) as trace:
        buffer = torch.empty_like(x)
        for row in range(4):
            buffer[row] = x[row] * 3
    assert any(torch.equal(guess, x * 3) for guess in trace.guesses(torch.empty(4, 6)))


def test_old_results_go_when_there_are_too_many_bytes():
    with OpTrace(keep_bytes=1000) as trace:
        for k in range(10):
            torch.full((100,), float(k)).add_(1)
    assert [guess[0].item() for guess in trace.guesses(torch.empty(100))] == [10.0, 9.0]


def test_symbols_of_computing_functions_are_read_from_a_file(tmp_path):
    file = tmp_path / "extension.so"
    symbols = (
        *("_ZN2at4_ops10empty_like4callERKNS_6TensorE", "_ZN2at4_ops19empty_memory_format4callEv"),
        *("_ZN2at4_ops2mm4callERKNS_6TensorES4_", "_ZN2at4_ops10add_Tensor4callEv"),
        *("_ZN2at4_ops12slice_Tensor4callEv", "cublasSgemm_v2", "cublasCreate_v2", "sgemm_"),
    )
    file.write_bytes(b"\0" + "\0".join(symbols).encode() + b"\0")
    assert library_calls(file) == {"at::mm", "at::add", "cublasSgemm_v2", "sgemm_"}
