import dataclasses
import json
import os
import signal
from pathlib import Path

import pytest
import torch

from dice.config.load import load_config
from dice.config.schema import SftConfig
from dice.errors import DataError, DiceError, UserError
from dice.train.batches import noisy_batch
from dice.train.checkpoint import load_checkpoint
from dice.train.layout import pack_rows
from dice.train.meter import StepReport
from dice.train.noise import Noise, draw_noise
from dice.train.optimizer import make_optimizer
from dice.train.schedule import learning_rate
from dice.train.sft import SftResult, train_sft
from dice.train.stepper import Stepper
from tests.unit.train.common import ids, samples, tiny_model

STORE = samples([(3 + i % 9, 5 + i % 17) for i in range(60)])


def _config(*overrides: str) -> SftConfig:
    small = ("train.row_length=64", "train.rows_per_batch=4", "train.log_every=1", "train.lr=3e-3")
    return load_config(None, SftConfig, [*small, *overrides])


def _train(run_dir: Path, config: SftConfig, **kwargs: object) -> tuple[SftResult, dict]:
    model = kwargs.pop("model", None) or tiny_model()
    result = train_sft(config, model=model, store=STORE, ids=ids(), run_dir=run_dir, **kwargs)
    return result, model.state_dict()


def test_resumed_run_equals_an_uninterrupted_one_to_the_bit(tmp_path: Path) -> None:
    config = _config("train.epochs=3", "train.accumulation=2")
    whole, expected = _train(tmp_path / "whole", config)
    assert whole.progress.step >= 6
    for stop_after in range(1, whole.progress.step):
        run_dir = tmp_path / f"cut{stop_after}"
        seen: list[StepReport] = []
        first, _ = _train(
            run_dir,
            config,
            on_progress=seen.append,
            should_stop=lambda seen=seen, n=stop_after: len(seen) == n,
        )
        assert first.interrupted
        assert first.progress.step == stop_after
        torch.manual_seed(99)  # a resumed process starts from other weights and other random states
        rest, weights = _train(run_dir, config, resume=True, model=tiny_model(seed=stop_after))
        assert not rest.interrupted
        assert rest.loss == whole.loss
        assert dataclasses.replace(rest.progress, elapsed_s=0.0) == dataclasses.replace(
            whole.progress, elapsed_s=0.0
        )
        assert all(torch.equal(weights[k], v) for k, v in expected.items())
        lines = (run_dir / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(x)["step"] for x in lines] == list(range(1, whole.progress.step + 1))


def test_accumulated_batches_equal_one_large_batch() -> None:
    rows = [[0, 1], [2, 3], [4, 5], [6]]

    def pack(chosen: list[list[int]]):
        return pack_rows(STORE, chosen, row_length=64, block_size=4, stop_id=2, pad_id=0)

    packed = pack(rows)
    noise = draw_noise(
        packed, level="block", block_size=4, eps=1e-3, generator=torch.Generator().manual_seed(0)
    )
    halves = [
        noisy_batch(
            pack(rows[cut]),
            Noise(masked_BL=noise.masked_BL[cut], probability_BL=noise.probability_BL[cut]),
            ids(),
        )
        for cut in (slice(0, 3), slice(3, 4))
    ]
    weights = []
    for batches in ([noisy_batch(packed, noise, ids())], halves):
        model, config = tiny_model(), _config().train
        stepper = Stepper(model, make_optimizer(model, config), config, ids(), torch.device("cpu"))
        stepper.step(batches, lr=1e-2)
        weights.append((float(stepper.loss_sum), float(stepper.grad_norm)))
    assert weights[0] == pytest.approx(weights[1], rel=1e-5)


def test_last_partial_accumulation_is_applied(tmp_path: Path) -> None:
    one_step = _config("train.epochs=1", "train.rows_per_batch=2", "train.accumulation=1000")
    result, weights = _train(tmp_path / "run", one_step)
    assert result.progress.step == 1
    assert result.progress.epoch == 1
    assert result.progress.tokens == sum(-(-int(n) // 4) * 4 for n in STORE.lengths)
    before = tiny_model().state_dict()
    assert not torch.equal(weights["model.norm.weight"], before["model.norm.weight"])


def test_it_learns_by_heart(tmp_path: Path) -> None:
    config = _config("train.epochs=120", "train.log_every=20", "train.lr=1e-2")
    reports: list[StepReport] = []
    _train(tmp_path / "run", config, on_progress=reports.append)
    assert reports[0].nll > 2.5
    assert reports[-1].nll < 0.6 * reports[0].nll


def test_ctrl_c_saves_a_checkpoint_between_two_steps(tmp_path: Path) -> None:
    def press(report: StepReport) -> None:
        if report.step == 2:
            os.kill(os.getpid(), signal.SIGINT)

    handler = signal.getsignal(signal.SIGINT)
    result, _ = _train(tmp_path / "run", _config("train.epochs=50"), on_progress=press)
    assert result.interrupted
    assert result.progress.step == 2
    assert signal.getsignal(signal.SIGINT) is handler
    model = tiny_model()
    restored = load_checkpoint(
        tmp_path / "run" / "checkpoint.pt",
        model=model,
        optimizer=make_optimizer(model, _config().train),
    )
    assert restored == result.progress


def test_time_budget_ends_the_run_and_anneals_the_rate(tmp_path: Path) -> None:
    reports: list[StepReport] = []
    config = _config("train.time_budget_s=1.0", "train.epochs=1")
    result, _ = _train(tmp_path / "run", config, on_progress=reports.append)
    assert not result.interrupted
    assert 1.0 <= result.progress.elapsed_s < 3.0
    assert result.progress.epoch > 1
    assert reports[-1].lr < 0.2 * max(r.lr for r in reports)
    assert reports[-1].total_steps is None


def test_a_run_folder_is_not_overwritten(tmp_path: Path) -> None:
    config = _config("train.max_steps=1")
    _train(tmp_path / "run", config)
    with pytest.raises(UserError, match="already holds a run"):
        _train(tmp_path / "run", config)
    with pytest.raises(DataError, match="no checkpoint"):
        _train(tmp_path / "other", config, resume=True)


def test_a_run_folder_tells_where_its_numbers_come_from(tmp_path: Path) -> None:
    _train(tmp_path / "run", _config("train.max_steps=2", "train.seed=11"))
    assert load_config(tmp_path / "run" / "config.json", SftConfig).train.seed == 11
    entry = json.loads((tmp_path / "run" / "provenance.jsonl").read_text())
    assert entry["seed"] == 11
    assert {"git_revision", "torch", "device", "time", "command"} <= entry.keys()


def test_a_diverged_loss_is_an_error(tmp_path: Path) -> None:
    model = tiny_model()
    torch.nn.init.constant_(model.model.norm.weight, float("nan"))
    with pytest.raises(DiceError, match="the loss is nan at step 1"):
        _train(tmp_path / "run", _config(), model=model)


def test_only_matrices_decay() -> None:
    model = tiny_model()
    decayed, kept = make_optimizer(model, _config().train).param_groups
    names = {id(p): n for n, p in model.named_parameters()}
    assert decayed["weight_decay"] == 0.1
    assert kept["weight_decay"] == 0.0
    assert all("proj" in names[id(p)] for p in decayed["params"])
    assert {names[id(p)].split(".")[-2].split("_")[-1] for p in kept["params"]} == {
        "tokens",
        "norm",
        "layernorm",
    }


def test_schedules_at_known_points() -> None:
    cosine = _config("train.lr=2.0", "train.warmup_fraction=0.1", "train.min_lr_ratio=0.1").train
    values = [learning_rate(p, cosine) for p in (0.0, 0.05, 0.1, 0.55, 1.0)]
    assert values == pytest.approx([0.0, 1.0, 2.0, 1.1, 0.2])
    wsd = _config("train.lr=2.0", "train.schedule=wsd", "train.warmup_fraction=0.1").train
    values = [learning_rate(p, wsd) for p in (0.05, 0.1, 0.5, 0.8, 0.9, 1.0)]
    assert values == pytest.approx([1.0, 2.0, 2.0, 2.0, 1.0, 0.0])
