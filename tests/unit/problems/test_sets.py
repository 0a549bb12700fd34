import json
from collections import Counter
from pathlib import Path

import pytest

from dice.errors import DataError
from dice.problems import load_dice_rl, load_jsonl
from tests.data import shared_data


def test_kernelbench_has_its_published_level_sizes() -> None:
    problems = load_jsonl(shared_data("kernelbench_v0.2.jsonl"))
    assert Counter(p.level for p in problems) == {1: 100, 2: 100, 3: 50, 4: 20}
    assert len({p.name for p in problems}) == 270


def test_dice_rl_modules_all_satisfy_the_contract() -> None:
    assert len(load_dice_rl(shared_data("dice_rl_problems_4000.jsonl"))) == 4000


def test_a_bad_line_is_reported_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "k.jsonl"
    path.write_text("\n" + json.dumps({"level": 1, "name": "x"}) + "\n")
    with pytest.raises(DataError, match=r"k\.jsonl:2: field problem_id, code is missing"):
        load_jsonl(path)
    path.write_text("{")
    with pytest.raises(DataError, match=r"k\.jsonl:1: not a JSON object"):
        load_jsonl(path)
    with pytest.raises(DataError, match="cannot be read"):
        load_dice_rl(tmp_path / "absent")
