"""KernelBench is the same benchmark, of the same version, in whatever form it comes."""

import json

import pytest

from dice.errors import DataError
from dice.problems import load_benchmark
from dice.problems.benchmark import code_hash
from tests.data import shared_data

CODE = "class Model: ...\ndef get_inputs(): return [{n}]\ndef get_init_inputs(): return []\n"
ROWS = [
    {"level": level, "problem_id": n, "name": f"{n}_Some", "code": CODE.format(n=10 * level + n)}
    for level in (2, 1)
    for n in (10, 2, 1)
]


def _jsonl(folder, rows=ROWS):
    path = folder / "problems.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _checkout(folder):
    for row in ROWS:
        file = folder / "KernelBench" / f"level{row['level']}" / f"{row['name']}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(row["code"].replace("\n", "  \r\n") + "\n\n")  # as files differ from rows
    (folder / "KernelBench" / "level1" / "README.md").write_text("no problem")
    return folder


def test_a_file_and_a_checkout_are_the_same_benchmark(tmp_path):
    one, other = load_benchmark(_jsonl(tmp_path)), load_benchmark(_checkout(tmp_path))
    assert one.version == other.version
    assert [p.key for p in one.problems] == [(1, 1), (1, 2), (1, 10), (2, 1), (2, 2), (2, 10)]
    assert [p.code_hash for p in one.problems] == [p.code_hash for p in other.problems]
    assert one.find(2, 10).problem.name == "level2/10_Some"
    assert one.find(3, 1) is None


def test_the_hub_holds_the_same_benchmark(tmp_path, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow")
    import huggingface_hub
    import pyarrow.parquet as parquet

    for level in (1, 2):
        rows = [row for row in ROWS if row["level"] == level]
        parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / f"level_{level}.parquet")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(tmp_path))
    assert load_benchmark("some/dataset").version == load_benchmark(_jsonl(tmp_path)).version


def test_a_changed_problem_is_another_version(tmp_path):
    before = load_benchmark(_jsonl(tmp_path)).version
    changed = [{**ROWS[0], "code": ROWS[0]["code"] + "x = 1\n"}, *ROWS[1:]]
    assert load_benchmark(_jsonl(tmp_path, changed)).version != before
    assert code_hash("a \r\nb\n\n") == code_hash("a\nb")
    assert code_hash("a\n  b") != code_hash("a\nb")


def test_the_public_set_is_known_by_its_content():
    benchmark = load_benchmark(shared_data("kernelbench_v0.2.jsonl"))
    assert benchmark.version == "v0.2+2cbc81882465"
    assert len(benchmark.problems) == 270


def test_what_is_no_benchmark_is_refused(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        load_benchmark(tmp_path / "missing.jsonl")
    with pytest.raises(DataError, match="no checkout of KernelBench"):
        load_benchmark(tmp_path)
    with pytest.raises(DataError, match="twice"):
        load_benchmark(_jsonl(tmp_path, [*ROWS, ROWS[0]]))
    with pytest.raises(DataError, match="holds no problem"):
        load_benchmark(_jsonl(tmp_path, []))
