"""Training block-diffusion models: noise, packing, losses, the supervised loop, checkpoints."""
