"""What a checkpoint's `generation_config.json` says about decoding.

The one place where the spellings of other code bases (`dynamic_threshold`, `block_length`, ...) are mapped
to this project's; `SdarConfig.from_dict` does the same for `config.json`. Everything else sees only the
fields below.
"""

import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from dice.errors import ModelError

FILE = "generation_config.json"
_FOREIGN_NAMES = {
    "block_length": "block_size",
    "denoising_steps_per_block": "denoising_steps",
    "dynamic_threshold": "confidence_threshold",
    "eb_threshold": "entropy_bound",
    "gen_length": "max_new_tokens",
    "mask_id": "mask_token_id",
    "max_gen_length": "max_new_tokens",
    "max_token": "max_new_tokens",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationDefaults:
    """A checkpoint's own settings; `None` where it says nothing.

    The fields from `template` on are this project's keys; `save_generation_defaults` writes them.
    """

    eos_token_id: tuple[int, ...] = ()
    """Stop ids."""
    mask_token_id: int | None = None
    block_size: int | None = None
    temperature: float | None = None
    """0 where the file says `do_sample: false`."""
    top_k: int | None = None
    top_p: float | None = None
    max_new_tokens: int | None = None
    template: str | None = None
    """Name of the prompt template the model was trained on."""
    template_texts: dict[str, str] = field(default_factory=dict)
    """Template texts that travel with the checkpoint, by name: they win over the package's."""
    denoising_steps: int | None = None
    remasking_strategy: str | None = None
    confidence_threshold: float | None = None
    entropy_bound: float | None = None


_ADAPTER = TypeAdapter(GenerationDefaults)


def load_generation_defaults(folder: Path) -> GenerationDefaults:
    """Reads `generation_config.json`; a missing file says nothing.

    Raises:
        ModelError: the file is no JSON object, two spellings of one field disagree, or a value is of the
            wrong type.
    """
    path = folder / FILE
    if not path.exists():
        return GenerationDefaults()
    content = with_own_names(read_json(path), _FOREIGN_NAMES, path)
    known = {one.name for one in fields(GenerationDefaults)}
    settings = {key: value for key, value in content.items() if key in known and value is not None}
    if content.get("do_sample") is False:
        settings["temperature"] = 0.0
    if isinstance(settings.get("eos_token_id"), int):
        settings["eos_token_id"] = [settings["eos_token_id"]]
    if settings.get("top_k") in (0, -1):  # both mean "all tokens" elsewhere
        del settings["top_k"]
    try:
        return _ADAPTER.validate_python(settings)
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        raise ModelError(f"{path} cannot be used: {'; '.join(wrong)}") from error


def save_generation_defaults(folder: Path, generation: GenerationDefaults) -> None:
    """Writes what `load_generation_defaults` reads back to an equal record."""
    settings = {
        one.name: getattr(generation, one.name)
        for one in fields(generation)
        if getattr(generation, one.name) not in (None, (), {})
    }
    text = json.dumps(settings, indent=2, sort_keys=True) + "\n"
    (folder / FILE).write_text(text, encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        ModelError: it cannot be read, or holds something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} holds {type(content).__name__}, expected a JSON object")
    return content


def with_own_names(
    content: dict[str, Any], foreign_names: dict[str, str], path: Path
) -> dict[str, Any]:
    """`content` with foreign keys renamed.

    Raises:
        ModelError: both spellings are there with different values.
    """
    result = {key: value for key, value in content.items() if key not in foreign_names}
    for foreign, ours in foreign_names.items():
        if content.get(foreign) is None:
            continue
        if result.get(ours) not in (None, content[foreign]):
            raise ModelError(
                f"{path} says {ours} {result[ours]!r} and {foreign} {content[foreign]!r}, two spellings "
                "of one setting; remove one of them"
            )
        result[ours] = content[foreign]
    return result
