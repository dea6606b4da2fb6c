"""The pretraining loop: reads a corpus folder and writes a run folder, which is a model folder that can be resumed.

Every random number depends only on the seed, the step and the process, and a checkpoint holds everything else that a
step depends on. So a run that was stopped, even by a kill, gives the same model as one that was never stopped: bit for
bit on the same processor with the same numbers of threads and processes, if steps rather than minutes end it. Under
`torchrun` the loop runs in several processes: see `Pretrainer`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from copy import deepcopy
from pathlib import Path

import torch
from torch import Tensor

from elmo.errors import ElmoError
from elmo.formats.model import Model, require_model
from elmo.formats.trained_folder import is_written
from elmo.nn.bilm import BiLM, BiLMState
from elmo.nn.precision import PRODUCTS
from elmo.nn.softmax import Softmax
from elmo.pretrain.checkpoint import (
    PretrainingProgress,
    common_tensors,
    has_checkpoint,
    resume_pretraining,
    row_tensors,
)
from elmo.pretrain.objective import Batches, Objective, TrainingBatch, make_softmax
from elmo.pretrain.optimizer import clip_gradients, make_optimizer
from elmo.pretrain.perplexity import Perplexity, perplexity_unless, require_heldout
from elmo.pretrain.processes import Processes, Volume, average_gradients
from elmo.pretrain.recipe import Recipe
from elmo.pretrain.reporter import Reporter
from elmo.pretrain.run_folder import PretrainingFolder, Start
from elmo.pretrain.trainable import require_trainable
from elmo.text.corpus import Corpus, require_corpus
from elmo.training.interruption import on_interrupt, saving_to
from elmo.training.metrics import require_tensorboard
from elmo.training.run_folder import checksum_of_examples
from elmo.training.schedule import step_seed


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
            the end. A run with `training.patience` needs them, the same ones at every start.
        device: The device to train on, as `find_device` takes it.
        tensorboard: Whether metrics are written for TensorBoard as well, which is an extra.

    Attributes:
        model: The model that is trained, with its softmax.
        objective: Its loss, as a module that holds the model's biLM and softmax.
        average: A copy of `objective` with the average of the weights, if there is a `training.average`.
        best: A copy of `objective` with the weights of the best step so far, if there is a `training.patience`.
        optimizer: What updates the parameters.
        batches: The batches of this process, one for each step.
        state: The LSTM states that the next step begins with, of the rows of this process.
        exchanged: The bytes that this process sent in the last step.
        progress: How far the run has come.
        run_folder: The folder of the run, with its lock, its checkpoints and its card.
        is_asked_to_stop: Whether this process was asked to stop. All processes stop after the same step (`stopped`).
        stopped: Whether an interrupt or `stop` came while `train` ran. Unless the run `is_done`, that ended it.

    Raises:
        ElmoError: If the recipe does not fit the corpus, `start` or the number of processes, if the corpus is damaged,
            or if the folder belongs to another run.
    """

    def __init__(
        self,
        corpus: Corpus,
        folder: str | Path,
        recipe: Recipe,
        *,
        start: Model | None = None,
        freeze_bilm: bool = False,
        heldout: Iterable[Sequence[str]] = (),
        device: str | torch.device = "auto",
        tensorboard: bool = False,
    ) -> None:
        # Nothing is written before everything is checked, so that a mistake leaves no folder behind.
        if tensorboard:
            require_tensorboard()
        require_corpus(corpus)
        folder, heldout = Path(folder), list(heldout)
        require_heldout(heldout)
        if start is not None:
            require_model(start)
        self.corpus, self.folder, self.recipe, self.heldout = corpus, folder, recipe, heldout
        self.stopped = self.is_asked_to_stop = False
        self._tensorboard = tensorboard
        training = recipe.training
        self.processes = Processes.join(device)
        rows = self.processes.rows(training.batch_size)
        if training.patience is not None and not (heldout and training.evaluate_every_steps):
            raise ElmoError(
                "training.patience: needs held-out text and the number of steps between two measurements "
                "(`heldout=...` and training.evaluate_every_steps)"
            )
        require_trainable(corpus, recipe, start, self.processes)

        torch.manual_seed(training.seed)
        bilm = BiLM(recipe.bilm) if start is None else deepcopy(start.bilm).float()
        given = None if start is None or start.softmax is None else deepcopy(start.softmax).float()
        softmax = make_softmax(training, corpus.vocabulary_size, recipe.lstm.projection_dim, given)
        bilm.requires_grad_(not freeze_bilm)
        self.run_folder = PretrainingFolder(folder, corpus, recipe)
        # Process 0 claims the folder and finds out what the run began with, which then holds for all.
        self.run_folder.start = self.processes.on_first(
            lambda: self.run_folder.claim(None if start is None else Start.of(start))
        )

        self.model = Model(bilm, softmax, corpus.vocabulary(), f"run folder {folder.name}")
        known = start if start is not None else self.run_folder.start
        self.model.text = corpus.cut_after(None if known is None else known.text)
        self.batches = Batches(corpus, training, recipe.bidirectional, rows)
        products = PRODUCTS[training.precision]
        self.objective = Objective(bilm, softmax, training.dropout, products, training.word_dropout)
        self.objective.to(self.processes.device)
        self.average = deepcopy(self.objective) if training.average > 0 else None
        self.best = None if training.patience is None else deepcopy(self.objective)
        row_sparse = [softmax.weight] if isinstance(softmax, Softmax) and self.batches.samples_negatives else []
        self.optimizer = make_optimizer(self.objective, training, row_sparse)
        self.state: BiLMState = bilm.initial_state(len(rows))
        self.exchanged = Volume()
        resumed = resume_pretraining(self.run_folder.checkpoints, *self._tensors(), self.processes)
        if resumed is None:
            self.processes.on_first(lambda: self.run_folder.require_nothing_trained(start))
        self.progress = resumed or PretrainingProgress(loss_sums=(0.0,) * len(bilm.directions))
        self._steps_before = self.progress.step
        self._heldout_text = checksum_of_examples(tuple(map(str, sentence)) for sentence in heldout)
        if self.best is not None and self._has_other_heldout:
            raise ElmoError(
                f"{folder}: was begun with other held-out text, with which training.patience would compare this one; "
                "name that text again, or choose another folder"
            )

    @property
    def predictions_per_step(self) -> int:
        """The number of predictions that one direction makes in a step, summed over all processes."""
        return self.recipe.training.predictions_per_step

    @property
    def total_steps(self) -> int:
        """The number of steps after which the run ends, unless its minutes or its patience end it earlier."""
        training = self.recipe.training
        per_epoch = self.corpus.num_tokens + self.corpus.num_sentences
        steps = max(1, round(training.n_epochs * per_epoch / self.predictions_per_step))
        return steps if training.max_steps is None else min(steps, training.max_steps)

    @property
    def is_done(self) -> bool:
        """Whether the run has made all its steps, or used up its minutes or its patience."""
        patience = self.recipe.training.patience
        out_of_patience = patience is not None and self.progress.num_worse >= patience
        return self.progress.step >= self.total_steps or self.is_out_of_time or out_of_patience

    @property
    def is_out_of_time(self) -> bool:
        """Whether the run has used up its minutes."""
        minutes = self.recipe.training.max_minutes
        return minutes is not None and self.progress.seconds >= 60 * minutes

    @property
    def current(self) -> Model:
        """The model as it is measured now: with the average of its weights, or with the weights themselves."""
        return self.model if self.average is None else self._model_of(self.average)

    @property
    def result(self) -> Model:
        """What the run results in: the model of the best step if it keeps that, and otherwise the current one."""
        if self.best is None or self.progress.best_step is None:
            return self.current
        return self._model_of(self.best)

    @property
    def share_done(self) -> float:
        """The share of the run that is over in the middle of the current step, by steps or by minutes: the larger one.

        The learning rate depends on it.
        """
        minutes, progress = self.recipe.training.max_minutes, self.progress
        by_time = 0.0 if minutes is None else progress.seconds / (60 * minutes)
        return max((progress.step - 0.5) / self.total_steps, by_time)

    def train(self) -> Model:
        """Train until the run is done or interrupted, and save it in either case.

        Returns:
            The `result`, on the device that it was trained on. `is_done` tells whether training reached its end.

        Raises:
            ElmoError: If a gradient or a weight is not finite, the folder cannot be written to, or another process uses
                it.
        """
        # The training time that process 0 measured, not this process's clock: all must save after the same step.
        saved, self.stopped = self.progress.seconds, False
        with ExitStack() as stack:
            stack.enter_context(saving_to(self.folder))
            self.processes.on_first(lambda: stack.enter_context(self.run_folder.held()))
            reporter = stack.enter_context(closing(Reporter(self, tensorboard=self._tensorboard)))
            stack.enter_context(on_interrupt(self.stop))
            while not self.is_done and not self.stopped:
                self.step()
                reporter.show_step()
                if self.is_evaluation_due or self._is_due(self.recipe.training.log_every_steps):
                    self._report(reporter)
                if self.progress.seconds - saved > 60 * self.recipe.training.checkpoint_every_minutes:
                    self.save()
                    saved = self.progress.seconds
            # If a setting has moved the end to the step where the run was stopped, no row reports its last steps yet.
            # Held-out text may also be new.
            is_end_new = self.is_done and self._has_unreported
            if is_end_new:
                self._report(reporter)
            # A finished run that is started again has its checkpoint already, and need not write it once more.
            if is_end_new or not self.processes.on_first(lambda: is_written(self.result, self.folder, self.figures())):
                self.save()
        self.stopped |= self.is_asked_to_stop  # during the last save
        self.is_asked_to_stop = False  # a call after this one goes on
        return self.result

    def _report(self, reporter: Reporter) -> None:
        """Measure held-out text if that is due, and write a row of metrics. Then begin the sums of the next one."""
        reporter.write_row(self.evaluate() if self.is_evaluation_due else None)
        self.progress.begin_row()

    def step(self) -> None:
        """Train on the next batch, and count it in `progress`."""
        started, progress = time.perf_counter(), self.progress  # on Windows, other clocks tick 64 times a second
        progress.step += 1
        torch.manual_seed(step_seed(self.recipe.training.seed, progress.step, self.processes.rank))
        losses = self.train_on(self.batches.read(progress.step))
        self._update_average()
        # Only process 0 measures the time: that of the others includes waiting while process 0 evaluates.
        seconds = time.perf_counter() - started if self.processes.is_first else 0.0
        # One exchange for everything: each costs a round trip. If any process was asked to stop, all of them do.
        *sums, seconds, wishes = self.processes.sum([*losses, seconds, self.is_asked_to_stop])
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
            raise self._not_finite("the gradient")
        self.optimizer.step(self.share_done)
        self.progress.learning_rate = self.optimizer.learning_rate
        return torch.stack(losses).tolist()

    @property
    def is_evaluation_due(self) -> bool:
        """Whether there is held-out text that has to be measured after the step that was just made."""
        return bool(self.heldout) and self._is_due(self.recipe.training.evaluate_every_steps)

    def evaluate(self) -> Perplexity | None:
        """Measure the perplexity of held-out text, and keep the weights if it is the best so far.

        Measuring may take minutes, and a machine that sends SIGTERM leaves only seconds until it kills the process, so
        a request to stop ends the measurement. With a `training.patience` it is finished nevertheless, because a run
        without it would not go on as if it had never been stopped.

        Returns:
            The perplexity, or None if a stop was requested before the end.
        """
        progress = self.progress
        found = self.processes.on_first(
            lambda: perplexity_unless(self.current, self.heldout, lambda: self.is_asked_to_stop and self.best is None)
        )
        if found is not None:
            progress.heldout_perplexity, progress.heldout_step = found.mean, progress.step
            progress.heldout_text = self._heldout_text
            self._keep_best(found.mean)  # with a patience, the text is always the same, and no step is measured twice
        return found

    def _is_due(self, every: int | None) -> bool:
        return self.is_done or (every is not None and self.progress.step % every == 0)

    @property
    def _has_unreported(self) -> bool:
        """Whether there are steps since the last row of metrics, or held-out text not yet measured at this step."""
        progress = self.progress
        is_new = progress.heldout_step != progress.step or self._has_other_heldout
        return progress.num_summed > 0 or (bool(self.heldout) and is_new)

    @property
    def _has_other_heldout(self) -> bool:
        """Whether the held-out text is another one than what was last measured."""
        return self.progress.heldout_text not in (None, self._heldout_text)

    def _keep_best(self, perplexity: float) -> None:
        """Keep the weights that were just measured if they are the best so far, and count how often they were not."""
        progress = self.progress
        if self.best is None:
            return
        if progress.best_perplexity is None or perplexity < progress.best_perplexity:
            progress.best_perplexity, progress.best_step = perplexity, progress.step
            progress.num_worse = 0
            self.best.load_state_dict((self.average or self.objective).state_dict())
        else:
            progress.num_worse += 1

    def stop(self) -> None:
        """Ask the run to stop after the current step and to save itself, as an interrupt does."""
        self.is_asked_to_stop = True

    def save(self) -> None:
        """Write a checkpoint, and the model folder that corresponds to it.

        Under `torchrun` every process must call this, since each holds the states of its own rows.

        Raises:
            ElmoError: If a weight is not finite. What was saved before stays as it is.
        """
        if not all(bool(parameter.isfinite().all()) for parameter in self.objective.parameters()):
            raise self._not_finite("a weight")
        common, rows = self._tensors()
        tensors = common | self.processes.gather(rows)
        self.processes.on_first(lambda: self.run_folder.save(self.result, tensors, self.progress, self.figures()))

    def figures(self) -> dict[str, str]:
        """Return the model card's facts about the training text and the training, by name."""
        has_trained = self.progress.step > self._steps_before
        return self.run_folder.figures(self.progress, self.processes, self.exchanged, has_trained=has_trained)

    def _not_finite(self, what: str) -> ElmoError:
        """Return the error to raise if numbers of the training, `what`, are not finite any more."""
        saved = has_checkpoint(self.run_folder.checkpoints)
        where = f" in a new folder; the model in {self.run_folder.path}, which was saved before, can be its start"
        return ElmoError(
            f"step {self.progress.step}: {what} is not finite; start again with a lower training.learning_rate"
            f"{where if saved else ''}"
        )

    def _model_of(self, objective: Objective) -> Model:
        known = self.model
        return Model(objective.bilm, objective.softmax, known.vocabulary, known.origin, text=known.text)

    @torch.no_grad()
    def _update_average(self) -> None:
        """Include the weights of the step in their average.

        It reaches back over a share of the steps so far, not over a fixed number: so it forgets the random beginning in
        a short run, too, and nobody needs to know beforehand how long the run will be (Shamir and Zhang 2013, sec. 4).
        """
        if self.average is not None:
            weight = min(1.0, 1 / (self.recipe.training.average * self.progress.step))
            for average, parameter in zip(self.average.parameters(), self.objective.parameters(), strict=True):
                average.lerp_(parameter, weight)

    def _tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the tensors of a checkpoint: those that all processes have in common, and those of this one's rows."""
        common = common_tensors(self.objective, self.optimizer, {"average": self.average, "best": self.best})
        return common, row_tensors(self.state, self.batches.streams)
