import pytest

from dice.errors import UserError
from dice.types import VerdictKind
from dice.verify.policy import SHIPPED, Policy


def test_the_shipped_file_holds_the_defaults():
    assert Policy.from_toml(SHIPPED) == Policy()


def test_a_file_changes_what_it_names(tmp_path):
    file = tmp_path / "policy.toml"
    file.write_text(
        '[attribution]\nlibrary = "correct"\n[inputs]\nseed = 7\n[limits]\nwall_s = 5\n'
    )
    policy = Policy.from_toml(file)
    assert policy.earns("library") is VerdictKind.CORRECT
    assert policy.earns("pytorch") is VerdictKind.NO_CUSTOM_KERNEL
    assert policy.seed == 7
    assert policy.limits.wall_s == 5.0
    assert policy.limits.memory_mib == Policy().limits.memory_mib


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tolerances]\n", r"no section \[tolerances\]"),
        ("[tolerance]\nrelativ = 1\n", "no key relativ"),
        ("[tolerance]\nrelative = 'much'\n", "not a value of type float"),
        ("[tolerance]\nslack = -1.0\n", "not negative"),
        ("[attribution]\nmixed = 'half'\n", "choose correct, no_custom_kernel"),
        ("[run]\ncheck = 1\n", "not a value of type bool"),
        ("run = 1\n", "is a section"),
        ("[run\n", "no valid TOML"),
    ],
)
def test_a_faulty_file_is_refused_with_the_place(tmp_path, text, message):
    file = tmp_path / "policy.toml"
    file.write_text(text)
    with pytest.raises(UserError, match=message):
        Policy.from_toml(file)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        Policy.from_toml(tmp_path / "none.toml")


def test_without_a_seed_each_problem_gets_a_secret_one():
    assert Policy().seeded().seed != Policy().seeded().seed
    assert Policy(seed=3).seeded().seed == 3
