"""Prompts: Problem -> Prompt, Completion -> Candidate. No tokenising here."""

from dice.prompts.extract import extract
from dice.prompts.render import canonical_code, render, render_infilling, template_texts

__all__ = ["canonical_code", "extract", "render", "render_infilling", "template_texts"]
