"""CUDA extension source -> loadable module: parse, rewrite, build, cache, load (DESIGN section 4)."""
