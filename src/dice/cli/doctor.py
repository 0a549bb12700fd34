"""`dice doctor`: what this machine can do, and how to get the rest. Imports no torch, starts no CUDA."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dice.cli.machine_report import Finding


def command(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """What can this machine do, what is missing, and how to get it?

    Exits with 0 when at least one backend can judge candidates, 1 otherwise.
    """
    from dice.cli.machine_report import BACKENDS, examine

    findings = examine()
    works = [one.name for one in findings if one.section == BACKENDS and one.state == "ok"]
    if as_json:
        from dataclasses import asdict

        report = {"backends": works, "findings": [asdict(one) for one in findings]}
        typer.echo(json.dumps(report, indent=2))
    else:
        _print(findings)
    raise typer.Exit(0 if works else 1)


def _print(findings: "list[Finding]") -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    width = max(len(one.name) for one in findings)
    marks = {"ok": ("ok", "green"), "missing": ("--", "yellow"), "broken": ("!!", "bold red")}
    for section in dict.fromkeys(one.section for one in findings):
        console.print(f"[bold]{section}[/]")
        table = Table.grid(padding=(0, 2))
        table.add_column(width=2)
        table.add_column(width=width)
        table.add_column(ratio=1, overflow="fold")
        for one in findings:
            if one.section == section:
                text = Text(one.text)
                if one.hint:
                    text.append(f"\n{one.hint}", style="dim")
                mark, style = marks[one.state]
                table.add_row(Text(mark, style=style), one.name, text)
        console.print(Padding(table, (0, 0, 1, 2)))
