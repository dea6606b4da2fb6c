"""The model card: what a model folder's README.md says."""

from elmo.formats.model import Model
from elmo.nn.adaptive import AdaptiveSoftmax

_TEMPLATE = """\
---
library_name: elmo-torch
tags: [elmo, bilm, word-vectors]
---
# ELMo biLM, {width} wide

{sizes}

{figures}
```python
import elmo

model = elmo.load("path/to/this/folder")
vectors = model.embed([["They", "saw", "a", "new", "play", "."]])
```

Architecture: Peters et al. 2018, *Deep contextualized word representations*.
"""


def model_card(model: Model, figures: dict[str, str]) -> str:
    """Markdown that says how large the model is, and `figures`, measured facts about it (name to value)."""
    rows = "\n".join(f"| {name} | {value} |" for name, value in figures.items())
    return _TEMPLATE.format(
        width=model.config.width,
        sizes=describe(model),
        figures=f"| measured | |\n|---|---|\n{rows}\n" if rows else "",
    )


def describe(model: Model) -> str:
    """The sizes of a model, in one sentence."""
    config = model.config
    parameters = sum(parameter.numel() for parameter in model.bilm.parameters())
    directions = "two directions" if config.bidirectional else "the forward direction only"
    kind = "an adaptive softmax" if isinstance(model.softmax, AdaptiveSoftmax) else "a softmax"
    words = "no softmax" if model.softmax is None else f"{kind} over {model.softmax.num_words:,} words"
    return (
        f"{parameters / 1e6:.1f} M parameters: {config.char_cnn.num_filters} character filters, "
        f"{config.char_cnn.n_highway} highway layers, {config.lstm.n_layers} LSTM layers of {config.lstm.dim} cells "
        f"projected to {config.lstm.projection_dim}, {directions}, {words}."
    )
