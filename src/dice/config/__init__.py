"""Run configurations: TOML files read into pydantic models. Torch-free."""
