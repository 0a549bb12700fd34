"""The decoding benchmark around its measurements: arguments, schedules, the peer's process, rows, drawing.

What is measured is made up here and stays here.
"""

import json
import sys
import xml.etree.ElementTree as ElementTree
from argparse import Namespace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

from dice.engine.remasking import scheduled_number
from dice.models.load import load_model

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
try:
    import decode
    import decode_cases
    import decode_peer
    import decode_plot
    import decode_scale
finally:
    sys.path.remove(str(BENCHMARKS))

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")

LMDEPLOY = """
from types import SimpleNamespace
__version__ = "9.9"
def GenerationConfig(**fields):
    assert fields == {"max_new_tokens": 6, "do_sample": False, "ignore_eos": True}
    return fields
def PytorchEngineConfig(**fields):
    return SimpleNamespace(**fields)
"""
ENGINE = """
from pathlib import Path
from types import SimpleNamespace
import transformers
class Engine:
    @classmethod
    def from_pretrained(cls, path, engine_config):
        assert (Path(path) / "config.json").exists()
        assert transformers.registered == ["sdar"]
        assert engine_config.dllm_unmasking_strategy == "low_confidence_static"
        assert engine_config.session_len == 8 + 6 + 4
        assert engine_config.max_batch_size == 3
        assert (engine_config.dllm_block_length, engine_config.dllm_denoising_steps) == (4, 2)
        return cls()
    def create_instance(self):
        return self
    async def async_stream_infer(self, session, input_ids, gen_config):
        assert len(input_ids) == 8
        for _ in range(3):
            yield SimpleNamespace(token_ids=[1, 2])
"""
TRANSFORMERS = """
registered = []
class Qwen3Config: pass
class AutoConfig:
    @staticmethod
    def register(name, kind, exist_ok):
        assert kind.model_type == name
        registered.append(name)
"""


@pytest.fixture
def peer(tmp_path):
    """A checkout whose engine writes 1, 2, 1, 2, ..."""
    root = tmp_path / "peer"
    for name, text in {
        "lmdeploy/__init__.py": LMDEPLOY,
        "lmdeploy/pytorch/__init__.py": "",
        "lmdeploy/pytorch/engine.py": ENGINE,
        "transformers.py": TRANSFORMERS,
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def timed(loaded, batch, steps, prompt, new, rounds=2):
    return decode_cases.Timed(
        prefill_s=1.0, decode_s=3.0, forwards=12, tokens=[[1, 7] * (new // 2)] * batch
    )


def job(**changed):
    fields = {
        "checkpoint": "x",
        "block_size": 4,
        "denoising_steps": 2,
        "new_tokens": 6,
        "prompts": [[[1] * 8], [[1] * 8] * 3],
    }
    return decode_peer.Job(**{**fields, **changed})


def results(*tokens, seconds=1.0):
    return json.dumps([{"version": "9.9", "seconds": seconds, "tokens": one} for one in tokens])


def test_a_schedule_is_taken_only_where_both_sides_follow_it():
    for size in (1, 4, 8):
        for steps in range(1, size + 1):
            ours = [scheduled_number(step, size, steps) for step in range(steps)]
            theirs = [max(1, size // steps)] * steps
            try:
                decode_peer.check_schedule(size, steps)
            except decode_peer.PeerError:
                assert ours != theirs
            else:
                assert ours == theirs


def test_arguments_depend_on_what_is_measured(tmp_path, capsys):
    assert (decode.parse([]).batches, decode.parse([]).new) == ("1,16,128", 1024)
    scale = decode.parse(["--scale"])
    assert (scale.batches, scale.new) == ("1,4,16,64,256", 256)
    assert decode.parse(["--scale", "--new", "64", "--batches", "2"]).new == 64
    peer = ["--peer", str(tmp_path)]
    assert decode.parse(peer).peer_python == sys.executable
    for wrong, message in (
        ([*peer, "--denoising-steps", "4,3"], "3 denoising steps do not divide"),
        ([*peer, "--scale"], "paged engine alone"),
    ):
        with pytest.raises(SystemExit):
            decode.parse(wrong)
        assert message in capsys.readouterr().err


def test_the_peer_decodes_the_same_requests_in_its_own_process(peer, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(decode, "decode_timed", timed)
    monkeypatch.setattr(decode, "measure_peaks", lambda device: {"bytes_per_s": 1e9, "flops": 1e9})
    out = tmp_path / "out.json"
    words = ["--shapes", "tiny", "--device", "cpu", "--batches", "1,3", "--denoising-steps", "2"]
    words += ["--prompt", "8", "--new", "6", "--peer", str(peer), "--out", str(out)]
    decode.main(words)
    records = json.loads(out.read_text())["records"]
    assert [one["batch"] for one in records] == [1, 3]
    for one in records:
        assert one["peer"] == "lmdeploy 9.9"
        assert one["equal_tokens"] == 0.5
        assert one["whole_tokens_per_s"] == one["batch"] * 6 / 4
        wanted = one["whole_tokens_per_s"] / one["peer_whole_tokens_per_s"]
        assert one["ratio_to_peer"] == pytest.approx(wanted, abs=1e-3)


def test_a_peer_that_is_not_there_or_fails_says_so(peer, tmp_path):
    with pytest.raises(decode_peer.PeerError, match="no checkout of LMDeploy"):
        decode_peer.run(tmp_path / "nowhere", job())
    (peer / "lmdeploy" / "__init__.py").write_text("raise SystemError('no such card')")
    with pytest.raises(decode_peer.PeerError, match="no such card"):
        decode_peer.run(peer, job())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "cannot be read"),
        ('[{"seconds": 1}]', "cannot be read"),
        (results([[1] * 6]), "1 of 2 cases"),
        (results([[1] * 6], [[1] * 6] * 2), "2 responses"),
        (results([[1] * 5], [[1] * 6] * 3), r"1 responses of \[5\] tokens; 1 of 6 were"),
        (results([[1] * 6], [[1] * 6] * 3, seconds=0), "took 0 s"),
    ],
)
def test_answers_that_do_not_fit_the_job_are_refused(text, message):
    with pytest.raises(decode_peer.PeerError, match=message):
        decode_peer.parse(text, job())


def test_both_sides_have_the_same_weights(tmp_path):
    loaded = decode_cases.load("tiny", 4, "cpu")
    decode_cases.save(loaded, tmp_path)
    again = load_model(tmp_path)
    assert again.block_size == 4
    assert again.mask_token_id == loaded.mask_token_id
    ours, theirs = loaded.model.state_dict(), again.model.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "sdar"


def test_what_is_timed_is_the_paged_engine():
    loaded = decode_cases.load("tiny", 4, "cpu")
    done = decode_cases.decode_timed(loaded, 1, 1, 4, 4, rounds=1)
    assert done.forwards == 1
    assert [len(one) for one in done.tokens] == [4]
    assert min(done.prefill_s, done.decode_s) > 0


def test_cells_that_do_not_fit_are_rows_without_figures(monkeypatch, capsys):
    monkeypatch.setattr(decode_cases, "decode_timed", timed)
    monkeypatch.setattr(decode_scale, "available_bytes", lambda device: 200_000)
    loaded = decode_cases.load("tiny", 4, "cpu")
    args = Namespace(contexts="64,256", batches="1,8", new=16, denoising_steps="4,2")
    rows = list(decode_scale.rows(loaded, args))
    assert [(one.context, one.batch) for one in rows] == [(64, 1), (64, 8), (256, 1), (256, 8)]
    assert [one.tokens_per_s for one in rows] == [5.3, 42.7, 5.3, None]
    assert [json.loads(line)["batch"] for line in capsys.readouterr().out.splitlines()] == [
        1,
        8,
    ] * 2
    with pytest.raises(SystemExit, match="no room"):
        list(decode_scale.rows(loaded, Namespace(**{**vars(args), "contexts": "16"})))


def test_rows_become_one_line_a_context():
    rows = [
        {
            "shape": shape,
            "batch": batch,
            "context": context,
            "tokens_per_s": None if batch == 256 and context > 2000 else 100.0 * batch / context,
            "peak_gib": 1.0 + batch * context / 1e6,
        }
        for shape in ("A", "<B>")
        for context in (1024, 4096)
        for batch in (1, 16, 256)
    ]
    root = ElementTree.fromstring(decode_plot.draw(rows, "made up & shown nowhere"))
    space = "{http://www.w3.org/2000/svg}"
    lines = [
        [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        for line in root.iter(f"{space}polyline")
    ]
    assert [len(line) for line in lines] == [3, 2, 3, 3] * 2
    for line in lines:
        assert all(b[0] > a[0] and b[1] < a[1] for a, b in pairwise(line))
        assert all(70 <= x <= 370 and 50 <= y <= 250 for x, y in line)
    texts = [one.text for one in root.iter(f"{space}text")]
    assert {"<B>: response tokens/s", "256", "4096 tokens"} <= set(texts)


def test_one_cell_alone_can_be_drawn():
    row = {"shape": "A", "batch": 4, "context": 64, "tokens_per_s": 20.0, "peak_gib": None}
    assert "<circle" in decode_plot.draw([row], "made up")
