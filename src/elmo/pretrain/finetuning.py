"""Fine-tuning: training a pretrained model further on the text of a task (Peters et al. 2018, sec. 3.4 and Table 7)."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from elmo.errors import ElmoError
from elmo.formats import load
from elmo.formats.model import Model, require_characters, require_softmax
from elmo.formats.native import is_native
from elmo.formats.trained_folder import save_trained
from elmo.nn.devices import find_device, use_device
from elmo.nn.softmax import AdaptiveSoftmax
from elmo.pretrain.loop import Pretrainer
from elmo.pretrain.objective import make_softmax
from elmo.pretrain.perplexity import Perplexity, require_heldout, score_sentences
from elmo.pretrain.processes import started_together
from elmo.pretrain.recipe import PretrainingConfig, Recipe
from elmo.pretrain.run_folder import is_begun_with
from elmo.schema import from_mapping
from elmo.targets import alone_in, require_folder
from elmo.text.choice import choose_for_files
from elmo.text.corpus import DESCRIPTION, Corpus
from elmo.text.prepare import prepare
from elmo.text.reading import Reading, expand
from elmo.wording import perplexity_text

LEARNING_RATE = 0.05
"""The default learning rate of the biLM. Adagrad's sums start again from their initial value, so that the rate of
pretraining, 0.2, would undo much of what a model has learned (docs/lab-notes.md)."""

NEW_SOFTMAX_RATE = 0.2
"""The default learning rate of a new softmax, that of pretraining: it starts from random weights."""

SAMPLE_SENTENCES = 1000
"""How many sentences of the training text perplexity is measured on if no held-out text is given."""

WORK = ".corpus.unfinished-"
"""The prefix of the temporary folders in which a corpus is prepared."""


class FineTuningStoppedError(KeyboardInterrupt):
    """Fine-tuning was asked to stop, by Ctrl-C or SIGTERM. Its progress is saved."""


@dataclass(frozen=True)
class FineTuning:
    """The effect of fine-tuning.

    Attributes:
        before: The perplexity before fine-tuning.
        after: The perplexity after fine-tuning, of the same text.
        is_heldout: Whether that text is held-out text. If not, it is the first sentences of the training text.
    """

    before: Perplexity
    after: Perplexity
    is_heldout: bool

    def describe(self) -> str:
        """Return both perplexities in words."""
        return f"perplexity {perplexity_text(self.before.mean)} before, {perplexity_text(self.after.mean)} after"


def finetune(
    model: Model | str | Path,
    inputs: str | Path | Sequence[str | Path],
    folder: str | Path,
    *,
    settings: Mapping[str, object] | None = None,
    new_softmax: bool = False,
    heldout: Iterable[Sequence[str]] = (),
    device: str | torch.device = "auto",
    reading: Reading | None = None,
    encoding: str = "utf-8",
    min_count: int = 3,
    workers: int | None = None,
) -> FineTuning:
    """Train a model further on a text, as `elmo finetune` does, and write the result to a model folder.

    The same call again goes on where an earlier one was interrupted.

    Args:
        model: The model, or what `elmo.load` takes. It is not changed, but one on a GPU is moved to the CPU.
        inputs: The files to train on.
        folder: The model folder to write. It also holds the corpus and the run folders.
        settings: Keys of `PretrainingConfig` to change, and their values: `{"n_epochs": 2}`. `finetuning_config` says
            which defaults differ from those of pretraining. The default batch size depends on the length of the text.
        new_softmax: Whether to train a new softmax first, for as long again, with the biLM frozen. The perplexity
            before fine-tuning is then that of the old biLM with the new softmax. A learning rate among `settings` is
            that of both trainings.
        heldout: Tokenized sentences to measure perplexity on; without them, the first ones of the training text.
        device: The device to train on, as `find_device` takes it.
        reading: How to read the text. By default raw text is cut as the model's own was, and tokenized text has a
            sentence on each line. If something about it is strange, a warning says so.
        encoding: The encoding of the text if there is no `reading`, which has its own.
        min_count: A new softmax predicts the words that occur at least this many times.
        workers: The number of processes that tokenize, as in `prepare`.

    Returns:
        The perplexities before and after.

    Raises:
        ElmoError: If a setting is wrong, the model cannot be fine-tuned or the text cannot be read; if `folder` holds
            something else; or under `torchrun`.
        KeyboardInterrupt: If Ctrl-C or SIGTERM interrupted the training. Its progress is saved.

    Example:
        ```python
        result = finetune("en", ["letters.txt"], "letters-elmo", settings={"n_epochs": 2})
        print(result.before.mean, result.after.mean)
        ```
    """
    model, folder, settings = model if isinstance(model, Model) else load(model), Path(folder), settings or {}
    # Mistakes are found first, so that they leave no folder behind.
    find_device(device)
    finetuning_config(model, settings, new_softmax)
    heldout = list(heldout)
    require_heldout(heldout)
    if reading is None:
        choice, path = choose_for_files(model.text, model.vocabulary_file, expand(inputs), encoding=encoding)
        reading = choice.reading
        for note in choice.notes:
            warnings.warn(f"{path}: {note}", stacklevel=2)
    corpus = prepare_corpus(model, inputs, folder, new_softmax, **asdict(reading), min_count=min_count, workers=workers)
    config = finetuning_config(model, settings, new_softmax, corpus)
    softmax_config = new_softmax_config(config, settings) if new_softmax else None
    return finetune_on_corpus(
        model, corpus, folder, config, softmax_config=softmax_config, heldout=heldout, device=device
    )


def finetuning_config(
    model: Model, settings: Mapping[str, object], new_softmax: bool, corpus: Corpus | None = None
) -> PretrainingConfig:
    """Return the settings of a training: `settings`, and defaults for all other keys.

    Some defaults differ from those of pretraining: there is one epoch, the loss is the one that fits the model's
    softmax, and the learning rate is lower. The batch size is the default for `corpus`, if that is known yet.

    Raises:
        ElmoError: If a setting is wrong, or has no meaning in fine-tuning.
    """
    known: dict[str, object] = {"n_epochs": 1.0, "learning_rate": LEARNING_RATE, **settings}
    if isinstance(model.softmax, AdaptiveSoftmax) and not new_softmax:
        known.setdefault("loss", "adaptive")
        if known["loss"] == "adaptive":  # another loss is refused later, with a clearer message
            known.setdefault("adaptive_cutoffs", model.softmax.cutoffs[:-1])
    config = from_mapping(PretrainingConfig, known, "training")
    # Rates of other optimizers differ by orders of magnitude, so none is assumed.
    if config.optimizer != "adagrad" and "learning_rate" not in settings:
        raise ElmoError(f"`learning_rate`: the default is for Adagrad; choose one for {config.optimizer}")
    for name in ("evaluate_every_steps", "patience"):
        if getattr(config, name) is not None:
            raise ElmoError(f"training.{name}: fine-tuning measures only before and after training; leave it out")
    if model.softmax is not None and not new_softmax:  # refuse a loss that can't train the model's softmax
        make_softmax(config, model.softmax.num_words, model.config.lstm.projection_dim, model.softmax)
    if corpus is not None and "batch_size" not in settings:
        config = replace(config, batch_size=default_batch_size(corpus, config.unroll_steps))
    return config


def new_softmax_config(config: PretrainingConfig, settings: Mapping[str, object]) -> PretrainingConfig:
    """Return the settings of the training of a new softmax, from those of the biLM's: only the default rate differs."""
    if "learning_rate" in settings:
        return config
    return replace(config, learning_rate=NEW_SOFTMAX_RATE)


def prepare_corpus(
    model: Model, inputs: str | Path | Sequence[str | Path], folder: Path, new_softmax: bool, **preparation: Any
) -> Corpus:
    """Prepare the corpus for fine-tuning a model, or use the same corpus of an earlier attempt.

    Args:
        model: The model to fine-tune.
        inputs: The files to train on.
        folder: The folder of the fine-tuning; the corpus becomes its subfolder `corpus`.
        new_softmax: Whether a new softmax is trained, with a vocabulary made from this text, instead of the model's.
        **preparation: Further arguments of `prepare`.

    Raises:
        ElmoError: If the model cannot be fine-tuned, if `folder` holds a fine-tuning on other text or another model, or
            under `torchrun`.
    """
    if started_together() > 1:
        raise ElmoError("fine-tuning runs in one process; start it without torchrun")
    char_cnn = require_characters(model, "trained")
    if not new_softmax:
        require_softmax(model, "pass `new_softmax=True` to train one on this text first, with the biLM frozen")
    path = folder / "corpus"
    _require_finetuning(folder)
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with alone_in(folder), TemporaryDirectory(dir=folder, prefix=WORK) as work:
            for left in folder.glob(f"{WORK}*/"):  # left by a process that was killed
                if left.name != Path(work).name:  # from Python 3.12 on, `work` is absolute even if `folder` is not
                    shutil.rmtree(left)
            made = Path(work) / "corpus"
            checksum = prepare(
                inputs,
                made,
                vocabulary=None if new_softmax else model.vocabulary,
                max_characters=char_cnn.max_characters_per_token,
                **preparation,
            ).checksum  # keep only this: the corpus maps its files, and Windows cannot rename a mapped file
            if not path.exists():
                made.rename(path)
            elif Corpus.open(path).checksum != checksum:
                raise ElmoError(
                    f"{folder}: holds a fine-tuning on other text, on text that was cut in another way, of a model "
                    "with another vocabulary, or with `new_softmax=...` given differently; give what was given first, "
                    "or choose another folder"
                )
    finally:
        if is_new and not path.exists():
            with suppress(OSError):  # another process may work there by now
                folder.rmdir()
    return Corpus.open(path)


def _require_finetuning(folder: Path) -> None:
    """Refuse a folder that exists and is neither empty nor that of a fine-tuning."""
    require_folder(folder)
    names = sorted(path.name for path in folder.glob("[!.]*"))
    is_begun = (folder / "corpus" / DESCRIPTION).is_file()
    # A corpus alone may be left by a start that was stopped early. Other files are only written after a training.
    if is_begun and (names == ["corpus"] or {"softmax", "run"} & {*names}):
        return
    if others := [name for name in names if name != "corpus" or not is_begun]:
        raise ElmoError(f"{folder}: holds {others[0]}, which does not belong to a fine-tuning; name a new folder")


def default_batch_size(corpus: Corpus, unroll_steps: int) -> int:
    """Return the number of streams: 128 as in pretraining, or fewer, so that an epoch of a short text has 100 steps."""
    return max(1, min(128, (corpus.num_tokens + corpus.num_sentences) // (100 * unroll_steps)))


def finetune_on_corpus(
    model: Model,
    corpus: Corpus,
    folder: Path,
    config: PretrainingConfig,
    *,
    softmax_config: PretrainingConfig | None = None,
    heldout: Sequence[Sequence[str]] = (),
    device: str | torch.device = "auto",
) -> FineTuning:
    """Train a model further on a corpus of `prepare_corpus`, as `finetune` does with its other arguments.

    Args:
        model: The model.
        corpus: The corpus.
        folder: The model folder to write.
        config: The settings of the training.
        softmax_config: The settings of a training of a new softmax, which comes first; None keeps the model's softmax.
        heldout: Tokenized sentences to measure perplexity on.
        device: The device to train on.

    Raises:
        FineTuningStoppedError: If Ctrl-C or SIGTERM interrupted the training.
    """
    origin = model.origin
    recipe = Recipe(require_characters(model, "trained"), model.config.lstm, config, model.config.bidirectional)
    if softmax_config is not None:
        start, frozen = Model(model.bilm, text=model.text), replace(recipe, training=softmax_config)
        first = Pretrainer(corpus, folder / "softmax", frozen, start=start, freeze_bilm=True, device=device)
        # The second run has begun with this softmax, which must stay as it is even if settings now allow more steps.
        if (folder / "run").exists():
            model = first.result
        else:
            model = first.train()
            if first.stopped or not first.is_done:
                raise FineTuningStoppedError
        del first  # on a GPU, the second run may need its memory
    sentences = heldout or _sample(corpus)
    before = Perplexity.of(score_sentences(model.to(use_device(device)), sentences))
    model.to(torch.device("cpu"))  # the run trains a copy, and a GPU may only have room for one of them
    run = Pretrainer(corpus, folder / "run", recipe, start=model, device=device)
    tuned = run.train()
    if not run.is_done:  # its weights are still changing, so nothing may use them as if they were the result
        raise FineTuningStoppedError
    after = Perplexity.of(score_sentences(tuned, sentences))
    text = "held-out text" if heldout else "training text"
    figures = {
        "started from": origin,
        f"perplexity before, {text}": perplexity_text(before.mean),
        f"perplexity after, {text}": perplexity_text(after.mean),
    }
    with alone_in(folder):
        save_trained(tuned, folder, run.figures() | figures, run.run_folder.metadata)
    return FineTuning(before, after, bool(heldout))


def is_finetuned(model: Model, folder: Path) -> bool:
    """Return whether a folder holds the result of fine-tuning `model`, with a new softmax if the model has none."""
    first, start = ("softmax", Model(model.bilm)) if model.softmax is None else ("run", model)
    return is_native(folder) and is_begun_with(folder / first, start)


def _sample(corpus: Corpus) -> list[list[str]]:
    """Return the first `SAMPLE_SENTENCES` sentences of the corpus."""
    types = corpus.types()
    bounds = islice(pairwise(corpus.starts), SAMPLE_SENTENCES)
    return [[types[i] for i in corpus.tokens[start:end]] for start, end in bounds]
