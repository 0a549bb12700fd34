"""Read a configuration: a TOML (or resolved JSON) file, then dotted overrides, then validation.

Unknown keys are errors. What a run really used is written next to its results by `save_resolved`, and
that file loads again to the same configuration.
"""

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from dice.errors import UserError

ConfigT = TypeVar("ConfigT", bound=BaseModel)


def load_config(
    path: str | Path | None, schema: type[ConfigT], overrides: Sequence[str] = ()
) -> ConfigT:
    """Load `path` (None: the schema's defaults) as `schema`, with `overrides` such as `train.lr=1e-3`.

    An override's value is read as TOML; what is not valid TOML is taken as a string.

    Raises:
        UserError: the file cannot be read or parsed, a key is unknown, or a value does not fit.
    """
    where = str(path) if path is not None else "the defaults"
    tree = _read(Path(path)) if path is not None else {}
    for override in overrides:
        _apply(tree, override)
    try:
        return schema.model_validate(tree)
    except ValidationError as e:
        lines = [f"  {'.'.join(str(p) for p in err['loc'])}: {err['msg']}" for err in e.errors()]
        raise UserError(f"{where} is not a valid {schema.__name__}:\n" + "\n".join(lines)) from e


def save_resolved(config: BaseModel, path: str | Path) -> None:
    """Write every setting, defaults included, as JSON that `load_config` reads back."""
    Path(path).write_text(config.model_dump_json(indent=2) + "\n", encoding="utf-8")


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as e:
        raise UserError(f"{path} cannot be read: {e.strerror}") from e
    try:
        tree = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as e:
        raise UserError(f"{path} cannot be parsed: {e}") from e
    if not isinstance(tree, dict):
        raise UserError(f"{path} holds no table of settings")
    return tree


def _apply(tree: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise UserError(f"override {override!r} is not of the form section.key=value")
    node = tree
    for part in parts[:-1]:
        node = node.setdefault(part, {})
        if not isinstance(node, dict):
            raise UserError(f"override {override!r}: {part} is a value, not a section")
    node[parts[-1]] = _value(text.strip())


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text
