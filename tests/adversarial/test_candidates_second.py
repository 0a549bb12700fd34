"""Every exploit gets its verdict, every honest look-alike passes: the second half of the files (see `court`)."""

from pathlib import Path

import pytest

from tests.adversarial.court import files

FILES = files("candidates", part=1, parts=2)


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_candidate_gets_its_verdict_and_the_next_runs_clean(court, file):
    court.try_file(file)


def test_nothing_is_left_outside_and_no_honest_candidate_is_rejected(court):
    assert not Path("/tmp/dice_planted_file").exists()
    assert not Path("/dev/shm/dice_left_behind").exists()
    assert court.tally["honest", False] == 0
    assert court.tally["exploits", False] == 0
