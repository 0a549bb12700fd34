"""A name -> a folder on this machine: a path, a hub id, or "nano", the model in the package."""

from importlib import resources
from pathlib import Path

from huggingface_hub import snapshot_download

from dice.errors import ModelError

DESCRIPTION_FILES = ("*.json", "*.jinja", "merges.txt", "*.model")
"""Everything but the weights; small."""
WEIGHT_FILES = ("*.safetensors",)


def find_folder(name: str, files: tuple[str, ...]) -> Path:
    """The folder of a checkpoint or adapter; from the hub, only `files` are fetched.

    Raises:
        ModelError: no such folder, and no hub id that can be fetched.
    """
    if name == "nano":
        return _nano()
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if folder.exists():
        raise ModelError(f"{folder} is a file; name the checkpoint folder it lies in")
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise ModelError(
            f"no model folder {folder}; name a folder, a hub id (owner/name) or 'nano'"
        )
    try:
        return Path(snapshot_download(name, allow_patterns=list(files)))
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{name} is no folder here and could not be fetched from the hub: {error}"
        ) from error


def _nano() -> Path:
    folder = Path(str(resources.files("dice.models"))) / "nano"
    if not (folder / "config.json").exists():
        raise ModelError(
            f"the built-in model 'nano' is not in this installation ({folder} holds no "
            "config.json); reinstall the package or name a checkpoint folder"
        )
    return folder
