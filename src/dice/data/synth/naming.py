"""Names that people give to sizes, tensors and hyper-parameters, by what the thing is."""

# fmt: off
DIM_NAMES: dict[str, tuple[str, ...]] = {
    "batch": ("batch_size", "batch_size", "batch_size", "batch", "B", "N", "bs", "num_samples", "n", "b", "BATCH"),
    "rows": ("rows", "num_rows", "M", "n_rows", "batch_size", "B", "tokens", "num_tokens", "T", "n_tokens"),
    "features": ("dim", "features", "num_features", "hidden_size", "hidden_dim", "D", "d_model", "embed_dim", "feature_dim", "input_size", "in_features", "input_dim", "hidden", "n_features", "C", "size", "model_dim", "width", "emb_dim"),
    "cols": ("cols", "num_cols", "N", "dim", "n_cols", "D", "columns", "vocab_size", "width"),
    "seq": ("seq_len", "sequence_length", "seq_length", "T", "L", "S", "seq", "length", "num_tokens", "time_steps", "n_tokens", "context"),
    "channels": ("channels", "num_channels", "in_channels", "C", "c", "features", "num_features", "n_channels", "ch"),
    "heads": ("num_heads", "n_heads", "heads", "H", "n_head", "nheads"),
    "height": ("height", "H", "h", "dim1", "image_height", "img_h", "rows"),
    "width": ("width", "W", "w", "dim2", "image_width", "img_w", "cols"),
    "depth": ("depth", "D", "d", "frames", "depth_dim", "num_frames"),
    "length": ("length", "L", "seq_len", "sequence_length", "num_points", "input_length", "signal_length", "T"),
    "classes": ("num_classes", "n_classes", "classes", "C", "vocab_size", "num_labels", "vocab"),
    "numel": ("n", "size", "N", "num_elements", "numel", "length", "n_elements", "dim", "total"),
    "dim1": ("dim1", "M", "height", "d1", "rows", "m", "seq_len", "H", "size1"),
    "dim2": ("dim2", "N", "width", "d2", "cols", "n", "features", "W", "size2"),
    "dim3": ("dim3", "K", "d3", "k", "channels", "C", "size3"),
    "embedding": ("embedding_dim", "embed_dim", "dim", "D", "d_model", "hidden_size", "emb_size"),
    "groups": ("num_groups", "groups", "G", "n_groups"),
}
# fmt: on
"""Dimension kind -> names of the constant that holds its size."""

# fmt: off
INPUT_NAMES: dict[str, tuple[str, ...]] = {
    "x": ("x",) * 14 + ("input", "inputs", "inp", "X", "a", "hidden_states", "input_tensor", "features", "data", "h", "z", "tensor", "t", "logits", "signal", "values", "feats", "u", "hidden", "tokens", "activations", "x_in", "embeddings", "inputs_embeds", "src", "image"),
    "y": ("y", "y", "other", "b", "residual", "x2", "skip", "y", "shortcut", "identity", "res", "Y", "z", "branch", "w", "add_input", "z_in", "other_input", "rhs"),
    "gate": ("gate", "g", "gating", "y", "mask_values", "weight", "w", "scale", "gates", "multiplier", "v"),
    "row": ("bias", "b", "y", "shift", "v", "vec", "offset", "w", "scale", "row", "vector"),
    "scores": ("scores", "logits", "x", "x", "attn", "attn_scores", "energy", "attention_scores", "inputs", "scores_in", "a"),
}
# fmt: on

LOCAL_NAMES: tuple[str, ...] = (
    "out",
    "y",
    "h",
    "z",
    "result",
    "output",
    "t",
    "tmp",
    "res",
    "u",
    "v",
    "hidden",
    "ret",
)
"""Names of intermediate results where nothing more telling is at hand."""
