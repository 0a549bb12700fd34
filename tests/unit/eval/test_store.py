"""A run's folder survives interruptions, and is never two things at once."""

import json

import pytest

from dice.errors import DataError, UserError
from dice.eval.records import plain_verdict, verdict_of
from dice.eval.store import Store
from dice.types import Evidence, Verdict, VerdictKind
from tests.unit.eval.builders import config, fill, verdict


def test_what_is_written_is_read_again(tmp_path):
    store = fill(
        tmp_path / "run",
        {(1, 0): verdict("correct", speedup=2.0), (2, 0): "context_overflow"},
    )
    again = Store.open(tmp_path / "run")
    assert again.config == store.config
    assert again.log == store.log
    assert verdict_of(again.log.verdicts[1, 1, 0]) == verdict("correct", speedup=2.0)


def test_numbers_that_json_lacks_become_text(tmp_path):
    odd = Verdict(
        kind=VerdictKind.WRONG,
        evidence=(
            Evidence(
                kind="wrong_output",
                message="\ud800 not UTF-8",
                details={"max_error": float("nan"), "tolerance": float("inf"), "at": (1, 2)},
            ),
        ),
    )
    store = fill(tmp_path / "run", {(1, 0): odd})
    text = (store.path / "log.jsonl").read_text()
    for line in text.splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    details = plain_verdict(odd)["evidence"][0]["details"]
    assert details == {"max_error": "nan", "tolerance": "inf", "at": [1, 2]}
    assert Store.open(store.path).log.verdicts[1, 1, 0].verdict is not None


def test_a_torn_last_line_is_dropped_and_written_anew(tmp_path):
    store = fill(tmp_path / "run", {(1, 0): verdict("correct"), (2, 0): verdict("wrong")})
    log = store.path / "log.jsonl"
    whole = log.read_bytes()
    for cut in (1, 5, 40):
        log.write_bytes(whole[:-cut])
        torn = Store.open(store.path)
        assert (1, 2, 0) not in torn.log.verdicts
        with torn:
            torn.append(store.log.verdicts[1, 2, 0])
        assert log.read_bytes() == whole


def test_a_broken_line_in_the_middle_is_an_error_with_its_number(tmp_path):
    store = fill(tmp_path / "run", {(1, 0): verdict("correct")})
    log = store.path / "log.jsonl"
    log.write_bytes(b"nonsense\n" + log.read_bytes())
    with pytest.raises(DataError, match=r"log\.jsonl, line 1"):
        Store.open(store.path)


def test_one_writer_at_a_time(tmp_path):
    store = fill(tmp_path / "run", {})
    with store, pytest.raises(UserError, match="another process"), Store.open(store.path):
        pass


def test_no_run_is_started_over_another_or_over_files(tmp_path):
    fill(tmp_path / "run", {})
    with pytest.raises(UserError, match="dice eval resume"):
        Store.create(tmp_path / "run", config())
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "mine.txt").touch()
    with pytest.raises(UserError, match="no empty folder"):
        Store.create(tmp_path / "files", config())
    with pytest.raises(UserError, match=r"no run\.json"):
        Store.open(tmp_path / "files")


def test_a_later_format_is_refused(tmp_path):
    store = fill(tmp_path / "run", {})
    record = json.loads((store.path / "run.json").read_text())
    (store.path / "run.json").write_text(json.dumps({**record, "format": 99}))
    with pytest.raises(DataError, match="format 99"):
        Store.open(store.path)
    (store.path / "run.json").write_text(json.dumps({**record, "surprise": 1}))
    with pytest.raises(DataError, match="surprise"):
        Store.open(store.path)
