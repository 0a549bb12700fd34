"""Reports of a run: the same numbers for a terminal, as JSON, as Markdown and as one HTML file."""

from dice.eval.report.facts import RunFacts, facts, run_json
from dice.eval.report.html import html, write_html
from dice.eval.report.md import markdown
from dice.eval.report.table import Table, rows

__all__ = ["RunFacts", "Table", "facts", "html", "markdown", "rows", "run_json", "write_html"]
