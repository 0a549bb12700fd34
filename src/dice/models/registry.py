"""Model families known to the Auto classes of `transformers`.

`register_auto_classes` is called before any Auto call; `trust_remote_code` is never set, so the
`auto_map` of a downloaded checkpoint is ignored.
"""

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from dice.models.sdar import SdarConfig, SdarForCausalLM, SdarModel


def register_auto_classes() -> None:
    """Makes `AutoConfig`, `AutoModel` and `AutoModelForCausalLM` know "sdar". Idempotent."""
    AutoConfig.register("sdar", SdarConfig, exist_ok=True)
    AutoModel.register(SdarConfig, SdarModel, exist_ok=True)
    AutoModelForCausalLM.register(SdarConfig, SdarForCausalLM, exist_ok=True)
