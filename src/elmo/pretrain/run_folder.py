"""The run folder of pretraining: which run it belongs to, its lock, its checkpoints, its model and its card.

It is tied to one corpus, one recipe and one model to begin with, however often the run is started.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import Tensor

from elmo.config import TextConfig
from elmo.errors import ElmoError
from elmo.formats.card import TRAINED_FOR, known_figures
from elmo.formats.files import read_json, write_all, write_json, write_text
from elmo.formats.model import Model
from elmo.formats.native_files import WEIGHTS
from elmo.formats.safetensors import checksum
from elmo.formats.trained_folder import save_trained
from elmo.pretrain.checkpoint import PretrainingProgress, save_pretraining_checkpoint
from elmo.pretrain.processes import Processes, Volume
from elmo.pretrain.recipe import Recipe, load_pretraining_recipe
from elmo.schema import from_mapping
from elmo.targets import alone_in, require_folder
from elmo.text.corpus import Corpus
from elmo.training.machine import machine_name
from elmo.training.recipes import changed_key, write_recipe
from elmo.training.run_folder import AttemptFiles
from elmo.wording import file_names, perplexity_text

RECIPE, CHECKSUM, START, CLAIM = "recipe.yaml", "corpus.sha256", "start.json", ".claim"
CHECKPOINTS = "checkpoints"
_FILES = AttemptFiles("a run folder", marks=(RECIPE, CHECKSUM), unmarked=(CHECKSUM, START), forgotten=(RECIPE, START))

_CHANGEABLE = (
    *("n_epochs", "max_steps", "max_minutes"),
    *("log_every_steps", "evaluate_every_steps", "checkpoint_every_minutes"),
)
"""The settings that may be different when a run is started again: when it ends, reports and saves.

`patience` may be another number, too, but not be added or left out.
"""

_TRAINED_ON, _SHARED_AMONG = "trained on", "shared among"
"""The entries of the card about the hardware."""


@dataclass(frozen=True)
class Start:
    """The model that a run begins with.

    Attributes:
        checksum: A checksum of its weights.
        history: How it was trained, for the model card.
        text: How its text was cut, if that is known. Earlier versions did not keep it.
    """

    checksum: str
    history: str
    text: TextConfig | None = None

    @classmethod
    def of(cls, model: Model) -> Start:
        """Describe a model as it is now."""
        tensors = {f"bilm/{name}": tensor for name, tensor in model.bilm.state_dict().items()}
        if model.softmax is not None:
            tensors |= {f"softmax/{name}": tensor for name, tensor in model.softmax.state_dict().items()}
        trained, before = (model.figures.get(name) for name in (TRAINED_FOR, "started from"))
        history = model.origin + (f", trained for {trained}" if trained else "")
        return cls(checksum(tensors, {}), history + (f"; that from {before}" if before else ""), model.text)


class PretrainingFolder:
    """The folder of a pretraining run. Of several processes, only process 0 calls its methods.

    Args:
        path: The folder, which need not exist.
        corpus: The corpus that is trained on.
        recipe: The recipe. It differs from that of an earlier attempt at most in when the run ends, reports and saves.

    Attributes:
        path: The folder.
        start: The model that the run began with; None for random weights, and before the folder is claimed.
    """

    def __init__(self, path: Path, corpus: Corpus, recipe: Recipe) -> None:
        self.path = path
        self.start: Start | None = None
        self._corpus, self._recipe = corpus, recipe
        self._locks: ExitStack | None = None
        self._is_locked: Callable[[], bool] | None = None

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / CHECKPOINTS

    def claim(self, start: Start | None) -> Start | None:
        """Create the folder, or check that it belongs to this run, and write the recipe to it.

        Args:
            start: The model to begin with; None for random weights, or for that which an earlier attempt began with.

        Returns:
            The model that the run began with, as the attribute `start` also says.

        Raises:
            ElmoError: If the folder belongs to another run or is not a run folder, or if another process trains there.
        """
        self.start, is_left_by_another = start, False
        require_folder(self.path)
        self.path.mkdir(parents=True, exist_ok=True)
        with self._claiming():
            if _FILES.is_run_folder(self.path):
                try:
                    self.start = self._require_same(start)
                except ElmoError:
                    if not _FILES.may_be_forgotten(self.path):
                        raise
                    is_left_by_another = True
            # The lock refuses the folder while another process trains there, which none does without a recipe.
            with alone_in(self.path) if (self.path / RECIPE).exists() else nullcontext():
                if is_left_by_another:
                    _FILES.forget(self.path)
                self._mark()
        return self.start

    def require_nothing_trained(self, start: Model | None) -> None:
        """Refuse a run without a checkpoint if it could not begin as it did, or would replace what was trained before.

        Args:
            start: The model that was given to begin with, if any.

        Raises:
            ElmoError: If the folder holds a model, whose checkpoints were then removed; or if the run was begun with a
                model, and is given none now.
        """
        if (self.path / WEIGHTS).exists():  # written after a checkpoint
            raise ElmoError(
                f"{self.path}: holds a trained model, but no checkpoint to continue from; training from the beginning "
                "would replace the model, so choose another folder (a new run can start from this model)"
            )
        if start is None and self.start is not None:
            raise ElmoError(
                f"{self.path}: was begun with a model, and has no checkpoint yet; name that model again (`start=MODEL`)"
            )

    @contextmanager
    def held(self) -> Generator[None]:
        """Lock the folder, so that no other process trains in it.

        Raises:
            ElmoError: If another process trains there, or if another run has claimed the folder since this one did.
        """
        with ExitStack() as locks:
            self._locks = locks
            try:
                with self._claiming(), ExitStack() as checking:
                    self._lock(checking)
                    # Since this run claimed the folder, another process may have claimed it for another run.
                    if (self.path / RECIPE).exists() and self._require_same(self.start) != self.start:
                        raise ElmoError(
                            f"{self.path}: another process has begun another run there; choose another folder"
                        )
                    locks.enter_context(checking.pop_all())
                yield
            finally:
                self._locks = self._is_locked = None

    def recreate_if_removed(self) -> None:
        """Create the folder again if it was removed, since memory holds everything that must be in it.

        Raises:
            ElmoError: If another process has since begun a run there. The folder belongs to that process then.
        """
        is_removed = not (self.path / RECIPE).exists()
        if self._locks is not None and self._is_locked is not None and not self._is_locked():
            if not is_removed:
                raise ElmoError(
                    f"{self.path}: was removed and begun again by another process while this one trained; this "
                    "process ends, and what it learned is lost"
                )
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock(self._locks)
        if is_removed:
            self._mark()

    def save(
        self, model: Model, tensors: Mapping[str, Tensor], progress: PretrainingProgress, figures: Mapping[str, str]
    ) -> None:
        """Write a checkpoint, and the model folder that corresponds to it.

        Args:
            model: The model, which is written as a model folder.
            tensors: All tensors of the run, with the rows of all processes, for the checkpoint.
            progress: The progress of the run.
            figures: The facts for the model card, as `figures` returns them.
        """
        self.recreate_if_removed()
        save_pretraining_checkpoint(self.checkpoints, tensors, progress)
        save_trained(model, self.path, figures, self.metadata)

    def figures(
        self, progress: PretrainingProgress, processes: Processes, exchanged: Volume, *, has_trained: bool
    ) -> dict[str, str]:
        """Return the model card's facts about the training text and the training, by name.

        Args:
            progress: The progress of the run.
            processes: The processes that train.
            exchanged: The bytes that each of them sends in a step.
            has_trained: Whether these processes made any step. A finished run that is started again on other hardware
                was still trained on what the card names.
        """
        training, heldout, best = self._recipe.training, progress.heldout_perplexity, progress.best_perplexity
        predictions = progress.step * training.predictions_per_step
        trained_for = (
            f"{progress.step:,} steps, {predictions:,} predictions a direction, {progress.seconds / 60:.1f} minutes"
        )
        known = known_figures(self.path) or {}
        if known and not has_trained:
            hardware = {name: known[name] for name in (_TRAINED_ON, _SHARED_AMONG) if name in known}
        else:
            hardware = {_TRAINED_ON: machine_name(processes.device)}
            if processes.size > 1:
                rows = f"{training.batch_size // processes.size} rows each of the {training.batch_size}"
                volume = f"{sum(exchanged) / 1e6:,.1f} MB a step exchanged by each"
                hardware[_SHARED_AMONG] = f"{processes.size} processes, {rows} of the global batch, {volume}"
        facts = text_facts(self._corpus) | {TRAINED_FOR: trained_for, **hardware}
        if self.start is not None:
            facts["started from"] = self.start.history
        if heldout is not None:
            facts["held-out perplexity when last measured"] = perplexity_text(heldout)
        if best is not None:
            facts["weights of"] = f"step {progress.best_step:,}, held-out perplexity {perplexity_text(best)}"
        return facts

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata at the head of the model card."""
        language = self._corpus.language
        return {"language": language} if language else {}

    def _claiming(self) -> AbstractContextManager[object]:
        """Wait for the lock under which the folder changes hands, which other processes hold only for a moment.

        Without this lock, a process that only checks whose the folder is would look like one that trains in it.
        """
        return alone_in(self.path, CLAIM, wait=True)

    def _lock(self, locks: ExitStack) -> None:
        self._is_locked = locks.enter_context(alone_in(self.path))

    def _mark(self) -> None:
        """Create the folder if it does not exist, and record which corpus, recipe and start it belongs to."""
        self.path.mkdir(parents=True, exist_ok=True)
        start = self.start
        begun = {} if start is None else {self.path / START: lambda path: write_json(path, asdict(start))}
        # The recipe comes last. With it the folder is known as a run folder, so everything else must be there by then.
        write_all(
            {
                **begun,
                self.path / CHECKSUM: lambda path: write_text(path, self._corpus.checksum + "\n"),
                self.path / RECIPE: lambda path: write_recipe(path, self._recipe),
            }
        )

    def _require_same(self, start: Start | None) -> Start | None:
        """Return what the run began with; an ElmoError if the folder belongs to another corpus, recipe or start."""
        path = self.path / RECIPE
        before = load_pretraining_recipe(str(path))
        # The checkpoints hold the best weights only if there was a patience.
        has_patience = None not in (before.training.patience, self._recipe.training.patience)
        changeable = (*_CHANGEABLE, "patience") if has_patience else _CHANGEABLE
        if changed := changed_key(before, self._recipe, changeable):
            raise ElmoError(
                f"{path}: the run was started with {changed}; continue with that, or choose another run folder"
            )
        if _read_checksum(self.path / CHECKSUM) != self._corpus.checksum:
            raise ElmoError(
                f"{self.path}: was trained on another corpus than {self._corpus.folder}; choose another run folder"
            )
        begun = _read_start(self.path)
        if start is not None and (begun is None or begun.checksum != start.checksum):
            other = "another model" if begun else "random weights"
            raise ElmoError(f"{self.path}: was begun with {other}; choose another folder")
        return begun


def _read_checksum(path: Path) -> str:
    """Read the checksum of the corpus that a run was begun with."""
    if not path.is_file():
        raise ElmoError(f"{path}: is missing; restore it from a copy of the run, or choose another run folder")
    text = path.read_bytes().decode(errors="replace").strip()
    if not re.fullmatch("[0-9a-f]{64}", text):
        raise ElmoError(
            f"{path}: is damaged (not a SHA-256 checksum); replace its content with the checksum in the corpus.json of "
            "the corpus that the run was trained on, or choose another run folder"
        )
    return text


def _read_start(folder: Path) -> Start | None:
    if not (folder / START).exists():
        return None
    return from_mapping(Start, read_json(folder / START), str(folder / START))


def is_begun_with(folder: Path, model: Model) -> bool:
    """Return whether the folder holds a run that began with exactly this model."""
    begun = _read_start(folder)
    return begun is not None and begun.checksum == Start.of(model).checksum


def text_facts(corpus: Corpus) -> dict[str, str]:
    """Return the facts about a training text that a model card states: its size, origin and preparation, by name.

    Facts that `elmo prepare` was not given are left out.
    """
    source, settings = corpus.source, corpus.settings
    case = "lower-cased" if settings.lowercase else "case kept"
    files = file_names(source.get("inputs", []))
    facts = {
        "training text": f"{corpus.num_tokens:,} tokens in {corpus.num_sentences:,} sentences",
        "its files": files.encode("utf-8", "backslashreplace").decode(),  # as it is read back from the card
        "its language": corpus.language,
        "its license": source.get("license"),
        "its tokens": f"tokenizer {settings.tokenizer}, {case}",
        "vocabulary": f"{corpus.vocabulary_size:,} words, {corpus.oov_rate:.2%} of the tokens are not in it",
    }
    return {name: value for name, value in facts.items() if value}
