"""The tiny models, texts and folders that are attacked, and digests of what is loaded from them."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

import make_allennlp
import make_bilm_hdf5
import make_many_langs
import make_nlpl
import make_tensorflow
import make_words
from attack.workers import command, exit_code, in_child, start_child
from bridge import WORDS, make_model
from elmo import formats
from elmo.analysis.search import ContextIndex
from elmo.embed.embedder import Embedder
from elmo.embed.type_encoder import encode_types
from elmo.embed.warm import mean_state
from elmo.formats.model import Model
from elmo.nn.scalar_mix import ScalarMix
from elmo.pretrain.loop import Pretrainer
from elmo.pretrain.recipe import load_pretraining_recipe
from elmo.schema import to_mapping
from elmo.tasks.run_folder import load_run, read_results
from elmo.text.corpus import Corpus
from elmo.text.streams import Streams
from elmo.training.metrics import read_rows
from recipes import SENTENCES, write_names

TEXTS = SENTENCES[:7]

RECIPE = """\
char_cnn: {activation: relu, embedding: {dim: 4}, filters: [[1, 4], [2, 8]], n_highway: 1}
lstm: {dim: 16, projection_dim: 8, n_layers: 2, cell_clip: 3, proj_clip: 3, use_skip_connections: true}
training: {batch_size: 2, unroll_steps: 4, loss: sampled, n_negative_samples_batch: 6, fresh_starts: true, dropout: 0.1,
  learning_rate: 0.2, initial_accumulator_value: 1.0, all_clip_norm_val: 10.0, n_epochs: 99, max_steps: 8,
  log_every_steps: 2, checkpoint_every_minutes: 0.00001, seed: 0}
"""

NER = """\
scheme: BIO
words: {dim: 6, min_count: 1}
characters: {dim: 4, filters: 6, width: 3}
lstm: [8]
dropout: 0.1
elmo: {at: input, dropout: 0.1, penalty: 0.1}
training: {batch_size: 4, learning_rate: 0.03, max_epochs: 3, patience: 3, checkpoint_every_minutes: 0.00001, seed: 0}
"""

CACHED = ["<S>", "</S>", "<UNK>", "play", "naïve", "w1", "Ann"]


@dataclass(frozen=True)
class Subject:
    """Something to attack: the name of its folder, the path in it that is loaded, and how.

    `digest` loads it and returns a text that depends on all that was loaded. Files whose names contain one of `checked`
    have a checksum. If it `writes`, loading may write to the folder.
    """

    name: str
    target: str
    digest: Callable[[Path], str]
    checked: tuple[str, ...] = ()
    writes: bool = False


def digest_model(source: Path) -> str:
    """Return a digest of everything that `elmo.load` loads, except for where it came from."""
    return _digest_loaded(formats.load(source))


def _digest_loaded(model: Model) -> str:
    found = hashlib.sha1(json.dumps(to_mapping(model.config), sort_keys=True).encode())
    modules: list[torch.nn.Module] = [model.bilm, *model.mixes]
    if model.softmax is not None:
        modules.append(model.softmax)
    for module in modules:
        _add(found, module.state_dict().values())
    for state in model.warm_state or ():
        _add(found, state)
    words: Sequence[str] = () if model.vocabulary is None else model.vocabulary.words
    if model.token_vectors is not None:
        words = (*words, *model.token_vectors.words)
        _add(found, [model.token_vectors.vectors])
    if model.types is not None:
        _add(found, [model.types.read(_stored_words())[0]])
    if model.lexicon is not None:
        found.update(model.lexicon.encode([*TEXTS[0].split(), *make_many_langs.WORDS]).tobytes())
    found.update(repr(words).encode("utf-8", "backslashreplace"))
    return found.hexdigest()


def _stored_words() -> list[str]:
    return sorted({word for sentence in TEXTS for word in sentence.split()})


def _add(found: Any, arrays: Any) -> None:
    for array in arrays:
        found.update(repr(tuple(array.shape)).encode() + np.asarray(array).tobytes())


def digest_corpus(folder: Path) -> str:
    """Return a digest of what training reads of a corpus: its words, and the tokens and characters of some steps."""
    corpus = Corpus.open(folder)
    corpus.verify()  # as training does
    found = hashlib.sha1(repr((corpus.types(), corpus.vocabulary().words)).encode("utf-8", "backslashreplace"))
    for backward in (False, True):
        for ids in Streams(corpus, 2, 0, backward).read(40):
            found.update(ids.tobytes() + corpus.characters[ids].tobytes())
    return found.hexdigest()


def digest_index(folder: Path) -> str:
    """Return what an index finds."""
    index = ContextIndex(folder, _embedder(folder.parent / "model"))
    return repr(
        [index.find_neighbors("w1", ["w2", "w1", "Bo"], top=3, any_word=any_word) for any_word in (True, False)]
    )


@cache
def _embedder(folder: Path) -> Embedder:
    return Embedder(formats.load(folder), device="cpu")


def digest_pretraining(folder: Path) -> str:
    """Start a run again, and return a digest of its model, with its number of steps."""
    run = Pretrainer(
        Corpus.open(folder.parent / "corpus"),
        folder,
        load_pretraining_recipe(str(folder / "recipe.yaml")),
        device="cpu",
    )
    return f"{_digest_loaded(run.train())} {run.progress.step}"


def digest_task(folder: Path) -> str:
    """Return a digest of the model in a task's run folder, with its results and its rows of metrics."""
    trained = load_run(folder)
    found = hashlib.sha1(repr(trained.recipe).encode())
    _add(found, trained.model.state_dict().values())
    examples = trained.task.read(str(folder.parent / "text.conll"), trained.recipe)
    with torch.inference_mode():
        found.update(repr(trained.model.eval().predict(examples)).encode())
    return found.hexdigest() + repr(read_results(folder)) + repr(read_rows(folder / "metrics.csv"))


SUBJECTS = (
    Subject("bilm HDF5", "", digest_model),
    Subject("softmax file", "", digest_model),
    Subject("token vectors", "elmo_token_embeddings.hdf5", digest_model),
    Subject("whole words", "", digest_model),
    Subject("NLPL zip", "model.zip", digest_model, (".zip",)),
    Subject("bilm-tf checkpoint", "", digest_model, (".index",)),
    Subject("AllenNLP archive", "model.tar.gz", digest_model, (".gz",)),
    Subject("AllenNLP weights", "", digest_model, ("weights.th",)),
    Subject("AllenNLP old weights", "", digest_model),
    Subject("ELMoForManyLangs", "", digest_model),
    Subject("native", "", digest_model, (".safetensors",)),
    Subject("corpus", "corpus", digest_corpus, ("",)),
    Subject("index", "text.index", digest_index),
    Subject("pretraining", "run", digest_pretraining, ("checkpoints/step",), writes=True),
    Subject("task", "run", digest_task, (".safetensors",)),
)


def make_subjects(folder: Path) -> None:
    """Make a folder for each subject, under its name."""
    make_bilm_hdf5.make(folder / "bilm HDF5", "softmax")
    _write_words(folder / "bilm HDF5")
    _make_softmax_file(folder / "softmax file")
    _make_token_vectors(folder / "token vectors")
    make_words.make(folder / "whole words", softmax=True)
    unpacked, _, _ = make_nlpl.make_folder(folder / "unpacked")
    (folder / "NLPL zip").mkdir()
    make_nlpl.make_zip(folder / "NLPL zip" / "model.zip", unpacked)
    shutil.rmtree(unpacked)
    make_tensorflow.make(folder / "bilm-tf checkpoint")
    _write_words(folder / "bilm-tf checkpoint")
    _make_allennlp(folder)
    make_many_langs.make(folder / "ELMoForManyLangs")
    make_native(folder / "native", everything=True)
    make_inputs(folder / "corpus")
    run_command(folder / "corpus", *PREPARE)
    make_inputs(folder / "index")
    run_command(folder / "index", "index", "model", "text.txt", "text.index", "--device", "cpu")
    make_inputs(folder / "pretraining")
    run_command(folder / "pretraining", *PREPARE)
    run_command(folder / "pretraining", *PRETRAIN, "--set", "training.max_steps=3")
    make_inputs(folder / "task")
    run_command(folder / "task", *TRAIN)


def _write_words(folder: Path) -> None:
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS), encoding="utf-8")


def _make_softmax_file(folder: Path) -> None:
    options = make_bilm_hdf5.make_options("softmax")
    weights = make_bilm_hdf5.make_weights(options)
    make_bilm_hdf5.write(folder, options, {k: v for k, v in weights.items() if not k.startswith("softmax")})
    with h5py.File(folder / "lm_softmax.hdf5", "w") as file:
        for name in ("softmax/W", "softmax/b"):
            file[name] = weights[name]
    (folder / "vocab.txt.gz").write_bytes(gzip.compress("".join(f"{word}\n" for word in WORDS).encode()))


def _make_token_vectors(folder: Path) -> None:
    make_bilm_hdf5.make(folder)
    model = formats.load(folder)
    assert model.bilm.char_encoder is not None
    with torch.inference_mode(), h5py.File(folder / "elmo_token_embeddings.hdf5", "w") as file:
        file["embedding"] = model.bilm.char_encoder(torch.from_numpy(model.to_ids(CACHED))).numpy()
    (folder / "vocab_test.txt").write_text("".join(f"{word}\n" for word in CACHED), encoding="utf-8")


def _make_allennlp(folder: Path) -> None:
    options = make_bilm_hdf5.make_options()
    state = make_allennlp.make_state_dict(make_bilm_hdf5.make_weights(options))
    (folder / "AllenNLP archive").mkdir()
    path = folder / "AllenNLP archive" / "model.tar.gz"
    make_allennlp.make_archive(path, state, make_allennlp.make_config(), options)
    shutil.rmtree(path.parent / f"{path.name}-files")
    for name in ("AllenNLP weights", "AllenNLP old weights"):
        with tarfile.open(path) as archive:
            archive.extractall(folder / name, filter="data")
    torch.save(state, folder / "AllenNLP old weights" / "weights.th", _use_new_zipfile_serialization=False)


def make_native(folder: Path, *, everything: bool = False, seed: int = 0) -> None:
    """Write a model folder with a softmax and words, and with `everything` also mixes, warm state and token vectors."""
    model = make_model(softmax=True)
    with torch.no_grad():
        for parameter in model.bilm.parameters():
            parameter.add_(0.01 * seed)
    if everything:
        model.mixes = [ScalarMix(model.config.num_layers, initial_scores=[0.1, 0.2, 0.3])]
        model.warm_state = mean_state(model, [sentence.split() for sentence in TEXTS])
        model.types = encode_types(model, _stored_words(), "float16")
    formats.save_native(model, folder)


PREPARE = ("prepare", "corpus", "text.txt", "--min-count", "1", "--workers", "1")
PRETRAIN = ("pretrain", "corpus", "run", "--recipe", "recipe.yaml", "--device", "cpu")
TRAIN = (
    *("task", "train", "ner", "--recipe", "ner.yaml", "--train", "text.conll", "--dev", "text.conll"),
    *("--elmo", "model", "--out", "run", "--device", "cpu"),
)


def make_inputs(folder: Path) -> None:
    """Write what commands read: two texts, tagged text, recipes, a model folder, and two models as published."""
    folder.mkdir(parents=True)
    (folder / "text.txt").write_text("".join(f"{sentence}\n" for sentence in TEXTS * 3), encoding="utf-8")
    (folder / "other.txt").write_text("".join(f"{sentence} too\n" for sentence in TEXTS[1:] * 2), encoding="utf-8")
    write_names(folder / "text.conll", TEXTS)
    (folder / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    (folder / "ner.yaml").write_text(NER, encoding="utf-8")
    make_native(folder / "model")
    make_bilm_hdf5.make(folder / "one", "softmax")
    _write_words(folder / "one")
    make_bilm_hdf5.make(folder / "two", "base", seed=1)


def run_command(folder: Path, *arguments: str) -> None:
    """Run `elmo ARGUMENTS` in a folder, and fail if the command fails."""
    log = folder.parent / f"{folder.name}.log"
    if exit_code(start_child(command(*arguments), folder, log)):
        raise RuntimeError(f"elmo {' '.join(arguments)}: {log.read_text()}")
    log.unlink()


def make_all(make: Callable[[Path], None], folder: Path) -> None:
    """Call `make` in a child process, because it starts threads, and this process must have none when it forks."""
    in_child(lambda: make(folder))
