"""Reports of a run: the same numbers for a terminal, as JSON, as Markdown and as one HTML file."""

from dice.eval.report.comparison import (
    comparison_json,
    comparison_markdown,
    comparison_rows,
    remarks,
)
from dice.eval.report.facts import RunFacts, facts, run_json
from dice.eval.report.html import write_html
from dice.eval.report.md import markdown
from dice.eval.report.table import Table, rows

__all__ = [
    "RunFacts",
    "Table",
    "comparison_json",
    "comparison_markdown",
    "comparison_rows",
    "facts",
    "markdown",
    "remarks",
    "rows",
    "run_json",
    "write_html",
]
