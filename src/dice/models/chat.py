"""A prompt as the text a tokenizer is given: messages go through the tokenizer's own chat template."""

from typing import Any

from jinja2 import TemplateError

from dice.errors import ModelError
from dice.types import Prompt


def prompt_text(tokenizer: Any, prompt: Prompt) -> str:
    """The prompt's text, ending where the completion begins.

    Raises:
        ModelError: the prompt has messages, and the tokenizer no chat template or one that refuses them.
    """
    if not prompt.messages:
        return prompt.text
    if not tokenizer.chat_template:
        raise ModelError(
            f"prompt template {prompt.template!r} is for a chat model, but the tokenizer has no chat "
            "template; add the chat_template.jinja of the checkpoint it was trained from, or set "
            "template in generation_config.json to the one it was trained on"
        )
    messages = [{"role": one.role, "content": one.content} for one in prompt.messages]
    try:
        text: str = tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
    except (TemplateError, TypeError, ValueError) as error:
        raise ModelError(f"the tokenizer's chat template cannot be used: {error}") from error
    return text
