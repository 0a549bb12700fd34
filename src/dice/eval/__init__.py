"""Evaluation: run a model over a benchmark, score what was logged, report, compare."""
