"""Every command in the README and the docs is one that the program accepts."""

import re
import shlex
from pathlib import Path

import pytest
import typer.main
from click import Command, Context, Group

from dice.cli.main import app

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands() -> list[tuple[str, str]]:
    """(page, command) for every `dice ...` in an indented block or in backticks with arguments."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = re.findall(r"^    (.*)$", text, re.MULTILINE) + re.findall(r"`(dice [^`]+)`", text)
        parts = [part.strip() for block in blocks for part in block.split("&&")]
        found += [(page.name, part) for part in parts if part.startswith("dice ")]
    return found


def test_there_are_commands_to_check() -> None:
    assert ("README.md", "dice generate examples/bias_gelu.py") in commands()


@pytest.mark.parametrize(("page", "line"), commands())
def test_documented_commands_parse(page: str, line: str) -> None:
    words = shlex.split(line)[1:]
    command: Command = typer.main.get_command(app)
    while isinstance(command, Group):
        assert words, f"{page}: {line} names no verb"
        assert words[0] in command.commands, f"{page}: {line}: no verb {words[0]}"
        command = command.commands[words.pop(0)]
    if any(word == "--help" for word in words) or not words:
        return
    context: Context = command.make_context(command.name, words)
    context.close()


def test_paths_in_the_readme_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (ROOT / target).exists(), target
