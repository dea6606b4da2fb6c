"""Fine-tuning: training a pretrained model further on the text of a task (Peters et al. 2018, sec. 3.4 and Table 7)."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from elmo.errors import ElmoError
from elmo.formats.model import Model, require_characters, require_softmax
from elmo.formats.native import FILES, is_native, save_trained
from elmo.nn.devices import use_device
from elmo.nn.softmax import AdaptiveSoftmax
from elmo.pretrain.loop import Pretrainer, Sentences
from elmo.pretrain.perplexity import Perplexity, score_sentences
from elmo.pretrain.processes import started_together
from elmo.pretrain.recipe import PretrainingConfig, Recipe
from elmo.pretrain.run_folder import is_begun_with
from elmo.targets import alone_in
from elmo.text.corpus import Corpus
from elmo.text.prepare import prepare

LEARNING_RATE = 0.05
"""The default learning rate. Adagrad's sums start again from their initial value, so that the rate of pretraining, 0.2,
would undo much of what a model has learned (docs/lab-notes.md)."""

SAMPLE = 1000
"""How many sentences of the training text perplexity is measured on if no held-out text is given."""

WORK = ".corpus"
"""The prefix of the temporary folders in which a corpus is prepared."""


@dataclass(frozen=True)
class FineTuning:
    """The effect of fine-tuning.

    Attributes:
        before: The perplexity before fine-tuning.
        after: The perplexity after fine-tuning, of the same text.
        is_heldout: Whether that text is held-out text, or else the first sentences of the training text.
    """

    before: Perplexity
    after: Perplexity
    is_heldout: bool


def prepare_corpus(model: Model, inputs: Sequence[str], folder: Path, new_softmax: bool, **settings: Any) -> Corpus:
    """Prepare the corpus for fine-tuning a model, or use the same corpus of an earlier start.

    Args:
        model: The model to fine-tune.
        inputs: The files to train on.
        folder: The folder of the fine-tuning; the corpus becomes its subfolder `corpus`.
        new_softmax: Whether a new softmax is trained, with a vocabulary made from this text, instead of the model's.
        **settings: Further arguments of `prepare`.

    Raises:
        ElmoError: If the model cannot be fine-tuned, if `folder` holds a fine-tuning on other text or another model, or
            under `torchrun`.
    """
    if started_together() > 1:
        raise ElmoError("fine-tuning runs in one process; start it without torchrun")
    char_cnn = require_characters(model, "trained")
    if not new_softmax:
        require_softmax(model, "Pass new_softmax=True to train one on this text first, with the biLM frozen")
    path = folder / "corpus"
    if not path.exists() and (held := next((name for name in FILES if (folder / name).exists()), None)):
        raise ElmoError(f"{folder}: holds a {held} that does not belong to a fine-tuning; name a new folder")
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with alone_in(folder), TemporaryDirectory(dir=folder, prefix=WORK) as work:
            for left in folder.glob(f"{WORK}*"):  # left by a process that was killed
                if left != Path(work):
                    shutil.rmtree(left)
            made = Path(work) / "corpus"
            checksum = prepare(
                inputs,
                made,
                vocabulary=None if new_softmax else model.vocabulary,
                max_characters=char_cnn.max_characters_per_token,
                **settings,
            ).checksum  # keep only this: the corpus maps its files, and Windows cannot rename a mapped file
            if not path.exists():
                made.rename(path)
            elif Corpus.open(path).checksum != checksum:
                raise ElmoError(f"{folder}: holds a fine-tuning on other text; choose another folder")
    finally:
        if is_new and not path.exists():
            with suppress(OSError):  # another process may work there by now
                folder.rmdir()
    return Corpus.open(path)


def default_settings(model: Model, new_softmax: bool = False) -> dict[str, object]:
    """Return the settings of `PretrainingConfig` whose defaults are different in fine-tuning.

    It trains for one epoch, in which some sentences start from zeros, with the loss that fits the model's softmax. The
    learning rate is lower than in pretraining, unless the softmax is new.
    """
    settings: dict[str, object] = {"n_epochs": 1.0, "fresh_starts": True}
    if not new_softmax:
        settings["learning_rate"] = LEARNING_RATE
    if isinstance(model.softmax, AdaptiveSoftmax) and not new_softmax:
        settings |= {"loss": "adaptive", "adaptive_cutoffs": model.softmax.cutoffs[:-1]}
    return settings


def default_batch_size(corpus: Corpus, unroll_steps: int) -> int:
    """Return the number of streams: 128 as in pretraining, or fewer, so that an epoch of a short text has 100 steps."""
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
    """Train a model further on a corpus, and write the result to a model folder.

    Args:
        model: The model to fine-tune, whose weights are not changed.
        corpus: The training text, as `prepare_corpus` makes it.
        folder: The model folder to write. It also holds the run folders, so that an interrupted call can be repeated
            and continues where it was.
        training: The settings of the training.
        new_softmax: Whether to train a new softmax first, for as long again, with the biLM frozen. The perplexity
            before fine-tuning is then that of the old biLM with the new softmax.
        heldout: Tokenized sentences to measure perplexity on; without them, the first ones of the training text.
        device: The device to train on, as `find_device` takes it.

    Returns:
        The perplexities before and after, or None if the training was interrupted; its progress is then saved.
    """
    origin = model.origin
    recipe = Recipe(require_characters(model, "trained"), model.config.lstm, training, model.config.bidirectional)
    if new_softmax:
        start = Model(model.bilm, text=model.text)
        first = Pretrainer(corpus, folder / "softmax", recipe, start=start, freeze_bilm=True, device=device)
        # The second run has begun with this softmax, which must stay as it is even if `training` now allows more steps.
        if (folder / "run").exists():
            model = first.result
        else:
            model = first.train()
            if not first.is_done:
                return None
    sentences = heldout or _sample(corpus)
    before = Perplexity.of(score_sentences(model.to(use_device(device)), sentences))
    model.to(torch.device("cpu"))  # the run trains a copy, and a GPU may only have room for one of them
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
        save_trained(tuned, folder, run.figures() | figures, run.run_folder.metadata)
    return FineTuning(before, after, bool(heldout))


def is_finetuned(model: Model, folder: Path) -> bool:
    """Return whether a folder holds the result of fine-tuning `model`, with a new softmax if the model has none."""
    first, start = ("softmax", Model(model.bilm)) if model.softmax is None else ("run", model)
    return is_native(folder) and is_begun_with(folder / first, start)


def _sample(corpus: Corpus) -> list[list[str]]:
    """The first `SAMPLE` sentences of the corpus."""
    types = corpus.types()
    bounds = islice(pairwise(corpus.starts), SAMPLE)
    return [[types[i] for i in corpus.tokens[start:end]] for start, end in bounds]
