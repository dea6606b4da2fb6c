"""Chooses a recipe by the length of the text, as `elmo pretrain` does by default."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from elmo.pretrain.checkpoint import has_checkpoint
from elmo.pretrain.recipe import PretrainingConfig, Recipe, load_pretraining_recipe
from elmo.pretrain.run_folder import CHECKPOINTS, RECIPE
from elmo.wording import counted

AUTO = "auto"
"""The name that stands for a recipe chosen by the length of the text."""


_SIZES: tuple[tuple[float, str, Mapping[str, object]], ...] = (
    (60_000, "little", {}),
    (2_000_000, "little", {"training.n_epochs": 10, "training.average": 0.0}),
    (10_000_000, "mini", {}),
    (float("inf"), "en", {}),
)
"""From the shortest texts to the longest: a recipe for texts of fewer than so many tokens, and the settings that are
changed in it for them. The first limit was measured on texts of 22,000 to 120,000 tokens (docs/lab-notes.md)."""


def choose_recipe(
    num_tokens: int,
    folder: Path,
    settings: Mapping[str, object],
    *,
    num_sentences: int = 0,
    gains_by_bf16: bool = True,
) -> tuple[Recipe, str]:
    """Choose a recipe by the length of the text, or take the one that the run in `folder` was begun with.

    Args:
        num_tokens: The number of tokens of the corpus.
        folder: The run folder, which need not exist. A run that has a checkpoint goes on with its own recipe, even if
            this version of the package would choose another one. Limits of steps and minutes are the
            exception: as with any recipe, they hold if `settings` has them, or the recipe that is chosen now.
        settings: Keys of the recipe to change and their values, as in `load_pretraining_recipe`.
        num_sentences: The number of sentences of the corpus. An epoch predicts the end of each, as well as the tokens.
        gains_by_bf16: Whether the device is faster in bf16 than in float32. If not, a new run trains in float32.

    Returns:
        The recipe, and one line that says what was chosen and why.
    """
    num_predictions = num_tokens + num_sentences
    below, name, changes = next(size for size in _SIZES if num_tokens < size[0])
    precision = {} if gains_by_bf16 else {"training.precision": "float32"}
    recipe = load_pretraining_recipe(name, {**changes, **precision, **settings})
    if (folder / RECIPE).exists() and has_checkpoint(folder / CHECKPOINTS):
        own = str(folder / RECIPE)
        # A limit of steps says nothing about a model of other sizes: that of `en` would end a run of `mini` too early.
        is_same = load_pretraining_recipe(own, settings).bilm == recipe.bilm
        limited = recipe.training if is_same else PretrainingConfig()
        limits = {f"training.{key}": getattr(limited, key) for key in ("max_steps", "max_minutes")}
        recipe = load_pretraining_recipe(own, {**limits, **settings})
        return recipe, f"recipe {own}, with which the run was begun; {_end_of(recipe.training, num_predictions)}"
    bound = "" if below == float("inf") else f" (fewer than {below:,.0f})"
    return recipe, (
        f"recipe {name}, chosen for {num_tokens:,} tokens{bound}; {recipe.bilm.width} wide with "
        f"{recipe.lstm.dim} cells, dropout {recipe.training.dropout:g}, {recipe.training.precision}, "
        f"{_end_of(recipe.training, num_predictions)}"
    )


def _end_of(training: PretrainingConfig, num_predictions: int) -> str:
    """Describe when a training ends, given the number of predictions in an epoch."""
    at_most = "" if training.max_minutes is None else f", at most {training.max_minutes:g} minutes"
    if training.max_steps is not None:
        num_read = training.max_steps * training.predictions_per_step
        if num_read < training.n_epochs * num_predictions:
            return f"{counted(training.max_steps, 'step')}, which read {num_read:,} tokens{at_most}"
    return f"{training.n_epochs:g} epoch{'' if training.n_epochs == 1 else 's'}{at_most}"
