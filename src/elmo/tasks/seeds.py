"""Where the seeds of a run are trained, and which folder the run may use for them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from elmo.errors import ElmoError
from elmo.formats.files import write_all, write_json
from elmo.targets import require_folder
from elmo.tasks.checkpoint import WEIGHTS
from elmo.tasks.results import Result, best_of, spread, summarize
from elmo.tasks.run_folder import (
    BILM,
    CARD,
    CONFIG,
    RESULTS,
    SHARED_BILM,
    VOCABULARIES,
    is_run,
    is_seed_folder,
    read_config,
    read_results,
    require_task_run,
    seed_folder,
    started_seeds,
    write_config,
)
from elmo.training.metrics import METRICS


@dataclass(frozen=True)
class SeedFolders:
    """The folders of a run's seeds.

    A single seed is trained in the run folder itself. Each of several seeds is trained in a subfolder, and the run
    folder becomes a copy of the best one.

    Attributes:
        run: The run folder.
        num_seeds: How many seeds the run has.
    """

    run: Path
    num_seeds: int

    def folder_of(self, seed: int) -> Path:
        """Return the folder in which a seed is trained."""
        return self.run if self.num_seeds == 1 else seed_folder(self.run, seed)

    def require_usable(self) -> None:
        """Refuse a run folder that holds something other than such a run: one seed, or several.

        Raises:
            ElmoError: If the folder is refused.
        """
        require_folder(self.run)
        started = started_seeds(self.run)
        if self.num_seeds == 1:
            if started:
                raise ElmoError(
                    f"{self.run}: holds a run of several seeds; choose another run folder, or more than one seed"
                )
            require_task_run(self.run)
        elif not self._may_hold_seeds(started):
            raise ElmoError(f"{self.run}: is neither empty nor a run of several seeds; choose another one")

    def require_all_in(self, seeds: Sequence[int]) -> None:
        """Refuse a run that lacks seeds that are trained already: its results would replace theirs.

        Args:
            seeds: The seeds of the run.

        Raises:
            ElmoError: If there is such a trained seed.
        """
        for seed in started_seeds(self.run):
            if seed not in seeds and read_results(self.folder_of(seed)):
                raise ElmoError(
                    f"{self.run}: has the results of seed {seed}, which the results of seeds {seeds[0]} to {seeds[-1]} "
                    "would replace; include it by training.seed and the number of seeds, or choose another run folder"
                )

    def shares_bilm(self, fingerprint: str) -> bool:
        """Return whether the seeds share a copy of the biLM with this checksum.

        Several seeds do, and so does one of them that is trained by itself again.
        """
        if self.num_seeds > 1:
            return True
        if not is_run(self.run):
            return False
        config = read_config(self.run)[0]
        return (config.bilm, config.fingerprint) == (SHARED_BILM, fingerprint) and (self.run / SHARED_BILM).exists()

    def _may_hold_seeds(self, started: Sequence[int]) -> bool:
        """Return whether the run folder is that of several seeds, with these in it, or has nothing of the user's."""
        names = {path.name for path in self.run.glob("[!.]*")}
        if not started:  # a process that was killed right at its start left the first seed's folder empty
            return all(is_seed_folder(name) and _is_empty(self.run / name) for name in names)
        # A user may have collected runs of one seed under such names, next to files that the best seed's would replace,
        # or to a biLM, which seeds of one run share. A folder with metrics is itself the run of one seed.
        if BILM in names and not any(read_config(self.folder_of(seed))[0].bilm == SHARED_BILM for seed in started):
            return False
        replaced = names & {CARD, CONFIG, RESULTS, VOCABULARIES, WEIGHTS}
        return not replaced or (is_run(self.run) and METRICS not in names)

    def keep_best(self, results: Sequence[Result], metric: str) -> None:
        """Make the run folder a copy of the seed that is best on the dev set, with the results of all seeds.

        Args:
            results: The results of all seeds.
            metric: The score that decides.
        """
        best = best_of(results, metric)
        source = self.folder_of(best.seed)
        run_config, recipe = read_config(source)
        bilm = BILM if run_config.bilm == SHARED_BILM else run_config.bilm
        values = {"best_seed": best.seed, "runs": [result.as_json() for result in results]}
        summary = summarize(results)
        values |= {part: {name: spread(each) for name, each in scores.items()} for part, scores in summary.items()}
        write_all(
            {
                # The first one: after a kill, the other files are then still known to be those of a run.
                self.run / CONFIG: lambda path: write_config(path, replace(run_config, bilm=bilm), recipe),
                self.run / VOCABULARIES: lambda path: shutil.copyfile(source / VOCABULARIES, path),
                self.run / WEIGHTS: lambda path: shutil.copyfile(source / WEIGHTS, path),
                self.run / RESULTS: lambda path: write_json(path, values),
            }
        )


def _is_empty(folder: Path) -> bool:
    """Return whether a path is a folder with nothing but hidden files in it."""
    return folder.is_dir() and not any(folder.glob("[!.]*"))
