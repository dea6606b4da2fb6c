"""The training loop: from a corpus folder to a run folder, which is a model folder that can go on training.

Every random number is a function of the seed and the step, and a checkpoint holds all else that a step depends on.
So a run that was stopped, however rudely, repeats to the bit what it would have done undisturbed.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import torch
from lightning.fabric import Fabric

from elmo.config import Recipe
from elmo.errors import ElmoError
from elmo.formats.model import Model
from elmo.formats.native import save_native
from elmo.nn.bilm import BiLM, BiLMState, detach
from elmo.nn.softmax import Softmax
from elmo.pretrain.checkpoint import Progress, resume, save_checkpoint
from elmo.pretrain.metrics import Metrics, Row
from elmo.pretrain.objective import Batch, Batches, Objective
from elmo.pretrain.optimizer import clip_gradients, make_optimizer
from elmo.pretrain.perplexity import Perplexity, perplexity_of, score_sentences
from elmo.pretrain.run_folder import claim
from elmo.text.corpus import Corpus

Sentences = Sequence[Sequence[str]]


class Run:
    """One pretraining run: its model, where it is, and the folder it writes to."""

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
        self.stopped = False
        training = recipe.training
        _check(corpus, recipe, device)
        claim(folder, corpus, recipe)
        self.fabric = Fabric(accelerator=device, devices=1)
        torch.manual_seed(training.seed)
        bilm = BiLM(recipe.bilm) if start is None else start.bilm
        softmax = start.softmax if start is not None else None
        if softmax is None:
            softmax = Softmax(corpus.vocabulary_size, recipe.lstm.projection_dim)
        bilm.requires_grad_(not freeze_bilm)
        self.model = Model(bilm, softmax, corpus.vocabulary(), f"run folder {folder.name}")
        objective = Objective(bilm, softmax, training.dropout)
        optimizer = make_optimizer(objective, training)
        self.objective, self.optimizer = self.fabric.setup(objective, optimizer)
        self.batches = Batches(corpus, training, recipe.bidirectional)
        self.state: BiLMState = bilm.initial_state(training.batch_size)
        self.progress = Progress(loss_sums=(0.0,) * len(bilm.directions))
        if (resumed := resume(self._checkpoints, objective, optimizer, self.batches.streams)) is not None:
            self.state, self.progress = resumed

    @property
    def _checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def predictions_per_step(self) -> int:
        """Predictions of one direction in a step."""
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

    def train(self) -> Model:
        """Train to the end, or to an interrupt; either way all is saved. Returns the model."""
        training = self.recipe.training
        saved = time.monotonic()
        with (
            closing(Metrics(self.folder, self.progress.step, self.total_steps)) as metrics,
            _on_interrupt(self._stop),
        ):
            while not self.is_done and not self.stopped:
                started = time.monotonic()
                self._step()
                self.progress.seconds += time.monotonic() - started
                metrics.advance(self._summary(), self._expected_steps)
                if self._is_due(training.log_every_steps) or self._is_evaluation_due:
                    metrics.add(self._row())
                if time.monotonic() - saved > 60 * training.checkpoint_every_minutes:
                    self.save()
                    saved = time.monotonic()
        self.save()
        return self.model

    def save(self) -> None:
        """Write a checkpoint, and the model folder that it stands for."""
        save_checkpoint(
            self._checkpoints, self.objective.module, self.optimizer, self.state, self.batches.streams, self.progress
        )
        save_native(self.model, self.folder, self.figures())

    def _step(self) -> None:
        self.progress.step += 1
        torch.manual_seed(self.recipe.training.seed * 1_000_003 + self.progress.step)
        losses = self.train_on(self.batches.read(self.progress.step))
        self.progress.loss_sums = tuple(a + b for a, b in zip(self.progress.loss_sums, losses, strict=True))
        self.progress.num_summed += 1

    def train_on(self, batch: Batch) -> list[float]:
        """Make one update of the parameters; returns the loss of each direction before it, in nats."""
        training = self.recipe.training
        batch = batch.to(self.fabric.device)
        self.objective.train()
        losses, state = self.objective(batch, self.state)
        self.state = detach(state)
        self.optimizer.zero_grad()
        # As published, the loss is scaled by the number of steps before the clipping.
        self.fabric.backward(losses.mean() * training.unroll_steps)
        clip_gradients(self.objective.parameters(), training.all_clip_norm_val)
        with torch.sparse.check_sparse_tensor_invariants(False):  # said aloud, or torch warns at every step
            self.optimizer.step()
        return losses.tolist()

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
            "loss": sum(losses) / len(losses),
        }
        for direction, loss in zip(("forward", "backward"), losses, strict=False):
            row[f"{direction}_perplexity"] = perplexity_of(loss)
        return row

    def _row(self) -> Row:
        """A row of metrics; the next one begins after it."""
        row = self._summary()
        if self._is_evaluation_due:
            row.update(self._evaluate())
        progress = self.progress
        progress.loss_sums, progress.num_summed = (0.0,) * len(progress.loss_sums), 0
        progress.summed_seconds = progress.seconds
        return row

    def _evaluate(self) -> Row:
        result = Perplexity.of(score_sentences(self.model, self.heldout))
        self.progress.heldout_perplexity = result.mean
        row = {"heldout_perplexity": result.mean}
        for direction, value in zip(("forward", "backward"), result.directions, strict=False):
            row[f"heldout_{direction}_perplexity"] = value
        return row

    def figures(self) -> dict[str, str]:
        """What the model card says of the training, name to value."""
        progress = self.progress
        heldout = progress.heldout_perplexity
        return {
            "training text": f"{self.corpus.num_tokens:,} tokens in {self.corpus.num_sentences:,} sentences",
            "vocabulary": f"{self.corpus.vocabulary_size:,} words",
            "trained for": f"{progress.step:,} steps, {progress.step * self.predictions_per_step:,} predictions "
            f"a direction, {progress.seconds / 60:.1f} minutes",
            **({} if heldout is None else {"held-out perplexity when last measured": f"{heldout:.2f}"}),
        }

    def _stop(self) -> None:
        self.stopped = True


def _check(corpus: Corpus, recipe: Recipe, device: str) -> None:
    """Refuse what can't be trained, before anything is written."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ElmoError("device cuda: torch finds none on this machine; pass --device cpu")
    if corpus.max_characters != (wanted := recipe.char_cnn.max_characters_per_token):
        raise ElmoError(
            f"{corpus.folder}: holds words of {corpus.max_characters} characters, but the recipe's "
            f"max_characters_per_token is {wanted}; prepare the text again with --max-characters {wanted}"
        )


@contextmanager
def _on_interrupt(stop: Callable[[], None]) -> Generator[None]:
    """Let Ctrl-C and SIGTERM ask for a stop after the step in progress; a second Ctrl-C stops at once."""

    def handle(number: int, frame: object) -> None:
        stop()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
