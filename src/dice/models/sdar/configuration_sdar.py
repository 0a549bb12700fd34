"""SDAR's configuration: Qwen3's fields plus `block_size` and `mask_token_id`.

Foreign spellings and leftovers of other code bases are handled in `from_dict`, the one place where
bytes come in; everything else sees only the names below.
"""

from typing import Any

from transformers import PreTrainedConfig

FOREIGN_NAMES = {"block_length": "block_size", "mask_id": "mask_token_id"}
_FOREIGN_LEFTOVERS = (
    "attn_implementation",
    "auto_map",
    "debug",
    "ep_size",
    "fuse_cross_entropy",
    "max_window_layers",
    "micro_forward",
    "skip_checkpoint",
    "use_cache",
    "use_deepep",
)

_SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "block_size",
)
_FLAGS = ("tie_word_embeddings", "attention_bias")


class SdarConfig(PreTrainedConfig):  # type: ignore[misc]
    """Configuration of a block-diffusion language model with Qwen3's architecture.

    `block_size` counts positions per diffusion block, from position 0 of the sequence. `mask_token_id`
    is the token that stands for a position still to be generated; it is never sampled. Source of the
    family: SDAR (arXiv 2510.06303), checkpoints `JetLM/SDAR-*-Chat`.
    """

    model_type = "sdar"

    vocab_size: int = 151936
    hidden_size: int = 2560
    intermediate_size: int = 9728
    num_hidden_layers: int = 36
    num_attention_heads: int = 32
    num_key_value_heads: int = 8
    head_dim: int = 128
    hidden_act: str = "silu"
    max_position_embeddings: int = 32768
    initializer_range: float = 0.02
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    rope_parameters: dict[str, Any] | None = None
    attention_bias: bool = False
    attention_dropout: float = 0.0
    block_size: int = 4
    mask_token_id: int | None = None
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    default_theta = 1_000_000.0

    def __post_init__(self, **kwargs: Any) -> None:
        """Refuses what the modeling code does not implement.

        Raises:
            ValueError: sliding windows, scaled RoPE, attention dropout, another activation, values of
                the wrong type, or sizes that do not fit each other.
        """
        sliding = kwargs.pop("use_sliding_window", False)
        kwargs.pop("sliding_window", None)
        super().__post_init__(**kwargs)
        self._check_types()
        rope_type = (self.rope_parameters or {}).get("rope_type", "default")
        problems = [
            (sliding, "use_sliding_window is not supported"),
            (rope_type != "default", f"rope_type {rope_type!r} is not supported, only 'default'"),
            (
                self.hidden_act != "silu",
                f"hidden_act {self.hidden_act!r}: only 'silu' is supported",
            ),
            (self.attention_dropout != 0.0, "attention_dropout must be 0"),
            (
                self.num_attention_heads % self.num_key_value_heads != 0,
                f"num_attention_heads {self.num_attention_heads} is no multiple of "
                f"num_key_value_heads {self.num_key_value_heads}",
            ),
        ]
        for wrong, message in problems:
            if wrong:
                raise ValueError(f"SdarConfig: {message}")

    def _check_types(self) -> None:
        theta = (self.rope_parameters or {}).get("rope_theta", self.default_theta)
        eos = self.eos_token_id if isinstance(self.eos_token_id, list) else [self.eos_token_id]
        expected: list[tuple[str, Any, bool]] = [
            (name, getattr(self, name), _is_id(getattr(self, name)) and getattr(self, name) >= 1)
            for name in _SIZES
        ]
        expected += [
            (name, getattr(self, name), isinstance(getattr(self, name), bool)) for name in _FLAGS
        ]
        expected += [
            ("rms_norm_eps", self.rms_norm_eps, _is_positive(self.rms_norm_eps)),
            ("rope_theta", theta, _is_positive(theta)),
            (
                "mask_token_id",
                self.mask_token_id,
                self.mask_token_id is None or _is_id(self.mask_token_id),
            ),
            ("eos_token_id", self.eos_token_id, eos == [None] or all(map(_is_id, eos))),
        ]
        wrong = [f"{name} cannot be {value!r}" for name, value, valid in expected if not valid]
        if wrong:
            raise ValueError(f"SdarConfig: {'; '.join(wrong)}")

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """As in transformers, after mapping foreign spellings and dropping foreign leftovers."""
        known = {key: value for key, value in config_dict.items() if key not in _FOREIGN_LEFTOVERS}
        for foreign, ours in FOREIGN_NAMES.items():
            if foreign in known:
                value = known.pop(foreign)
                if known.setdefault(ours, value) != value:
                    raise ValueError(
                        f"{ours} {known[ours]!r} and {foreign} {value!r} are two spellings of one "
                        "setting and differ; remove one"
                    )
        kwargs.pop("attn_implementation", None)
        return super().from_dict(known, **kwargs)


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and value > 0
