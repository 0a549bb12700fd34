from pathlib import Path

import pytest

from dice.config.load import load_config, save_resolved
from dice.config.schema import DataConfig, SftConfig
from dice.errors import UserError

CONFIGS = Path(__file__).parents[3] / "configs"
SCHEMAS = {"data": DataConfig, "sft": SftConfig}


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.toml")), ids=lambda p: p.stem)
def test_every_shipped_file_loads(path: Path) -> None:
    load_config(path, SCHEMAS[path.stem.split("_")[-1]])


def test_dotted_overrides_are_toml_values() -> None:
    config = load_config(
        None,
        SftConfig,
        ["train.lr=1e-3", "train.noise=sample", "train.betas=[0.9, 0.99]", "init_from=hub/model"],
    )
    assert config.train.lr == 1e-3
    assert config.train.noise == "sample"
    assert config.train.betas == (0.9, 0.99)
    assert config.init_from == "hub/model"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.learning_rate=1", r"train\.learning_rate: Extra inputs"),
        ("train.lr=-1", r"train\.lr: .*greater than 0"),
        ("train.lr", "not of the form"),
        ("init_from.x=1", "init_from"),
        ("train.schedule=linear", r"train\.schedule"),
    ],
)
def test_mistakes_are_named(override: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_config(None, SftConfig, [override])


def test_the_resolved_file_loads_to_the_same_configuration(tmp_path: Path) -> None:
    config = load_config(CONFIGS / "nano_sft.toml", SftConfig, ["train.max_steps=7"])
    save_resolved(config, tmp_path / "config.json")
    assert load_config(tmp_path / "config.json", SftConfig) == config


def test_a_file_that_cannot_be_read_or_parsed_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.toml cannot be read"):
        load_config(tmp_path / "none.toml", SftConfig)
    (tmp_path / "bad.toml").write_text("[train\n")
    with pytest.raises(UserError, match=r"bad\.toml cannot be parsed"):
        load_config(tmp_path / "bad.toml", SftConfig)
