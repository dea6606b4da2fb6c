"""The pretraining loop: reads a corpus folder and writes a run folder, which is a model folder that can be resumed.

Every random number depends only on the seed, the step and the process, and a checkpoint holds everything else that a
step depends on. So a run that was stopped, even by a kill, gives the same model as one that was never stopped: bit for
bit on the same processor with the same numbers of threads and processes, if steps rather than minutes end it. Under
`torchrun` the loop runs in several processes: see `Pretrainer`.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from copy import deepcopy
from pathlib import Path

import torch
from torch import Tensor

from elmo.errors import ElmoError
from elmo.extras import import_extra
from elmo.formats.model import Model, require_characters, require_softmax
from elmo.formats.native import TRAINED_FOR, is_written, read_figures, save_trained
from elmo.nn.bilm import BiLM, BiLMState
from elmo.nn.precision import PRODUCTS
from elmo.nn.softmax import Softmax
from elmo.pretrain.checkpoint import PretrainingProgress, common_tensors, resume, row_tensors, save_checkpoint
from elmo.pretrain.exchange import Volume, average_gradients
from elmo.pretrain.facts import text_facts
from elmo.pretrain.objective import Batches, Objective, TrainingBatch, make_softmax
from elmo.pretrain.optimizer import clip_gradients, make_optimizer
from elmo.pretrain.perplexity import Perplexity, perplexity_of, score_sentences
from elmo.pretrain.processes import Processes
from elmo.pretrain.recipe import Recipe
from elmo.pretrain.reporter import Reporter
from elmo.pretrain.run_folder import RECIPE, Start, claim_pretraining_run, mark, require_claimed
from elmo.schema import to_mapping
from elmo.targets import alone_in
from elmo.text.corpus import Corpus
from elmo.training.interruption import on_interrupt, saving_to
from elmo.training.machine import machine_name
from elmo.training.metrics import Row

Sentences = Sequence[Sequence[str]]

WHERE = ("trained on", "shared among")
"""Entries of the model card that are kept from the training when a finished run is started again on other hardware."""


class _StoppedError(Exception):
    """A stop was requested while held-out text was being measured."""


class Pretrainer:
    """A pretraining run: its model, its progress and the folder that it writes to.

    Creating one claims the run folder and loads its newest checkpoint, if there is one; `train` does the rest.

    `training.batch_size` is the size of the global batch. Under `torchrun`, each of W processes trains a replica of the
    model on its share of the rows. The processes average their gradients, so they all make the same update, and the run
    is the one that a single process would make, except for rounding and for which units dropout removes. `progress` is
    the same in every process. Only process 0 reads and writes the run folder; a run may be resumed with a different
    number of processes than it was saved with.

    Args:
        corpus: The prepared training text.
        folder: The run folder, which is created if it does not exist.
        recipe: The sizes of the biLM and the settings of the training.
        start: A model whose biLM, and softmax if it has one, are the initial weights, instead of random ones. The run
            trains a copy of it. The run folder records which model it was: resuming does not need it again, and
            refuses a different one.
        freeze_bilm: Whether to train only the softmax.
        heldout: Tokenized sentences whose perplexity is measured every `training.evaluate_every_steps` steps, and at
            the end.
        device: The device to train on, as `find_device` takes it.

    Attributes:
        model: The model that is trained, with its softmax.
        progress: How far the run has come.
        stopped: Whether an interrupt has ended training.

    Raises:
        ElmoError: If the recipe does not fit the corpus, `start` or the number of processes, if the corpus is damaged,
            or if the folder belongs to another run.
    """

    def __init__(
        self,
        corpus: Corpus,
        folder: Path,
        recipe: Recipe,
        *,
        start: Model | None = None,
        freeze_bilm: bool = False,
        heldout: Sentences = (),
        device: str = "auto",
    ) -> None:
        import_extra("tensorboard", "pretraining")  # before anything is written, not at the first report
        self.corpus, self.folder, self.recipe, self.heldout = corpus, folder, recipe, heldout
        self.stopped = self._is_asked_to_stop = False
        self._held: ExitStack | None = None
        self._is_ours: Callable[[], bool] | None = None
        training = recipe.training
        self.processes = Processes.join(device)
        rows = self.processes.rows(training.batch_size)
        _check(corpus, recipe, self.processes)
        self.processes.on_first(corpus.verify)
        if start is not None:
            _check_start(start, corpus, recipe)
        if self.processes.is_first:
            _warn_of_few(corpus, recipe)
        torch.manual_seed(training.seed)
        bilm = BiLM(recipe.bilm) if start is None else deepcopy(start.bilm)
        given = None if start is None else deepcopy(start.softmax)
        softmax = make_softmax(training, corpus.vocabulary_size, recipe.lstm.projection_dim, given)
        self._start = self.processes.on_first(
            lambda: claim_pretraining_run(folder, corpus, recipe, start and Start.of(start))
        )
        bilm.requires_grad_(not freeze_bilm)
        self.model = Model(bilm, softmax, corpus.vocabulary(), f"run folder {folder.name}")
        self.batches = Batches(corpus, training, recipe.bidirectional, rows)
        products = PRODUCTS[training.precision]
        self.objective = Objective(bilm, softmax, training.dropout, products).to(self.processes.device)
        row_sparse = [softmax.weight] if isinstance(softmax, Softmax) and self.batches.samples_negatives else []
        self.optimizer = make_optimizer(self.objective, training, row_sparse)
        self.state: BiLMState = bilm.initial_state(len(rows))
        self.exchanged = Volume()
        """The bytes that this process sent in the last step."""
        resumed = resume(self._checkpoints, self._common_tensors, self._row_tensors, self.processes)
        if resumed is None and start is None and self._start is not None:
            raise ElmoError(
                f"{folder}: was begun with a model, and has no checkpoint yet; name that model again (--from)"
            )
        self.progress = resumed or PretrainingProgress(loss_sums=(0.0,) * len(bilm.directions))

    @property
    def _common_tensors(self) -> dict[str, Tensor]:
        return common_tensors(self.objective, self.optimizer)

    @property
    def _row_tensors(self) -> dict[str, Tensor]:
        return row_tensors(self.state, self.batches.streams)

    @property
    def _checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def predictions_per_step(self) -> int:
        """The number of predictions that one direction makes in a step, summed over all processes."""
        return self.recipe.training.batch_size * self.recipe.training.unroll_steps

    @property
    def total_steps(self) -> int:
        """The number of steps after which the run ends, unless `training.max_minutes` ends it earlier."""
        training = self.recipe.training
        per_epoch = self.corpus.num_tokens + self.corpus.num_sentences
        steps = max(1, round(training.n_epochs * per_epoch / self.predictions_per_step))
        return steps if training.max_steps is None else min(steps, training.max_steps)

    @property
    def is_done(self) -> bool:
        """Whether the run has made all its steps or used up its minutes."""
        minutes = self.recipe.training.max_minutes
        out_of_time = minutes is not None and self.progress.seconds >= 60 * minutes
        return self.progress.step >= self.total_steps or out_of_time

    @property
    def _done(self) -> float:
        """The share of the run that is over in the middle of the current step: by steps or minutes, if that is more."""
        minutes, progress = self.recipe.training.max_minutes, self.progress
        by_time = 0.0 if minutes is None else progress.seconds / (60 * minutes)
        return max((progress.step - 0.5) / self.total_steps, by_time)

    def train(self) -> Model:
        """Train until the run is done or interrupted, and save it in either case.

        Returns:
            The model, on the device that it was trained on. `is_done` tells whether training reached its end.

        Raises:
            ElmoError: If a gradient is not finite, if the folder cannot be written to, or if another process uses it.
        """
        training = self.recipe.training
        # The training time that process 0 measured, not this process's clock: all must save after the same step.
        saved = self.progress.seconds
        with ExitStack() as stack:
            stack.enter_context(saving_to(self.folder))
            self.processes.on_first(lambda: self._lock(stack))
            self.processes.on_first(lambda: require_claimed(self.folder, self.corpus, self.recipe, self._start))
            reporter = stack.enter_context(self._reporter())
            stack.enter_context(on_interrupt(self._ask_to_stop))
            while not self.is_done and not self.stopped:
                self._step()
                if reporter is not None:
                    reporter.advance(self._summary(), self._expected_steps)
                if self._is_due(training.log_every_steps) or self._is_evaluation_due:
                    self._report(reporter)
                if self.progress.seconds - saved > 60 * training.checkpoint_every_minutes:
                    self.save()
                    saved = self.progress.seconds
            # Steps are unreported if the end was moved to where the run was stopped; held-out text may also be new.
            is_moved = self.is_done and self._is_unreported
            if is_moved:
                self._report(reporter)
            if is_moved or not self.processes.on_first(self._is_written):
                self.save()
        return self.model

    @property
    def _is_unreported(self) -> bool:
        """Whether there are steps since the last row of metrics, or held-out text not yet measured at this step."""
        progress = self.progress
        return progress.num_summed > 0 or (bool(self.heldout) and progress.heldout_step != progress.step)

    def _report(self, reporter: Reporter | None) -> None:
        """Add a row of metrics, unless a stop was requested before there was anything to report."""
        row = self._row()
        if reporter is not None and row.keys() & {"loss", "heldout_perplexity"}:
            self._keep_folder()
            reporter.add(row)

    def _reporter(self) -> AbstractContextManager[Reporter | None]:
        """A reporter for process 0, and None for all others."""
        if not self.processes.is_first:
            return nullcontext()
        return closing(Reporter(self.folder, self.progress.step, self.total_steps))

    def _is_written(self) -> bool:
        return is_written(self.model, self.folder, self.figures())

    def save(self) -> None:
        """Write a checkpoint, and the model folder that corresponds to it.

        Under `torchrun` every process must call this, since each holds the states of its own rows.
        """
        tensors = self._common_tensors | self.processes.gather(self._row_tensors)
        self.processes.on_first(lambda: self._write(tensors))

    def _write(self, tensors: dict[str, Tensor]) -> None:
        self._keep_folder()
        save_checkpoint(self._checkpoints, tensors, self.progress)
        save_trained(self.model, self.folder, self.figures(), self.metadata)

    def _keep_folder(self) -> None:
        """Create the run folder again if it was removed, since memory holds everything that must be in it.

        If another process has since begun a run there, the folder belongs to that process, and this one ends.
        """
        is_removed = not (self.folder / RECIPE).exists()
        if self._is_ours is not None and not self._is_ours():
            if not is_removed:
                raise ElmoError(
                    f"{self.folder}: was removed and begun again by another process while this one trained; this "
                    "process ends, and what it learned is lost"
                )
            self.folder.mkdir(parents=True, exist_ok=True)
            assert self._held is not None
            self._lock(self._held)
        if is_removed:
            mark(self.folder, self.corpus, self.recipe, self._start)

    def _lock(self, stack: ExitStack) -> None:
        """Hold the run folder until the end of `stack`."""
        stack.callback(self._forget_lock)
        self._held, self._is_ours = stack, stack.enter_context(alone_in(self.folder))

    def _forget_lock(self) -> None:
        self._held = self._is_ours = None

    def _step(self) -> None:
        started, progress = time.monotonic(), self.progress
        progress.step += 1
        # The seeds of the ranks are far apart: seed + rank would be the seed of the previous rank's next step.
        seed = self.recipe.training.seed * 1_000_003 + progress.step + self.processes.rank * 2_654_435_769
        torch.manual_seed(seed)
        losses = self.train_on(self.batches.read(progress.step))
        # Only process 0 measures the time: that of the others includes waiting while process 0 evaluates.
        seconds = time.monotonic() - started if self.processes.is_first else 0.0
        *sums, seconds, wishes = self.processes.sum([*losses, seconds, self._is_asked_to_stop])
        progress.loss_sums = tuple(a + b / self.processes.size for a, b in zip(progress.loss_sums, sums, strict=True))
        progress.num_summed += 1
        progress.seconds += seconds
        self.stopped = wishes > 0

    def train_on(self, batch: TrainingBatch) -> list[float]:
        """Update the parameters once.

        Args:
            batch: This process's share of the global batch.

        Returns:
            The loss of each direction on this share before the update, in nats per prediction.

        Raises:
            ElmoError: If the gradient is not finite.
        """
        training = self.recipe.training
        batch = batch.to(self.processes.device)
        self.optimizer.zero_grad()
        # As in bilm-tf, the loss is multiplied by the number of unrolled steps before gradients are clipped.
        losses, self.state = self.objective.backward(batch, self.state, training.unroll_steps)
        self.exchanged = average_gradients(self.objective.parameters(), self.processes.size)
        norm = clip_gradients(self.objective.parameters(), training.all_clip_norm_val)
        if not math.isfinite(norm):
            raise ElmoError(
                f"step {self.progress.step}: the gradient is not finite; start a run in a new folder from what "
                "this one saved last (--from), with a lower training.learning_rate"
            )
        self.optimizer.step(self._done)
        return torch.stack(losses).tolist()

    def _is_due(self, every: int | None) -> bool:
        return self.is_done or (every is not None and self.progress.step % every == 0)

    @property
    def _is_evaluation_due(self) -> bool:
        return bool(self.heldout) and self._is_due(self.recipe.training.evaluate_every_steps)

    @property
    def _expected_steps(self) -> int:
        """The step at which training is expected to end, at its pace so far."""
        minutes, progress = self.recipe.training.max_minutes, self.progress
        if minutes is None or progress.step == 0:
            return self.total_steps
        return min(self.total_steps, max(progress.step, round(progress.step * 60 * minutes / progress.seconds)))

    def _summary(self) -> Row:
        """The metrics of all steps since the last row."""
        progress = self.progress
        losses = [total / progress.num_summed for total in progress.loss_sums]
        predictions = progress.num_summed * self.predictions_per_step
        row: Row = {
            "step": progress.step,
            "predictions": progress.step * self.predictions_per_step,
            "seconds": progress.seconds,
            "tokens_per_second": predictions / (progress.seconds - progress.summed_seconds),
            "learning_rate": self.optimizer.learning_rate,
            "loss": sum(losses) / len(losses),
        }
        for direction, loss in zip(("forward", "backward"), losses, strict=False):
            row[f"{direction}_perplexity"] = perplexity_of(loss)
        return row

    def _row(self) -> Row:
        """Make a row of metrics, and reset the sums for the next row."""
        steps: Row = {"step": self.progress.step, "predictions": self.progress.step * self.predictions_per_step}
        row = self._summary() if self.progress.num_summed else steps | {"seconds": self.progress.seconds}
        if self._is_evaluation_due:
            row.update(self._evaluate())
        progress = self.progress
        progress.loss_sums, progress.num_summed = (0.0,) * len(progress.loss_sums), 0
        progress.summed_seconds = progress.seconds
        return row

    def _evaluate(self) -> Row:
        """Measure the perplexities of held-out text; an empty row if a stop was requested before the end."""
        result = self.processes.on_first(self._measure)
        if result is None:
            return {}
        self.progress.heldout_perplexity, self.progress.heldout_step = result.mean, self.progress.step
        row = {"heldout_perplexity": result.mean}
        for direction, value in zip(("forward", "backward"), result.directions, strict=False):
            row[f"heldout_{direction}_perplexity"] = value
        return row

    def _measure(self) -> Perplexity | None:
        try:
            return Perplexity.of(score_sentences(self.model, self._until_stopped()))
        except _StoppedError:
            return None

    def _until_stopped(self) -> Iterator[Sequence[str]]:
        """Yield the held-out sentences, and raise `_StoppedError` as soon as a stop is requested."""
        for sentence in self.heldout:
            if self._is_asked_to_stop:
                raise _StoppedError
            yield sentence

    def figures(self) -> dict[str, str]:
        """The model card's facts about the training text and the training, by name."""
        progress, heldout = self.progress, self.progress.heldout_perplexity
        trained_for = (
            f"{progress.step:,} steps, {progress.step * self.predictions_per_step:,} predictions a direction, "
            f"{progress.seconds / 60:.1f} minutes"
        )
        known = read_figures(self.folder)
        # A run that has not trained since the card was written keeps the hardware that the card names.
        where = self._where if known.get(TRAINED_FOR) != trained_for else {n: known[n] for n in WHERE if n in known}
        return text_facts(self.corpus) | {
            TRAINED_FOR: trained_for,
            **where,
            **({} if self._start is None else {"started from": self._start.history}),
            **({} if heldout is None else {"held-out perplexity when last measured": f"{heldout:.2f}"}),
        }

    @property
    def _where(self) -> dict[str, str]:
        """The model card's entries about the hardware and the number of processes."""
        place, spread = WHERE
        on = {place: machine_name(self.processes.device)}
        return on if self.processes.size == 1 else on | {spread: self._spread}

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata at the head of the model card."""
        language = self.corpus.source.get("language")
        return {"language": language} if language else {}

    @property
    def _spread(self) -> str:
        """How these processes share the work, for the model card."""
        batch_size, size = self.recipe.training.batch_size, self.processes.size
        volume = f"{sum(self.exchanged) / 1e6:,.1f} MB a step exchanged by each"
        return f"{size} processes, {batch_size // size} rows each of the {batch_size} of the global batch, {volume}"

    def _ask_to_stop(self) -> None:
        self._is_asked_to_stop = True


def _check_start(start: Model, corpus: Corpus, recipe: Recipe) -> None:
    """Refuse a model that does not fit the recipe or the corpus."""
    require_characters(start, "trained")
    if start.config != recipe.bilm:
        own, wanted = (to_mapping(config) for config in (start.config, recipe.bilm))
        other = [
            f"{part}.{key}" for part in ("char_cnn", "lstm") for key in own[part] if own[part][key] != wanted[part][key]
        ]
        raise ElmoError(
            f"{start.origin}: has other sizes than the recipe ({', '.join(other) or 'bidirectional'}); use the recipe "
            "that it was trained with"
        )
    if start.softmax is not None:
        require_softmax(start)
    if start.vocabulary is not None and start.vocabulary.words != corpus.vocabulary().words:
        raise ElmoError(
            f"{start.origin}: has another vocabulary than {corpus.folder}; prepare the text again with the model's: "
            "--vocabulary and the vocabulary.txt of its folder"
        )


def _check(corpus: Corpus, recipe: Recipe, processes: Processes) -> None:
    """Refuse a run that cannot be trained, before anything is written."""
    if len(set(processes.collect((recipe, corpus.checksum)))) > 1:
        raise ElmoError("the processes were started with different recipes or corpora; give all of them the same")
    if corpus.max_characters != (wanted := recipe.char_cnn.max_characters_per_token):
        raise ElmoError(
            f"{corpus.folder}: was prepared for {corpus.max_characters} characters a word, but the recipe's "
            f"max_characters_per_token is {wanted}; prepare the text again with --max-characters {wanted}"
        )


def _warn_of_few(corpus: Corpus, recipe: Recipe) -> None:
    """Warn if the corpus has fewer sentences than streams.

    Stream b begins at sentence b of the shuffled corpus, whose end is followed by its beginning.
    """
    streams = recipe.training.batch_size
    if corpus.num_sentences < streams:
        warnings.warn(
            f"{corpus.folder}: has fewer sentences ({corpus.num_sentences:,}) than there are streams ({streams:,}), so "
            "some streams read the same text; split long lines (--text paragraphs), or lower training.batch_size",
            stacklevel=3,
        )
