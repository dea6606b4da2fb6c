"""The model card: what a model folder's README.md says."""

from elmo.formats.model import Model
from elmo.nn.adaptive import AdaptiveSoftmax

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

model = elmo.load("path/to/this/folder")
vectors = model.embed([["They", "saw", "a", "new", "play", "."]])
```

Tokens are to be cut as in the text that the model was trained on. It reads any word by its characters, but how words
are used it knows from that text alone, with its time, its subjects and its prejudices.

Architecture: Peters et al. 2018, *Deep contextualized word representations*.
"""


def model_card(model: Model, figures: dict[str, str], metadata: dict[str, str] | None = None) -> str:
    """Markdown that says how large the model is, and `figures`, facts about its training (name to value).

    `metadata` goes into the head that the Hugging Face Hub reads, such as `language` and `license` of the model.
    """
    rows = "\n".join(f"| {name} | {value} |" for name, value in figures.items())
    return _TEMPLATE.format(
        metadata="".join(f"{name}: {value}\n" for name, value in (metadata or {}).items()),
        width=model.config.width,
        sizes=describe(model),
        figures=f"| training | |\n|---|---|\n{rows}\n" if rows else "",
    )


def describe(model: Model) -> str:
    """The sizes of a model, in one sentence."""
    config = model.config
    parameters = sum(parameter.numel() for parameter in model.bilm.parameters())
    highways, layers = _count(config.char_cnn.n_highway, "highway layer"), _count(config.lstm.n_layers, "LSTM layer")
    directions = "two directions" if config.bidirectional else "the forward direction only"
    kind = "an adaptive softmax" if isinstance(model.softmax, AdaptiveSoftmax) else "a softmax"
    words = "no softmax" if model.softmax is None else f"{kind} over {model.softmax.num_words:,} words"
    return (
        f"{parameters / 1e6:.1f} M parameters: {config.char_cnn.num_filters} character filters, {highways}, "
        f"{layers} of {config.lstm.dim} cells projected to {config.lstm.projection_dim}, {directions}, {words}."
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
