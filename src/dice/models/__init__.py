"""Model families: configuration, modeling, loading. Rank: below `engine`, beside `prompts`."""
