"""The trainer that all tasks share.

Every random number is a function of seed, epoch and step, and a checkpoint holds everything else. So a training that is
stopped, even by a kill, continues exactly as if it had never stopped, unless `training.max_minutes` ends it: on a CPU
to the bit, while a GPU adds numbers in an order that varies. This is why PyTorch Lightning is not used: its checkpoints
are pickles, and it does not resume within an epoch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from elmo.errors import ElmoError
from elmo.nn.precision import PRODUCTS, own_products
from elmo.progress import show_progress
from elmo.tasks.checkpoint import load_weights, resume_task, save_task_checkpoint, save_weights
from elmo.tasks.common.batches import plan_epoch
from elmo.tasks.prediction import predict
from elmo.tasks.recipe import TaskTrainingConfig
from elmo.tasks.task import Scores, Task, TaskModel
from elmo.training.interruption import on_interrupt, saving_to
from elmo.training.metrics import MetricsFile, Row
from elmo.training.schedule import schedule, step_seed

E = TypeVar("E")
P = TypeVar("P")

_SMALLEST = torch.finfo(torch.float32).tiny
"""Smaller numbers are subnormal: they have fewer digits, and processors compute slowly with them."""

_OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "adam": (torch.optim.Adam, {"fused": True}),
    "adadelta": (torch.optim.Adadelta, {"rho": 0.95}),  # TensorFlow's default; PyTorch's is 0.9
    "sgd": (torch.optim.SGD, {}),
}


class Trainer(Generic[E, P]):
    """Trains one model in a folder, which gets `weights.safetensors` of the best epoch, a checkpoint and `metrics.csv`.

    A trainer that is constructed with the same arguments and the same folder continues from the checkpoint.

    Args:
        task: The task, which scores the dev set.
        model: The model, on the device to train on. Its parameters that require a gradient are trained.
        config: The section `training` of a recipe.
        folder: The folder, which is made if it does not exist.
        train: The training set.
        dev: The dev set.
        tensorboard: Whether to write metrics for TensorBoard as well.

    Attributes:
        progress: How far the training has come.
        stopped: Whether an interrupt or `stop` ended `train` early.
        optimizer: What updates the parameters.
        averages: The moving averages of the parameters, which are empty unless the recipe has `ema_decay`.
    """

    def __init__(
        self,
        task: Task[Any, E, P],
        model: TaskModel[E, P],
        config: TaskTrainingConfig,
        folder: Path,
        train: Sequence[E],
        dev: Sequence[E],
        *,
        tensorboard: bool = False,
    ) -> None:
        self.task, self.model, self.config, self.folder = task, model, config, folder
        self.train_set, self.dev_set = train, dev
        self._tensorboard = tensorboard
        self.stopped = self._is_asked_to_stop = False
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        kind, options = _OPTIMIZERS[config.optimizer]
        if config.epsilon is not None:
            options = {**options, "eps": config.epsilon}
        self.optimizer = kind(parameters, **options, lr=config.learning_rate, weight_decay=config.weight_decay)  # pyright: ignore[reportCallIssue]
        self._parameters = parameters
        self._products = None if config.precision == "float32" else PRODUCTS[config.precision]
        self.averages = Averages(model, config.ema_decay)
        self._lengths = [task.length(example) for example in train]
        self._epoch_size = max(len(train), config.epoch_steps * config.batch_size)
        with saving_to(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._resume()

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches in an epoch."""
        return math.ceil(self._epoch_size / self.config.batch_size)

    @property
    def is_done(self) -> bool:
        """Whether the epochs, the patience or the minutes are used up."""
        progress, config = self.progress, self.config
        patience_out = progress.epoch - progress.best_epoch >= config.patience
        return progress.batch == 0 and (progress.epoch >= config.max_epochs or patience_out or self._minutes_are_up)

    @property
    def _minutes_are_up(self) -> bool:
        minutes = self.config.max_minutes
        return minutes is not None and self.progress.seconds >= 60 * minutes

    def train(self) -> None:
        """Train until the end or an interrupt, and save a checkpoint in either case.

        Afterwards the model has the weights of the best epoch, if an epoch was finished. Another call after an
        interrupt goes on from the checkpoint.

        Raises:
            ElmoError: If the loss, the gradient or the dev score is not finite, or the folder cannot be written to.
        """
        saved = time.perf_counter()  # on Windows, other clocks tick 64 times a second
        total = self.config.max_epochs * self.steps_per_epoch
        with ExitStack() as stack:
            stack.enter_context(saving_to(self.folder))
            if self.stopped:
                self._resume()  # the model has the weights of the best epoch now
                self.stopped = False
            metrics = MetricsFile(self.folder, "epoch", self.progress.epoch, tensorboard=self._tensorboard)
            stack.enter_context(closing(metrics))
            stack.enter_context(on_interrupt(self.stop))
            bar = show_progress("training", "batches", total, initial=self.progress.step)
            stack.enter_context(bar)
            while not self.is_done and not self.stopped:
                for batch in self.plan()[self.progress.batch :]:
                    if self._minutes_are_up:
                        break
                    self.step([self.train_set[index] for index in batch])
                    bar.set_postfix_str(self._describe(), refresh=False)
                    bar.update()
                    if time.perf_counter() - saved > 60 * self.config.checkpoint_every_minutes:
                        self.save()
                        saved = time.perf_counter()
                    if self.stopped:
                        break
                # Save before the evaluation, too, which may take longer than a machine waits before it shuts down.
                self.save()
                if not self.stopped:
                    self._end_epoch(metrics)
        self._is_asked_to_stop = False
        if self.progress.best_epoch:
            load_weights(self.folder, self.model)

    def stop(self) -> None:
        """Ask the training to stop after the current step and to save itself, as an interrupt does."""
        self._is_asked_to_stop = True

    def _resume(self) -> None:
        self.progress = resume_task(self.folder, self.model, self.optimizer, self.averages.tensors)

    def save(self) -> None:
        """Write a checkpoint, from which a later start continues."""
        save_task_checkpoint(self.folder, self.model, self.optimizer, self.progress, self.averages.tensors)

    def plan(self) -> list[list[int]]:
        """Return the batches of the current epoch, as indices into the training set.

        An epoch of a small set, which has some examples more often than others, begins where the last one ended. So all
        examples are used equally often in the long run.
        """
        size, epoch = len(self.train_set), self.progress.epoch
        indices = [place % size for place in range(epoch * self._epoch_size, (epoch + 1) * self._epoch_size)]
        lengths = [self._lengths[index] for index in indices]
        batches = plan_epoch(lengths, self.config.batch_size, self.config.seed, epoch)
        return [[indices[place] for place in batch] for batch in batches]

    def step(self, examples: Sequence[E]) -> None:
        """Update the parameters once, and count the step in `progress`.

        Args:
            examples: The batch.

        Raises:
            ElmoError: If the loss or the gradient is not finite. The weights are then as they were before.
        """
        started, progress = time.perf_counter(), self.progress
        self.model.train()
        torch.manual_seed(step_seed(self.config.seed, progress.step))
        progress.learning_rate = self.learning_rate
        for group in self.optimizer.param_groups:
            group["lr"] = progress.learning_rate
        self.optimizer.zero_grad()
        with own_products(self._products):
            loss = self.model.loss(examples) + self.model.elmo.penalty()
        loss.backward()  # pyright: ignore[reportUnknownMemberType]
        if self.config.clip_value is not None:
            torch.nn.utils.clip_grad_value_(self._parameters, self.config.clip_value)
        # Without a limit this changes nothing, but the norm is needed: what is not finite must not reach the weights.
        limit = math.inf if self.config.clip_norm is None else self.config.clip_norm
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, limit)
        value = loss.item()
        for what, number in (("loss", value), ("norm of the gradient", norm.item())):
            if not math.isfinite(number):
                raise ElmoError(
                    f"training: the {what} is {number} in epoch {progress.epoch + 1}, batch {progress.batch + 1}; a "
                    "lower training.learning_rate, training.clip_norm or training.clip_value may help, in a new folder"
                )
        self.optimizer.step()  # pyright: ignore[reportUnknownMemberType]
        self.averages.update()
        self._zero_subnormals()
        progress.step += 1
        progress.batch += 1
        progress.loss_sum += value
        progress.num_examples += len(examples)
        progress.num_trained += len(examples)
        self._count_seconds(started)
        self.stopped = self._is_asked_to_stop

    @torch.no_grad()
    def _zero_subnormals(self) -> None:
        """Set subnormal numbers to zero in the weights, their averages and the optimizer's state.

        An L2 penalty shrinks weights that have no other gradient until they are subnormal, and matrix products with
        such numbers are a hundred times slower. `torch.set_flush_denormal` is no remedy, since it only applies to the
        thread that calls it.
        """
        states = (state for states in self.optimizer.state.values() for state in states.values())
        for tensor in chain(self._parameters, self.averages.tensors.values(), states):
            torch.hardshrink(tensor, _SMALLEST, out=tensor)

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        config, progress = self.config, self.progress
        rate = config.learning_rate * progress.rate * config.decay_factor ** (progress.step // config.decay_steps)
        done = progress.step / (config.max_epochs * self.steps_per_epoch)
        if config.max_minutes is not None:
            done = max(done, progress.seconds / (60 * config.max_minutes))
        return rate * schedule(done, 0.0, config.decay)

    def _end_epoch(self, metrics: MetricsFile) -> None:
        """Evaluate the dev set, keep the weights if they are the best so far, and begin the next epoch."""
        started, progress = time.perf_counter(), self.progress
        row: Row = {
            "epoch": progress.epoch + 1,
            "step": progress.step,
            "learning_rate": progress.learning_rate,
            "loss": progress.loss_sum / progress.batch,
            "examples_per_second": progress.num_examples / progress.epoch_seconds,
        }
        with self.averages.in_place():
            scores = self.evaluate(self.dev_set)
            score = scores[self.task.metric]
            if not math.isfinite(score):  # no later epoch would count as better than NaN
                raise ElmoError(
                    f"training: the dev score {self.task.metric} is {score} after epoch {progress.epoch + 1}; the "
                    "score method of a task has to return finite numbers, and 0 where a score is not defined"
                )
            progress.epoch += 1
            self._judge(score)
        progress.batch, progress.loss_sum, progress.num_examples = 0, 0.0, 0
        self._count_seconds(started)
        progress.epoch_seconds = 0.0
        metrics.add(row | {"seconds": progress.seconds} | {f"dev_{name}": value for name, value in scores.items()})
        # The checkpoint is written after the best weights: these are never older than the best epoch that it names.
        self.save()
        self.stopped = self._is_asked_to_stop

    def _judge(self, score: float) -> None:
        """Compare the score of the epoch that has just ended with the best one, and adapt the learning rate."""
        progress, config = self.progress, self.config
        if progress.best_score is None or score > progress.best_score:
            progress.best_score, progress.best_epoch, progress.waited = score, progress.epoch, 0
            save_weights(self.folder, self.model)
            return
        progress.waited += 1
        if config.plateau_factor is not None and progress.waited >= config.plateau_patience:
            progress.rate *= config.plateau_factor
            progress.waited = 0

    def evaluate(self, examples: Sequence[E]) -> Scores:
        """Return the scores of the model, as it is now, on a set."""
        return self.task.score(examples, predict(self.task, self.model, examples, self.config.batch_size))

    def _count_seconds(self, started: float) -> None:
        seconds = time.perf_counter() - started
        self.progress.seconds += seconds
        self.progress.epoch_seconds += seconds

    def _describe(self) -> str:
        progress = self.progress
        best = "" if progress.best_score is None else f", best dev {self.task.metric} {progress.best_score:.2f}"
        return f"epoch {progress.epoch + 1}, loss {progress.loss_sum / progress.batch:.3f}{best}"


class Averages:
    """An exponential moving average of a model's weights, which is evaluated and kept in place of the weights.

    It starts at the initial weights. Each update multiplies it by `decay` and adds `1 - decay` times the current
    weights; there is no correction for a small number of updates.

    Args:
        model: The model, whose trained parameters are averaged.
        decay: The weight of all earlier steps together, from 0 up to 1. None keeps no averages.

    Attributes:
        tensors: The averages by the name of the parameter; empty without a decay.
    """

    def __init__(self, model: nn.Module, decay: float | None) -> None:
        self._decay = decay or 0.0
        self._parameters = {} if decay is None else {n: p for n, p in model.named_parameters() if p.requires_grad}
        self.tensors: dict[str, Tensor] = {name: p.detach().clone() for name, p in self._parameters.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Include the weights of the current step."""
        for name, average in self.tensors.items():
            average.lerp_(self._parameters[name], 1 - self._decay)

    @contextmanager
    def in_place(self) -> Generator[None]:
        """Put the averages into the model for the duration of the context, and then the weights back, to the bit."""
        weights = {name: p.detach().clone() for name, p in self._parameters.items()}
        self._put(self.tensors)
        try:
            yield
        finally:
            self._put(weights)

    @torch.no_grad()
    def _put(self, tensors: dict[str, Tensor]) -> None:
        for name, parameter in self._parameters.items():
            parameter.copy_(tensors[name])
