"""How a training of a task claims its run folder.

A single seed is trained in the run folder itself. Each of several seeds is trained in a subfolder, and in the end the
run folder becomes a copy of the best one. The files in the folder of a seed say whose it is and how far it has come:

- Nothing but hidden files: any run may begin there.
- `config.json`: it belongs to the run that this file and `vocabularies.json` describe, and is refused to any other. As
  long as it holds only what an attempt leaves before its first checkpoint, another run may take it over.
- `checkpoint.safetensors`: the same run goes on from there.
- `results.json`: the run is finished, and none of its settings may change any more.
- Anything else: it is a folder of the user's, and is refused.

A process locks the run folder while it trains, and the folder of each of several seeds while it trains that one.
"""

from __future__ import annotations

import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from elmo.errors import ElmoError
from elmo.formats.files import read_json, remove_partial, write_all, write_json
from elmo.formats.model import Model
from elmo.schema import from_mapping, to_mapping
from elmo.targets import alone_in, require_folder
from elmo.tasks.checkpoint import WEIGHTS
from elmo.tasks.recipe import TaskRecipe
from elmo.tasks.results import Result, best_of, spread, summarize
from elmo.tasks.run_folder import (
    BILM,
    CACHE,
    CARD,
    CONFIG,
    LARGEST_VOCABULARIES,
    RESULTS,
    SHARED_BILM,
    VOCABULARIES,
    RunConfig,
    is_run,
    is_seed_folder,
    keep_bilm,
    read_config,
    read_results,
    seed_folder,
    started_seeds,
    write_config,
)
from elmo.tasks.task import Vocabularies, get_task
from elmo.training.metrics import METRICS
from elmo.training.recipes import changed_key
from elmo.training.run_folder import AttemptFiles, names_in

_FILES = AttemptFiles(
    "a run folder of a task",
    marks=(CONFIG,),
    others=(VOCABULARIES, BILM, CACHE),
    forgotten=(BILM,),  # vectors are kept: their file is named after their biLM and text, and may serve again
)

_CHANGEABLE = ("max_epochs", "patience", "max_minutes", "checkpoint_every_minutes")
"""The keys of a recipe's section `training` that may change when an unfinished run is continued."""


def require_run_folder(run: Path, num_seeds: int) -> None:
    """Refuse a run folder that holds something other than a run of one seed, or of several.

    `Claim` compares more: whether it is the same run.

    Args:
        run: The run folder, which need not exist.
        num_seeds: The number of seeds to train.

    Raises:
        ElmoError: If the folder is refused.
    """
    require_folder(run)
    started = started_seeds(run)
    if num_seeds == 1:
        if started:
            raise ElmoError(f"{run}: holds a run of several seeds; choose another run folder, or more than one seed")
        if _FILES.is_run_folder(run):
            read_config(run)
    elif not _may_hold_seeds(run, started):
        raise ElmoError(f"{run}: is neither empty nor a run of several seeds; choose another one")


def _may_hold_seeds(run: Path, started: Sequence[int]) -> bool:
    """Return whether several seeds may be trained in a run folder, in which those in `started` were begun already.

    They may not if files of the user's are in the way.
    """
    names = names_in(run)
    if not started:  # a process that was killed right at its start left the first seed's folder empty
        return all(is_seed_folder(name) and (run / name).is_dir() and not names_in(run / name) for name in names)
    # The subfolders may also be runs of one seed that a user has collected under such names. Then the user's own files
    # next to them would be replaced by those of the best seed. A biLM is the user's, too, if no seed here shares it. A
    # folder with metrics is itself the run of one seed.
    if BILM in names and not any(read_config(seed_folder(run, seed))[0].bilm == SHARED_BILM for seed in started):
        return False
    replaced = names & {CARD, CONFIG, RESULTS, VOCABULARIES, WEIGHTS}
    return not replaced or (is_run(run) and METRICS not in names)


@dataclass(frozen=True)
class Claim:
    """The claim of a training to its run folder, with what the run in that folder has to be.

    Attributes:
        run: The run folder, which need not exist.
        seeds: The seeds to train.
        config: What they are trained on. Its `bilm` is `BILM` if the run is to have a copy of the biLM, even one that
            several seeds will share.
        recipe: The recipe of all seeds, which differ only in `training.seed`.
        vocabularies: The lists of strings that the models know.
        bilm: The biLM. None without ELMo.
    """

    run: Path
    seeds: range
    config: RunConfig
    recipe: TaskRecipe
    vocabularies: Vocabularies
    bilm: Model | None

    def folder_of(self, seed: int) -> Path:
        """Return the folder in which a seed is trained."""
        return self.run if len(self.seeds) == 1 else seed_folder(self.run, seed)

    def recipe_of(self, seed: int) -> TaskRecipe:
        """Return the recipe of a seed."""
        return replace(self.recipe, training=replace(self.recipe.training, seed=seed))

    def require_same(self, *, is_tuned_later: bool = False) -> bool:
        """Refuse a run folder in which something was trained that does not belong to this run.

        That is anything of a run with other settings, text or biLM, or the results of a seed that this run lacks.

        Args:
            is_tuned_later: Whether ELMo will be fine-tuned first, so that its checksum isn't known yet. A run without
                ELMo, or with ELMo as it is now, then counts as a different one.

        Returns:
            True if the folder holds at least one run, and each of them is another one that trained nothing.

        Raises:
            ElmoError: If the folder is refused.
        """
        started = started_seeds(self.run)
        left = [self._is_left_by_another(s, is_tuned_later=is_tuned_later) for s in started or self.seeds[:1]]
        for seed in started:
            if seed not in self.seeds and read_results(self.folder_of(seed)):
                raise ElmoError(
                    f"{self.run}: has the results of seed {seed}, which the results of seeds {self.seeds[0]} to "
                    f"{self.seeds[-1]} would replace; include it by training.seed and the number of seeds, or choose "
                    "another run folder"
                )
        return all(left)

    @contextmanager
    def held(self) -> Generator[None]:
        """Make the run folder, and lock it, so that no other process trains in it.

        Raises:
            ElmoError: If the folder holds another run or something else, or if another process trains there.
        """
        require_run_folder(self.run, len(self.seeds))
        self.require_same()  # before the lock: a user who has to choose another folder need not wait for it
        self.run.mkdir(parents=True, exist_ok=True)
        with alone_in(self.run):
            if len(self.seeds) > 1 and self.require_same():
                # The files of a seed are forgotten when its turn comes, but the biLM is here, where all seeds find it.
                shutil.rmtree(self.run / BILM, ignore_errors=True)
            yield

    @contextmanager
    def held_seed(self, seed: int) -> Generator[Path]:
        """Make the folder of a seed a run folder, and lock it. The run folder is `held`.

        Files that a killed process left half-written are removed, and so is another run that trained nothing, for
        instance because it ran out of memory.

        Yields:
            The folder in which the seed is trained.

        Raises:
            ElmoError: If the folder holds another run or something else, or another process trains there.
        """
        folder = self.folder_of(seed)
        folder.mkdir(exist_ok=True)
        # A second process may train one of the seeds by itself. It locks only that seed's folder, so lock it here too.
        with alone_in(folder) if folder != self.run else nullcontext():
            if self._is_left_by_another(seed):
                _FILES.forget(folder)
            config = replace(self.config, bilm=SHARED_BILM) if self._shares_bilm() else self.config
            remove_partial(folder)
            # The configuration is written first: after a kill between the two files, this is still known to be a run.
            write_all(
                {
                    folder / CONFIG: lambda path: write_config(path, config, to_mapping(self.recipe_of(seed))),
                    folder / VOCABULARIES: lambda path: write_json(path, self.vocabularies),
                }
            )
            if self.bilm is not None and config.bilm in (BILM, SHARED_BILM):
                keep_bilm(self.bilm, folder / config.bilm)
            yield folder

    def keep_best(self, results: Sequence[Result], metric: str) -> None:
        """Make the run folder a copy of the seed that is best on the dev set, with the results of all seeds.

        Args:
            results: The results of all seeds.
            metric: The score that decides.
        """
        best = best_of(results, metric)
        source = self.folder_of(best.seed)
        config, recipe = read_config(source)
        bilm = BILM if config.bilm == SHARED_BILM else config.bilm
        values = {"best_seed": best.seed, "runs": [result.as_json() for result in results]}
        summary = summarize(results)
        values |= {part: {name: spread(each) for name, each in scores.items()} for part, scores in summary.items()}
        write_all(
            {
                # Written first: after a kill, the other files are still known to be those of a run.
                self.run / CONFIG: lambda path: write_config(path, replace(config, bilm=bilm), recipe),
                self.run / VOCABULARIES: lambda path: shutil.copyfile(source / VOCABULARIES, path),
                self.run / WEIGHTS: lambda path: shutil.copyfile(source / WEIGHTS, path),
                self.run / RESULTS: lambda path: write_json(path, values),
            }
        )

    def _shares_bilm(self) -> bool:
        """Return whether several seeds share the copy of the biLM, even if one of them is trained by itself again."""
        if self.config.bilm != BILM or len(self.seeds) > 1:
            return self.config.bilm == BILM
        known = read_config(self.run)[0] if is_run(self.run) else self.config
        is_same = (known.bilm, known.fingerprint) == (SHARED_BILM, self.config.fingerprint)
        return is_same and (self.run / SHARED_BILM).exists()

    def _is_left_by_another(self, seed: int, *, is_tuned_later: bool = False) -> bool:
        """Return whether the folder of a seed was left behind by another run, which trained nothing.

        Raises:
            ElmoError: If the folder holds a run of another task, recipe, data or biLM that trained something, or if it
                holds something that is no run.
        """
        folder, recipe, now = self.folder_of(seed), self.recipe_of(seed), self.config
        if not _FILES.is_run_folder(folder):
            return False
        before, values = read_config(folder)  # what can't be read is refused, even if nothing was trained
        if is_tuned_later:  # it may then be any biLM but this one
            is_tuned = before.fingerprint not in (None, now.fingerprint)
            now = replace(now, fingerprint=before.fingerprint if is_tuned else "")
        words = {name: list(each) for name, each in self.vocabularies.items()}
        try:
            known = from_mapping(get_task(before.task).recipe, values, f"{folder / CONFIG}: recipe")
            if (difference := _difference(before, now) or changed_key(known, recipe, _CHANGEABLE)) is not None:
                raise ElmoError(f"{folder}: was started with {difference}; choose another run folder")
            if (folder / RESULTS).exists() and (difference := changed_key(known, recipe, ())) is not None:
                raise ElmoError(f"{folder}: was finished with other settings ({difference}); choose another run folder")
            if (folder / VOCABULARIES).exists() and read_json(folder / VOCABULARIES, LARGEST_VOCABULARIES) != words:
                raise ElmoError(
                    f"{folder}: was started with other words than the recipe's files hold now; choose another run "
                    "folder"
                )
        except ElmoError:
            if _FILES.may_be_forgotten(folder):
                return True
            raise
        return False


def _difference(before: RunConfig, now: RunConfig) -> str | None:
    """Describe the first thing, except the recipe, that a run was started with and that is another one now."""
    if before.task != now.task:
        return f"task {before.task}, not {now.task}"
    names = {"fingerprint": "biLM", "train": "training set", "dev": "dev set", "test": "test set"}
    for key, name in names.items():
        had, has = getattr(before, key), getattr(now, key)
        if had != has:
            if had is None:
                return f"no {name}, and now has one"
            return f"a {name}, and now has none" if has is None else f"another {name}"
    return None
