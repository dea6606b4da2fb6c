"""The model card: the `README.md` of a model folder."""

import re
from collections.abc import Mapping

from elmo.formats.model import Model

_TEMPLATE = """\
---
library_name: elmo-torch
tags: [elmo, bilm, word-vectors]
{metadata}---
# ELMo biLM, {width} wide

{sizes}

{figures}
```python
import elmo

model = elmo.load("{source}")
vectors = model.embed([["They", "saw", "a", "new", "play", "."]])
```

Tokens are to be cut as in the text that the model was trained on. {reads}, but how words
are used it knows from that text alone, with its time, its subjects and its prejudices.
{sections}
Architecture: Peters et al. 2018, *Deep contextualized word representations*.
"""

_ANY_WORD = "It reads any word by its characters"
_KNOWN_WORDS = "It reads the words of its vocabulary, any other as `<UNK>`"

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_HEAD = re.compile(r"---\n.*?\n---\n", re.DOTALL)


def model_card(
    model: Model,
    figures: Mapping[str, str],
    metadata: Mapping[str, str] | None = None,
    *,
    sections: Mapping[str, str] | None = None,
    source: str = "path/to/this/folder",
) -> str:
    """Write the text of a model card in Markdown.

    Args:
        model: The model, whose sizes the card gives.
        figures: Facts about its training, name to value, which become a table.
        metadata: Keys for the head that the Hugging Face Hub reads, such as `language` and `license`.
        sections: Further sections for the end of the card, heading to text.
        source: The argument of `elmo.load` in the card's example.
    """
    import yaml  # only here, as cards are written seldom

    return _TEMPLATE.format(
        metadata=yaml.safe_dump(dict(metadata), allow_unicode=True, sort_keys=False, width=10_000) if metadata else "",
        width=model.config.width,
        sizes=describe_model(model),
        reads=_ANY_WORD if model.config.char_cnn is not None else _KNOWN_WORDS,
        figures=f"| training | |\n|---|---|\n{table_rows(figures)}\n" if figures else "",
        sections="".join(f"\n## {title}\n\n{text.strip()}\n" for title, text in (sections or {}).items()),
        source=source,
    )


def table_rows(cells: Mapping[str, str]) -> str:
    """Return the Markdown rows of a table of two columns."""
    return "\n".join(f"| {name} | {value} |" for name, value in cells.items())


def without_head(card: str) -> str:
    """Return a card without its head and without control characters.

    The card may come from a stranger, and control characters can move a terminal's cursor or do worse.
    """
    text = _HEAD.sub("", card, count=1) if card.startswith("---\n") else card
    return _CONTROLS.sub("", text)


def describe_model(model: Model) -> str:
    """Describe the sizes of a model in one sentence."""
    config = model.config
    parameters = sum(array.size for array in model.weights.values())
    layers = _count(config.lstm.n_layers, "LSTM layer")
    if config.char_cnn is None:
        read = f"{config.n_tokens_vocab:,} words, read as a whole"
    else:
        read = f"{config.char_cnn.num_filters} character filters, {_count(config.char_cnn.n_highway, 'highway layer')}"
    directions = "two directions" if config.bidirectional else "the forward direction only"
    softmax = model.stored_softmax
    kind = "an adaptive softmax" if softmax and softmax.is_adaptive else "a softmax"
    words = "no softmax" if softmax is None else f"{kind} over {softmax.num_words:,} words"
    return (
        f"{parameters / 1e6:.1f} M parameters: {read}, {layers} of {config.lstm.dim} cells projected to "
        f"{config.lstm.projection_dim}, {directions}, {words}."
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
