"""Tags: the component `elmo_tagger` sets parts of speech, morphology and lemmas by a model of `elmo task train tag`."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from spacy.language import Language
from spacy.parts_of_speech import IDS
from spacy.pipeline.lemmatizer import lemmatizer_score
from spacy.pipeline.morphologizer import morphologizer_score
from spacy.pipeline.tagger import tagger_score
from spacy.tokens import Doc, Token
from spacy.training import Example

from elmo.errors import ElmoError
from elmo.formats.native_files import VOCABULARY, WARM
from elmo.formats.native_files import WEIGHTS as BILM_WEIGHTS
from elmo.integrations.spacy.parts import StoredAsFolder, find_sentences, group_docs
from elmo.nn.devices import use_device
from elmo.tasks.checkpoint import WEIGHTS
from elmo.tasks.common.columns import ColumnSentence
from elmo.tasks.run_folder import BILM, CONFIG, VOCABULARIES, StoredRun, read_run
from elmo.tasks.tag.model import TagPrediction
from elmo.text.conllu import EMPTY

FILES = (
    *(CONFIG, VOCABULARIES, WEIGHTS),
    *(f"{BILM}/{name}" for name in (CONFIG, BILM_WEIGHTS, VOCABULARY, WARM)),
)
"""Files of a run folder that a stored pipeline needs. What there is of a biLM depends on the run."""

OF_SPACES = {"upos": "SPACE", "xpos": "_SP", "feats": EMPTY}
"""The values of whitespace tokens, which are those that spaCy's own components set.

Their lemma is their text, and other columns are empty.
"""

_PROCESS = os.getpid()
"""The process that imported this module, of which a worker of `nlp.pipe(n_process=2)` may be a fork."""

# Forced, because spaCy refuses an extension that exists already, for instance when this module is reloaded.
Token.set_extension("elmo_tags", default={}, force=True)


class _LoadedTagger:
    """A model that is ready to predict, and what it was loaded from, which is stored with a pipeline."""

    def __init__(self, run: StoredRun, device: str) -> None:
        self.run, self.device = run, device
        if run.config.task != "tag":
            raise ElmoError(
                f"{run.folder}: was trained for the task {run.config.task}; elmo_tagger needs a run folder of 'elmo "
                "task train tag'"
            )
        self.targets = run.vocabularies["targets"]
        self._require_known_labels()
        self.trained = run.load(use_device(device))

    def _require_known_labels(self) -> None:
        """Refuse labels that spaCy has no place for, before any of them is predicted."""
        for target, is_known, expected in (
            ("upos", lambda label: label in IDS, "a part of speech of Universal Dependencies, such as NOUN"),
            ("feats", _is_features, "of the form Name=Value|Name=Value"),
        ):
            for label in self.run.vocabularies[f"labels of {target}"] if target in self.targets else ():
                if label != EMPTY and not is_known(label):
                    raise ElmoError(
                        f"{self.run.folder}: its {target} {label!r} is unknown to spaCy, since it is not {expected}; "
                        "train it as a column of another name"
                    )

    def __deepcopy__(self, memo: object) -> "_LoadedTagger":
        """Return the object itself: a copied pipeline can share the weights, because nothing changes them."""
        return self

    def __reduce__(self) -> tuple[Callable[..., "_LoadedTagger"], tuple[object, ...]]:
        """Pickle what the model was loaded from. Another process loads it again."""
        return _LoadedTagger, (self.run, self.device)


def _is_features(label: str) -> bool:
    return all(item.count("=") == 1 and all(item.split("=")) for item in label.split("|"))


class ElmoTagger(StoredAsFolder):
    """Pipeline component that sets what a tagger was trained to predict. `make_elmo_tagger` explains the arguments.

    It sets `token.pos_` to upos, `token.tag_` to xpos, `token.morph` to feats, `token.lemma_` to lemma, and
    `token._.elmo_tags`, a dictionary, to the values of all other columns by their names. Nothing else is changed.

    Each sentence is read separately if the doc has sentence boundaries; otherwise the doc is read as a single sentence.
    Whitespace tokens are left out of it.
    """

    files = FILES

    def __init__(self, name: str, source: str, device: str) -> None:
        self.name, self.source, self.device = name, source, device
        self._loaded: _LoadedTagger | None = None

    @property
    def loaded(self) -> _LoadedTagger:
        """The model. It is loaded on first access."""
        if self._loaded is None:
            self._loaded = _LoadedTagger(read_run(Path(self.source)), self.device)
        return self._loaded

    def __call__(self, doc: Doc) -> Doc:
        """Tag one doc."""
        return next(self._tag([doc]))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 1000) -> Iterator[Doc]:
        """Tag many docs, up to `batch_size` of them together, which is faster than one by one."""
        for docs in group_docs(stream, batch_size):
            yield from self._tag(docs)

    def _tag(self, docs: Sequence[Doc]) -> Iterator[Doc]:
        # A fork has none of the threads that OpenMP started before it, and would wait for them forever.
        if os.getpid() != _PROCESS and torch.get_num_threads() > 1:
            torch.set_num_threads(1)
        trained, targets = self.loaded.trained, self.loaded.targets
        places = [find_sentences(doc) for doc in docs]
        examples = [_example([doc[i].text for i in s]) for doc, found in zip(docs, places, strict=True) for s in found]
        predictions: Iterator[TagPrediction] = iter(trained.predict(examples))
        for doc, found in zip(docs, places, strict=True):
            for target in targets:
                for token in doc:
                    if token.is_space:
                        _set(token, target, token.text if target == "lemma" else OF_SPACES.get(target, EMPTY))
            for sentence in found:
                for target, values in next(predictions).items():
                    for i, value in zip(sentence, values, strict=True):
                        _set(doc[i], target, value)
            yield doc

    def score(self, examples: Iterable[Example], **kwargs: Any) -> dict[str, Any]:
        """Score docs as spaCy's tagger, morphologizer and lemmatizer do, for the columns that were trained.

        Args:
            examples: The docs, with those that are right.
            **kwargs: What spaCy passes to scorers.

        Returns:
            Of `tag_acc`, `pos_acc`, `morph_acc`, `morph_micro_p` and so on, and `lemma_acc`, those of the columns.
        """
        examples, found = list(examples), dict[str, Any]()
        if "xpos" in self.loaded.targets:
            found |= tagger_score(examples, **kwargs)
        if {"upos", "feats"} & {*self.loaded.targets}:
            found |= morphologizer_score(examples, **kwargs)
        if "lemma" in self.loaded.targets:
            found |= lemmatizer_score(examples, **kwargs)
        return found

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Store a run folder that needs no other one, which `elmo.tasks.load` can read."""
        self.loaded.run.save(Path(path))

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> Self:
        """Read the run folder that `to_disk` stored."""
        self._loaded = _LoadedTagger(read_run(Path(path)), self.device)
        return self


def _example(words: list[str]) -> ColumnSentence:
    return ColumnSentence(tuple(words), ("form",), tuple((word,) for word in words), tuple(range(len(words))))


def _set(token: Any, target: str, value: str) -> None:
    """Set what a column of this name stands for."""
    match target:
        case "upos":
            token.pos_ = "" if value == EMPTY else value
        case "xpos":
            token.tag_ = "" if value == EMPTY else value
        case "feats":
            token.set_morph(value)  # spaCy, too, writes "_" where there are no features
        case "lemma":
            token.lemma_ = value
        case _:
            token._.elmo_tags = {**token._.elmo_tags, target: value}


def make_elmo_tagger(nlp: Language, name: str, model: str, device: str = "cpu") -> ElmoTagger:
    """Make the component for `nlp.add_pipe("elmo_tagger", config={"model": "tagger"})`.

    Args:
        nlp: The pipeline.
        name: Name of the component in the pipeline.
        model: A run folder of `elmo task train tag`. It is read when the first doc arrives.
        device: "auto", "cpu", "cuda" or one GPU such as "cuda:1".
    """
    return ElmoTagger(name, model, device)


Language.factory(
    "elmo_tagger",
    assigns=["token.pos", "token.tag", "token.morph", "token.lemma", "token._.elmo_tags"],
    default_score_weights={"tag_acc": 0.25, "pos_acc": 0.25, "morph_acc": 0.25, "lemma_acc": 0.25},
    func=make_elmo_tagger,
)
