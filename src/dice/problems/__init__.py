"""Problems: parse a user's module file, read public problem sets. Nothing here runs a problem's code."""

from dice.problems.benchmark import Benchmark, BenchmarkProblem, load_benchmark
from dice.problems.kernelbench import load_dice_rl, load_jsonl
from dice.problems.normalise import normalised_hash
from dice.problems.parse import load_problem, parse_problem

__all__ = [
    "Benchmark",
    "BenchmarkProblem",
    "load_benchmark",
    "load_dice_rl",
    "load_jsonl",
    "load_problem",
    "normalised_hash",
    "parse_problem",
]
