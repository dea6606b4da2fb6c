"""Fine-tuning: a pretrained model goes on training on the text of a task (Peters et al. 2018, sec. 3.4 and Table 7)."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from elmo.errors import ElmoError
from elmo.formats.model import Model, require_characters, require_softmax
from elmo.formats.native import FILES, is_native, save_trained
from elmo.nn.adaptive import AdaptiveSoftmax
from elmo.nn.devices import use_device
from elmo.pretrain.loop import Pretrainer, Sentences
from elmo.pretrain.perplexity import Perplexity, score_sentences
from elmo.pretrain.processes import started_together
from elmo.pretrain.recipe import PretrainingConfig, Recipe
from elmo.pretrain.run_folder import is_begun_with
from elmo.targets import alone_in
from elmo.text.corpus import Corpus
from elmo.text.prepare import prepare

LEARNING_RATE = 0.05
"""Of Adagrad, whose sums start anew: the published 0.2 would undo much of what a model knows (docs/lab-notes.md)."""

SAMPLE = 1000
"""Sentences of the training text on which perplexity is measured where no held-out text is given."""

WORK = ".corpus"
"""How folders begin in which a corpus is made."""


@dataclass(frozen=True)
class FineTuning:
    """What fine-tuning did: perplexity before and after, of held-out text or else of the training text itself."""

    before: Perplexity
    after: Perplexity
    is_heldout: bool


def prepare_corpus(model: Model, inputs: Sequence[str], folder: Path, new_softmax: bool, **settings: Any) -> Corpus:
    """The corpus of a fine-tuning, in `folder`, with the model's vocabulary, or one of its own for a new softmax.

    `settings` are those of `prepare`. Raises ElmoError where `folder` holds the corpus of an earlier start on
    other text, or another model.
    """
    if started_together() > 1:
        raise ElmoError("fine-tuning runs on one process: start it without torchrun")
    char_cnn = require_characters(model, "trained")
    if not new_softmax:
        require_softmax(model, "Pass --new-softmax to train one on this text first, with the biLM frozen")
    path = folder / "corpus"
    if not path.exists() and (held := next((name for name in FILES if (folder / name).exists()), None)):
        raise ElmoError(f"{folder}: holds a {held} that is of no fine-tuning; name a new folder")
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with alone_in(folder), TemporaryDirectory(dir=folder, prefix=WORK) as work:
            for left in folder.glob(f"{WORK}*"):  # by a process that was killed
                if left != Path(work):
                    shutil.rmtree(left)
            made = Path(work) / "corpus"
            checksum = prepare(
                inputs,
                made,
                vocabulary=None if new_softmax else model.vocabulary,
                max_characters=char_cnn.max_characters_per_token,
                **settings,
            ).checksum  # all that is kept of it: Windows renames no mapped file
            if not path.exists():
                made.rename(path)
            elif Corpus.open(path).checksum != checksum:
                raise ElmoError(f"{folder}: holds a fine-tuning on other text; choose another folder")
    finally:
        if is_new and not path.exists():
            folder.rmdir()
    return Corpus.open(path)


def default_settings(model: Model, new_softmax: bool = False) -> dict[str, object]:
    """The keys of `PretrainingConfig` that fine-tuning sets otherwise than pretraining does.

    It trains for one epoch, in which some sentences start from zeros, with the loss of the model's softmax, and at a
    lower learning rate unless that softmax is new.
    """
    settings: dict[str, object] = {"n_epochs": 1.0, "fresh_starts": True}
    if not new_softmax:
        settings["learning_rate"] = LEARNING_RATE
    if isinstance(model.softmax, AdaptiveSoftmax) and not new_softmax:
        settings |= {"loss": "adaptive", "adaptive_cutoffs": model.softmax.cutoffs[:-1]}
    return settings


def default_batch_size(corpus: Corpus, unroll_steps: int) -> int:
    """As many streams as pretraining has, or fewer, so that an epoch of a short text still has a hundred steps."""
    return max(1, min(128, (corpus.num_tokens + corpus.num_sentences) // (100 * unroll_steps)))


def finetune(
    model: Model,
    corpus: Corpus,
    folder: Path,
    training: PretrainingConfig,
    *,
    new_softmax: bool = False,
    heldout: Sentences = (),
    device: str = "auto",
) -> FineTuning | None:
    """Train `model` on `corpus` as `training` says and write it to the model folder `folder`.

    With `new_softmax`, a fresh softmax is first trained for as long with the biLM frozen; perplexity before is then
    that of the old biLM with the new softmax. After an interrupt all is saved and None is returned; started again
    in the same folder, it goes on where it was.
    """
    origin = model.origin
    recipe = Recipe(require_characters(model, "trained"), model.config.lstm, training, model.config.bidirectional)
    if new_softmax:
        start = Model(model.bilm)
        first = Pretrainer(corpus, folder / "softmax", recipe, start=start, freeze_bilm=True, device=device)
        if (folder / "run").exists():  # begun with the softmax as it was then, even if the end is now a later one
            model = first.model
        else:
            model = first.train()
            if not first.is_done:
                return None
    sentences = heldout or _sample(corpus)
    before = Perplexity.of(score_sentences(model.to(use_device(device)), sentences))
    model.to(torch.device("cpu"))  # the run trains a copy, for which a GPU may just have room
    run = Pretrainer(corpus, folder / "run", recipe, start=model, device=device)
    tuned = run.train()
    if not run.is_done:
        return None
    after = Perplexity.of(score_sentences(tuned, sentences))
    text = "held-out text" if heldout else "training text"
    figures = {
        "started from": origin,
        f"perplexity before, {text}": f"{before.mean:.2f}",
        f"perplexity after, {text}": f"{after.mean:.2f}",
    }
    with alone_in(folder):
        save_trained(tuned, folder, run.figures() | figures, run.metadata)
    return FineTuning(before, after, bool(heldout))


def is_finetuned(model: Model, folder: Path) -> bool:
    """Whether the model folder `folder` is what came of fine-tuning `model`, with a new softmax if it has none."""
    first, start = ("softmax", Model(model.bilm)) if model.softmax is None else ("run", model)
    return is_native(folder) and is_begun_with(folder / first, start)


def _sample(corpus: Corpus) -> list[list[str]]:
    """The first sentences of the corpus."""
    types = corpus.types()
    bounds = islice(pairwise(corpus.starts), SAMPLE)
    return [[types[i] for i in corpus.tokens[start:end]] for start, end in bounds]
