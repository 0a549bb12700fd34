"""Which backend and which GPU, from what this machine has and the environment says."""

import pytest

from dice.errors import UserError
from dice.verify import backends


@pytest.mark.parametrize(
    ("wanted", "gpus", "chosen"),
    [("auto", (), "simt"), ("auto", ("0",), "cuda"), ("simt", ("0",), "simt"), ("cuda", ("0",), "cuda")],
)  # fmt: skip
def test_auto_takes_the_gpu_where_there_is_one(monkeypatch, wanted, gpus, chosen):
    monkeypatch.setattr(backends, "gpus", lambda: gpus)
    assert backends.choose(wanted) == chosen


def test_what_is_not_there_is_the_users_mistake(monkeypatch):
    monkeypatch.setattr(backends, "gpus", lambda: ())
    for name in ("cuda", "tpu"):
        with pytest.raises(UserError, match=name):
            backends.choose(name)


def test_gpus_are_in_numeric_order(monkeypatch):
    names = ["/dev/nvidia10", "/dev/nvidia2", "/dev/nvidia0"]
    monkeypatch.setattr(backends.glob, "glob", lambda pattern: names)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert backends.gpus() == ("0", "2", "10")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "10,0")
    assert backends.gpus() == ("10", "0")


@pytest.mark.parametrize(("value", "gpu"), [("", 0), ("3", 3), ("2,0", 2)])
def test_the_gpu_is_the_first_visible_one(monkeypatch, value, gpu):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert backends.visible_gpu() == gpu


def test_a_gpu_named_by_its_uuid_is_refused_with_advice(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1234")
    with pytest.raises(UserError, match="index"):
        backends.visible_gpu()
