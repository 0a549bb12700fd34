"""Supervised data: synthesis, verification by running, decontamination, tokenising."""
