"""What describes a model in its folder: the model card (`README.md`) for people, and its figures for programs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from elmo.errors import ElmoError
from elmo.formats.files import read_json, require_file, write_json, write_text
from elmo.formats.model import Model
from elmo.schema import require_text
from elmo.wording import counted

CARD, FACTS = "README.md", "training.json"

TRAINED_FOR = "trained for"
"""The key of the figure that identifies one state of a model's training."""

_LONGEST_CARD = 1 << 20
"""How many characters of a card are read."""

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

Cut your text as the training text of the model was cut{tokenize}. {reads}, but knows how words are
used from that text alone, with its time, its subjects and its prejudices.
{sections}
Architecture: Peters et al. 2018, *Deep contextualized word representations*.
"""

_ANY_WORD = "The model reads any word by its characters"
_KNOWN_WORDS = "The model reads the words of its vocabulary, any other as `<UNK>`"

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
        tokenize="; `model.tokenize` does that" if model.text is not None else "",
        reads=_ANY_WORD if model.config.char_cnn is not None else _KNOWN_WORDS,
        figures=f"| training | |\n|---|---|\n{table_rows(figures)}\n" if figures else "",
        sections="".join(f"\n## {title}\n\n{text.strip()}\n" for title, text in (sections or {}).items()),
        source=source,
    )


def table_rows(cells: Mapping[str, str]) -> str:
    """Return the Markdown rows of a table of two columns."""
    return "\n".join(f"| {name} | {value} |" for name, value in cells.items())


def without_head(card: str) -> str:
    """Return a card without its head."""
    return _HEAD.sub("", card, count=1) if card.startswith("---\n") else card


def describe_model(model: Model) -> str:
    """Describe the sizes of a model in one sentence."""
    config = model.config
    parameters = sum(array.size for array in model.weights.values())
    layers = counted(config.lstm.n_layers, "LSTM layer")
    if config.char_cnn is None:
        read = f"{config.n_tokens_vocab:,} words, read as a whole"
    else:
        read = f"{config.char_cnn.num_filters} character filters, {counted(config.char_cnn.n_highway, 'highway layer')}"
    directions = "two directions" if config.bidirectional else "the forward direction only"
    softmax = model.stored_softmax
    kind = "an adaptive softmax" if softmax and softmax.is_adaptive else "a softmax"
    words = "no softmax" if softmax is None else f"{kind} over {softmax.num_words:,} words"
    return (
        f"{parameters / 1e6:.1f} M parameters: {read}, {layers} of {config.lstm.dim} cells projected to "
        f"{config.lstm.projection_dim}, {directions}, {words}."
    )


def read_card(path: Path) -> str:
    """Read the card leniently: it is only a text for people, so bad characters must not stop the model from loading."""
    require_file(path)
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(_LONGEST_CARD)


def read_figures(folder: Path) -> dict[str, str]:
    """Read the facts about a model's training (`training.json`), name to value.

    The result is empty if there is no such file: earlier versions wrote these facts only into the card.
    """
    path = folder / FACTS
    if not os.path.lexists(path):
        return {}
    match read_json(path):
        case {"figures": dict(figures)} if all(isinstance(value, str) for value in figures.values()):
            return cast("dict[str, str]", figures)
        case _:
            raise ElmoError(f"{path}: key 'figures' must map names to strings; correct it or remove the file")


def known_figures(folder: Path) -> dict[str, str] | None:
    """Read the facts as `read_figures` does, for a trainer that will write the file again. None if it is damaged."""
    try:
        return read_figures(folder)
    except ElmoError:
        return None


def description_writers(
    model: Model, folder: Path, figures: Mapping[str, str], metadata: Mapping[str, str] | None
) -> dict[Path, Callable[[Path], object]]:
    """Return the writers of the card and the figures. The figures come last: they show that everything is written."""
    facts = figures or model.figures
    card = model.card if model.card and not figures else model_card(model, facts, metadata)
    writers: dict[Path, Callable[[Path], object]] = {folder / CARD: lambda path: write_text(path, card)}
    return writers | figure_writers(folder, facts)


def figure_writers(folder: Path, figures: Mapping[str, str]) -> dict[Path, Callable[[Path], object]]:
    """Return the writer of the figures, or none if there are no figures.

    Raises:
        ElmoError: If a figure is not a string, with which `read_figures` would refuse the whole model.
    """
    for name, value in figures.items():
        require_text(f"`figures`: {name!r}", value)
    return {folder / FACTS: lambda path: write_json(path, {"figures": dict(figures)})} if figures else {}
