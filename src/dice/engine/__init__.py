"""Block-diffusion decoding: prompts in, completions out. Rank: above `models` and `prompts`."""
