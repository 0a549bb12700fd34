"""KernelBench's files: what its scripts write is read, what we write it can analyse."""

import json

import numpy as np
import pytest

from dice.errors import DataError, UserError
from dice.eval import plan, upstream
from dice.eval.outcomes import outcomes, upstream_outcomes
from dice.eval.records import Place
from dice.eval.summary import summarise
from dice.problems import load_benchmark
from dice.verify import Policy
from tests.unit.eval.builders import fill, verdict
from tests.unit.eval.test_run import PROBLEM

RESULTS = {  # problem: compiled, correct, milliseconds
    1: (True, True, 2.0),
    2: (True, True, 0.5),
    3: (True, False, -1.0),
    4: (False, False, -1.0),
    5: (True, True, -1.0),
}
EAGER_MS = {1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0, 5: 1.0}


@pytest.fixture
def benchmark(tmp_path):
    folder = tmp_path / "kb" / "level1"
    folder.mkdir(parents=True)
    for n in RESULTS:
        (folder / f"{n}_Add.py").write_text(PROBLEM.format(n=n))
    return load_benchmark(tmp_path / "kb")


@pytest.fixture
def their_run(tmp_path):
    folder = tmp_path / "theirs"
    folder.mkdir()
    table = {}
    for n, (compiled, correct, runtime) in RESULTS.items():
        (folder / f"level_1_problem_{n}_sample_0_kernel.py").write_text(f"# kernel {n}\n")
        row = {"sample_id": 0, "compiled": compiled, "correctness": correct, "runtime": runtime}
        table[str(n)] = [{**row, "metadata": {}, "runtime_stats": {}}]
    (folder / "eval_results.json").write_text(json.dumps(table))
    times = {f"{n}_Add.py": {"mean": ms, "std": 0.0} for n, ms in EAGER_MS.items()}
    (folder / "baseline_time_torch.json").write_text(json.dumps({"level1": times}))
    return folder


def _import(tmp_path, their_run, benchmark):
    return plan.import_run(
        tmp_path / "ours",
        their_run,
        benchmark,
        here=Place(backend="simt"),
        policy=Policy(),
        baselines={"eager": their_run / "baseline_time_torch.json"},
    )


def test_an_imported_run_gives_the_counts_its_scripts_give(tmp_path, their_run, benchmark):
    store = _import(tmp_path, their_run, benchmark)
    [level] = summarise(upstream_outcomes(store.log, store.config.problems, 1))
    right = np.array([correct for _, correct, _ in RESULTS.values()])
    own = np.array([runtime for _, _, runtime in RESULTS.values()])
    base = np.array(list(EAGER_MS.values()))
    for p in (0.5, 1.0, 1.5):
        expected = float((base[right] / own[right] > p).sum() / len(right))
        assert level.filtered.fast["eager"][p].value == pytest.approx(expected), p
    assert level.filtered.exec.value == pytest.approx(right.mean())
    assert level.kinds == {"correct": 3, "wrong": 1, "compile_error": 1}
    assert level.filtered.untimed == 1


def test_imported_candidates_wait_for_our_verdict(tmp_path, their_run, benchmark):
    store = _import(tmp_path, their_run, benchmark)
    found = outcomes(store.log, store.config.problems, 1)
    assert {one.status for one in found} == {"not judged"}
    assert store.candidate_file((1, 2, 0)).read_text() == "# kernel 2\n"


def test_our_results_have_their_form_and_survive_the_way_back(tmp_path):
    table = {
        (1, 0): verdict("correct", speedup=2.0),
        (2, 0): verdict("compile_error"),
        (3, 0): verdict("correct", speedup=9.0, refused="clocks disagree"),
        (4, 0): verdict("no_custom_kernel"),
    }
    store = fill(tmp_path / "run", table, problems=4)
    found = outcomes(store.log, store.config.problems, 1)
    [path] = upstream.write_results(store.path, found)
    rows = upstream.read_results(path, 1)
    assert rows[1, 1, 0].correctness
    assert rows[1, 1, 0].runtime == pytest.approx(0.1)
    assert not rows[1, 2, 0].compiled
    assert rows[1, 3, 0].correctness
    assert rows[1, 3, 0].runtime == -1.0
    assert rows[1, 4, 0].compiled
    assert not rows[1, 4, 0].correctness
    [times] = upstream.write_baselines(store.path, found)
    assert times.name == "baseline_time_torch.json"
    assert upstream.read_baseline(times)[1, "1_Some"] == pytest.approx(0.2)


def test_older_results_have_one_object_a_problem(tmp_path):
    (tmp_path / "eval_results.json").write_text('{"7": {"compiled": true, "correctness": false}}')
    assert upstream.read_results(tmp_path / "eval_results.json", 2)[2, 7, 0].compiled


@pytest.mark.parametrize(
    ("text", "message"),
    [("[]", "format"), ("{", "format"), ('{"x": []}', "no problem number")],
)
def test_other_files_are_refused(tmp_path, text, message):
    (tmp_path / "eval_results.json").write_text(text)
    with pytest.raises(DataError, match=message):
        upstream.read_results(tmp_path / "eval_results.json", 1)


def test_a_folder_that_is_no_run_is_refused(tmp_path, benchmark, their_run):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="level_1_problem_2_sample_0_kernel"):
        upstream.read_kernels(tmp_path / "empty")
    (their_run / "level_1_problem_99_sample_0_kernel.py").write_text("")
    with pytest.raises(UserError, match="no problem 99"):
        _import(tmp_path, their_run, benchmark)
    (their_run / "level_1_problem_99_sample_0_kernel.py").unlink()
    assert not (tmp_path / "ours").exists()
