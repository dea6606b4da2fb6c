"""The training loop: from a corpus folder to a run folder, which is a model folder that can go on training.

Every random number is a function of the seed and the step, and a checkpoint holds all else that a step depends on.
So a run that was stopped, however rudely, repeats to the bit what it would have done undisturbed. Started by
`torchrun`, the same loop runs on several processes: see `Pretrainer`.
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
from elmo.pretrain.run_folder import RECIPE, Start, claim_pretraining_run, mark
from elmo.schema import to_mapping
from elmo.targets import alone_in
from elmo.text.corpus import Corpus
from elmo.training.interruption import on_interrupt, saving_to
from elmo.training.machine import machine_name
from elmo.training.metrics import Row

Sentences = Sequence[Sequence[str]]

WHERE = ("trained on", "shared among")
"""Figures of a card that stay those of the training, wherever a run that is done is started again."""


class _StoppedError(Exception):
    """One asked to stop in the middle of a measurement."""


class Pretrainer:
    """One pretraining run: its model, where it is, and the folder it writes to.

    `training.batch_size` is the global batch. Under `torchrun`, each of W processes carries its share of these rows
    through a replica of the model; the mean of their gradients is exchanged, so that all make the same update and the
    run is, but for rounding and the places of dropout, the one that a single process makes. Where it is, `progress`,
    is the same on all; process 0 alone writes, and resumes for all, on whatever number of processes it was saved.

    `start` is a model whose weights the first step begins with, in place of chance; its softmax, too, if it has one. It
    stays as it is. A run folder remembers it, and goes on without it, but not with another one.
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
        """What this process handed out at the step before."""
        resumed = resume(self._checkpoints, self._common_tensors, self._row_tensors, self.processes)
        if resumed is None and start is None and self._start is not None:
            raise ElmoError(
                f"{folder}: was begun with a model, and has no checkpoint yet; name that model once more (--from)"
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
        """Predictions of one direction in a step, all processes together."""
        return self.recipe.training.batch_size * self.recipe.training.unroll_steps

    @property
    def total_steps(self) -> int:
        """Steps after which the run is done, unless its minutes are up before."""
        training = self.recipe.training
        per_epoch = self.corpus.num_tokens + self.corpus.num_sentences
        steps = max(1, round(training.n_epochs * per_epoch / self.predictions_per_step))
        return steps if training.max_steps is None else min(steps, training.max_steps)

    @property
    def is_done(self) -> bool:
        """Whether all steps are made or the minutes are up."""
        minutes = self.recipe.training.max_minutes
        out_of_time = minutes is not None and self.progress.seconds >= 60 * minutes
        return self.progress.step >= self.total_steps or out_of_time

    @property
    def _done(self) -> float:
        """The share of the run that is behind, by steps or by minutes, in the middle of the step in progress."""
        minutes, progress = self.recipe.training.max_minutes, self.progress
        by_time = 0.0 if minutes is None else progress.seconds / (60 * minutes)
        return max((progress.step - 0.5) / self.total_steps, by_time)

    def train(self) -> Model:
        """Train to the end, or to an interrupt; either way all is saved. Returns the model."""
        training = self.recipe.training
        saved = self.progress.seconds  # not the clock: all processes must save after the same step
        with ExitStack() as stack:
            stack.enter_context(saving_to(self.folder))
            self.processes.on_first(lambda: self._lock(stack))
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
            is_moved = self.is_done and self._is_unreported  # the end, to where the run was stopped; or text is new
            if is_moved:
                self._report(reporter)
            if is_moved or not self.processes.on_first(self._is_written):
                self.save()
        return self.model

    @property
    def _is_unreported(self) -> bool:
        """Whether something happened since the last row, or held-out text wasn't measured after it."""
        progress = self.progress
        return progress.num_summed > 0 or (bool(self.heldout) and progress.heldout_step != progress.step)

    def _report(self, reporter: Reporter | None) -> None:
        """Add a row of metrics, unless one asked to stop before there were any."""
        row = self._row()
        if reporter is not None and row.keys() & {"loss", "heldout_perplexity"}:
            self._keep_folder()
            reporter.add(row)

    def _reporter(self) -> AbstractContextManager[Reporter | None]:
        """What process 0 reports to."""
        if not self.processes.is_first:
            return nullcontext()
        return closing(Reporter(self.folder, self.progress.step, self.total_steps))

    def _is_written(self) -> bool:
        return is_written(self.model, self.folder, self.figures())

    def save(self) -> None:
        """Write a checkpoint, and the model folder that it stands for."""
        tensors = self._common_tensors | self.processes.gather(self._row_tensors)
        self.processes.on_first(lambda: self._write(tensors))

    def _write(self, tensors: dict[str, Tensor]) -> None:
        self._keep_folder()
        save_checkpoint(self._checkpoints, tensors, self.progress)
        save_trained(self.model, self.folder, self.figures(), self.metadata)

    def _keep_folder(self) -> None:
        """Make the run folder again where it was removed: what it needs to go on is all in memory. Where another
        process has begun there since, the folder is that one's."""
        is_removed = not (self.folder / RECIPE).exists()
        if self._is_ours is not None and not self._is_ours():
            if not is_removed:
                raise ElmoError(
                    f"{self.folder}: was removed and begun again by another process while this one trained; this one "
                    "ends, and what it learned is lost"
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
        # A process's rank goes far into the range of seeds, not to the step after.
        seed = self.recipe.training.seed * 1_000_003 + progress.step + self.processes.rank * 2_654_435_769
        torch.manual_seed(seed)
        losses = self.train_on(self.batches.read(progress.step))
        # The time of process 0, since the others' holds their wait for it while it evaluates.
        seconds = time.monotonic() - started if self.processes.is_first else 0.0
        *sums, seconds, wishes = self.processes.sum([*losses, seconds, self._is_asked_to_stop])
        progress.loss_sums = tuple(a + b / self.processes.size for a, b in zip(progress.loss_sums, sums, strict=True))
        progress.num_summed += 1
        progress.seconds += seconds
        self.stopped = wishes > 0

    def train_on(self, batch: TrainingBatch) -> list[float]:
        """Make one update of the parameters; returns the loss of each direction before it, in nats.

        `batch` is this process's share of the global batch, and the losses are of that share.
        """
        training = self.recipe.training
        batch = batch.to(self.processes.device)
        self.optimizer.zero_grad()
        # As published, the loss is scaled by the number of steps before the clipping.
        losses, self.state = self.objective.backward(batch, self.state, training.unroll_steps)
        self.exchanged = average_gradients(self.objective.parameters(), self.processes.size)
        norm = clip_gradients(self.objective.parameters(), training.all_clip_norm_val)
        if not math.isfinite(norm):
            raise ElmoError(
                f"step {self.progress.step}: the gradient is not finite; go on from the checkpoint before with a lower "
                "training.learning_rate in another run folder (--from)"
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
        """The step at which training will end, as far as its pace tells."""
        minutes, progress = self.recipe.training.max_minutes, self.progress
        if minutes is None or progress.step == 0:
            return self.total_steps
        return min(self.total_steps, max(progress.step, round(progress.step * 60 * minutes / progress.seconds)))

    def _summary(self) -> Row:
        """The metrics of the steps since the last row."""
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
        """A row of metrics; the next one begins after it."""
        steps: Row = {"step": self.progress.step, "predictions": self.progress.step * self.predictions_per_step}
        row = self._summary() if self.progress.num_summed else steps | {"seconds": self.progress.seconds}
        if self._is_evaluation_due:
            row.update(self._evaluate())
        progress = self.progress
        progress.loss_sums, progress.num_summed = (0.0,) * len(progress.loss_sums), 0
        progress.summed_seconds = progress.seconds
        return row

    def _evaluate(self) -> Row:
        """The perplexities of held-out text; none where one asks to stop before they are there."""
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
        """The held-out sentences; `_StoppedError` once one asks to stop."""
        for sentence in self.heldout:
            if self._is_asked_to_stop:
                raise _StoppedError
            yield sentence

    def figures(self) -> dict[str, str]:
        """What the model card says of the training, name to value."""
        progress, heldout = self.progress, self.progress.heldout_perplexity
        trained_for = (
            f"{progress.step:,} steps, {progress.step * self.predictions_per_step:,} predictions a direction, "
            f"{progress.seconds / 60:.1f} minutes"
        )
        known = read_figures(self.folder)
        where = self._where if known.get(TRAINED_FOR) != trained_for else {n: known[n] for n in WHERE if n in known}
        return text_facts(self.corpus) | {
            TRAINED_FOR: trained_for,
            **where,
            **({} if self._start is None else {"started from": self._start.history}),
            **({} if heldout is None else {"held-out perplexity when last measured": f"{heldout:.2f}"}),
        }

    @property
    def _where(self) -> dict[str, str]:
        """What the model card says of where these processes train."""
        place, spread = WHERE
        on = {place: machine_name(self.processes.device)}
        return on if self.processes.size == 1 else on | {spread: self._spread}

    @property
    def metadata(self) -> dict[str, str]:
        """The head of the model card."""
        language = self.corpus.source.get("language")
        return {"language": language} if language else {}

    @property
    def _spread(self) -> str:
        """How the last processes shared the work, for the model card."""
        batch_size, size = self.recipe.training.batch_size, self.processes.size
        volume = f"{sum(self.exchanged) / 1e6:,.1f} MB a step exchanged by each"
        return f"{size} processes, {batch_size // size} rows each of the {batch_size} of the global batch, {volume}"

    def _ask_to_stop(self) -> None:
        self._is_asked_to_stop = True


def _check_start(start: Model, corpus: Corpus, recipe: Recipe) -> None:
    """Refuse a model that the recipe or the corpus doesn't fit."""
    require_characters(start, "trained")
    if start.config != recipe.bilm:
        own, wanted = (to_mapping(config) for config in (start.config, recipe.bilm))
        other = [
            f"{part}.{key}" for part in ("char_cnn", "lstm") for key in own[part] if own[part][key] != wanted[part][key]
        ]
        raise ElmoError(
            f"{start.origin}: is of other sizes than the recipe ({', '.join(other) or 'bidirectional'}); train on with "
            "the recipe that it was made by"
        )
    if start.softmax is not None:
        require_softmax(start)
    if start.vocabulary is not None and start.vocabulary.words != corpus.vocabulary().words:
        raise ElmoError(
            f"{start.origin}: predicts other words than {corpus.folder}; prepare the text anew with the model's: "
            "--vocabulary and the vocabulary.txt of its folder"
        )


def _check(corpus: Corpus, recipe: Recipe, processes: Processes) -> None:
    """Refuse what can't be trained, before anything is written."""
    if len(set(processes.collect((recipe, corpus.checksum)))) > 1:
        raise ElmoError("the processes were started with different recipes or corpora; give all of them the same")
    if corpus.max_characters != (wanted := recipe.char_cnn.max_characters_per_token):
        raise ElmoError(
            f"{corpus.folder}: holds words of {corpus.max_characters} characters, but the recipe's "
            f"max_characters_per_token is {wanted}; prepare the text again with --max-characters {wanted}"
        )


def _warn_of_few(corpus: Corpus, recipe: Recipe) -> None:
    """Streams begin a sentence apart, and go round."""
    streams = recipe.training.batch_size
    if corpus.num_sentences < streams:
        warnings.warn(
            f"{corpus.folder}: has fewer sentences ({corpus.num_sentences:,}) than there are streams ({streams:,}), of "
            "which some read the same; cut long lines (--text paragraphs), or lower training.batch_size",
            stacklevel=3,
        )
