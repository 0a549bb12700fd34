"""What can be set, with units, defaults and ranges. One class per section of a TOML file."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


class Section(BaseModel):
    """Base of every section: unknown keys are errors, values do not change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class BuildSection(Section):
    """Synthesising and verifying supervised pairs (`dice.data.build`)."""

    pairs: Annotated[int, Field(ge=1)] = 60_000
    """Indices drawn; duplicates and rejected pairs are not replaced."""
    seed: int = 0
    group_size: Annotated[int, Field(ge=1)] = 16
    """Pairs compiled as one translation unit."""
    shard_size: Annotated[int, Field(ge=1)] = 512
    """Indices per shard file: the unit of resuming."""
    workers: Annotated[int, Field(ge=0)] = 0
    """Worker processes; 0 takes one per core."""
    inputs_per_pair: Annotated[int, Field(ge=1)] = 2
    """Fresh inputs that the kernel must get right, in check mode."""
    pair_timeout_s: Annotated[float, Field(gt=0)] = 20.0
    """A kernel that has not answered by then is rejected."""
    held_out_fraction: Fraction = 0.02
    """Share of compositions of operations kept out of training, by hash of the composition."""
    held_out_min_ops: Annotated[int, Field(ge=1)] = 3
    """Only compositions of at least this many operations are held out."""


class DataConfig(Section):
    """A dataset build: the whole of a data TOML file."""

    build: BuildSection = BuildSection()


class ModelSection(Section):
    """Shape of a model trained from scratch; names as in SDAR's config.json."""

    hidden_size: Annotated[int, Field(ge=8)] = 384
    intermediate_size: Annotated[int, Field(ge=8)] = 1024
    num_hidden_layers: Annotated[int, Field(ge=1)] = 8
    num_attention_heads: Annotated[int, Field(ge=1)] = 6
    num_key_value_heads: Annotated[int, Field(ge=1)] = 6
    head_dim: Annotated[int, Field(ge=2)] = 64
    max_position_embeddings: Annotated[int, Field(ge=1)] = 4096
    rope_theta: Annotated[float, Field(gt=0)] = 10_000.0
    block_size: Annotated[int, Field(ge=1)] = 4
    tie_word_embeddings: bool = True
    initializer_range: Annotated[float, Field(gt=0)] = 0.02


class TrainSection(Section):
    """The optimisation."""

    seed: int = 0
    row_length: Annotated[int, Field(ge=4)] = 2048
    """Training tokens per packed row; the forward sees twice as many (noisy and clean copies)."""
    rows_per_batch: Annotated[int, Field(ge=1)] = 32
    """Rows per forward and backward pass."""
    accumulation: Annotated[int, Field(ge=1)] = 1
    """Batches per optimizer step; what is left at an epoch's end makes a smaller last step."""
    epochs: Annotated[int, Field(ge=1)] = 3
    max_steps: Annotated[int, Field(ge=1)] | None = None
    time_budget_s: Annotated[float, Field(gt=0)] | None = None
    """When set, the learning rate follows the elapsed share of this time, epochs repeat as needed, and
    training ends with it. Such a run is not reproducible bit for bit: its schedule reads the clock."""
    noise: Literal["block", "sample"] = "block"
    """Whether one noise level is drawn per diffusion block or per sample."""
    noise_eps: Annotated[float, Field(gt=0, lt=1)] = 1e-3
    lr: Annotated[float, Field(gt=0)] = 1e-3
    min_lr_ratio: Fraction = 0.0
    schedule: Literal["cosine", "wsd"] = "cosine"
    warmup_fraction: Fraction = 0.02
    decay_fraction: Fraction = 0.2
    """Share of the run over which "wsd" decays; "cosine" decays from the end of warmup on."""
    betas: tuple[Fraction, Fraction] = (0.9, 0.95)
    adam_eps: Annotated[float, Field(gt=0)] = 1e-8
    weight_decay: Annotated[float, Field(ge=0)] = 0.1
    """On matrices only: not on norms, biases or embeddings."""
    grad_clip: Annotated[float, Field(gt=0)] = 1.0
    attention: Literal["auto", "flex", "sdpa"] = "auto"
    """"auto" is "flex" on CUDA and "sdpa" elsewhere."""
    compile: bool | None = None
    """torch.compile the forward; None means on CUDA only."""
    bf16: bool | None = None
    """bfloat16 autocast over float32 weights; None means on CUDA only."""
    log_every: Annotated[int, Field(ge=1)] = 20
    checkpoint_every: Annotated[int, Field(ge=1)] = 500
    """Optimizer steps between checkpoints; one more is saved at the end and on Ctrl-C."""

    @model_validator(mode="after")
    def _phases_fit(self) -> "TrainSection":
        if self.warmup_fraction + self.decay_fraction > 1.0 and self.schedule == "wsd":
            raise ValueError("warmup_fraction + decay_fraction exceed 1")
        return self


class SftDataSection(Section):
    """What to train on."""

    train: str = "train.jsonl"
    """Pairs in JSON lines, as `dice.data.build` writes them."""
    tokenizer: str = "tokenizer"
    """Folder of a tokenizer in Hugging Face's layout."""
    template: str = "nano"


class SftConfig(Section):
    """A supervised run: the whole of an SFT TOML file."""

    data: SftDataSection = SftDataSection()
    init_from: str | None = None
    """Checkpoint to start from; None trains `model` from scratch."""
    model: ModelSection = ModelSection()
    train: TrainSection = TrainSection()
