"""The programs that `peers.py` compares, each in a process of its own: ours, AllenNLP's and bilm-tf.

A process reads requests from its standard input, a line of JSON each: the name of a method and its arguments. It
answers each with a line of JSON. It runs in the environment of its peer, where neither our package nor the other peer
is installed. So everything but NumPy is imported where it is used.

What makes the peers run with a Python and libraries of today is in `import_allennlp` and `import_bilm_tf`.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import statistics
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Sentences = Sequence[Sequence[str]]
Vectors = list[NDArray[np.float32]]

BATCH = 32
"""How many sentences the peers embed at a time in bulk."""

STUBS = {
    *("transformers", "spacy", "torchvision", "fairscale", "huggingface_hub"),
    *("cached_path", "lmdb", "base58", "more_itertools"),
}
"""What AllenNLP imports on the way to its ELMo, which uses nothing of it but `cached_path`."""


class Worker(ABC):
    """A program that embeds. Its methods are the requests that it answers."""

    texts: dict[str, Any]

    def load(self, model: str, texts: str) -> None:
        """Load the model of a folder in the published format, and the sentences to embed.

        Args:
            model: The folder with `lm_weights.hdf5` and `options.json`.
            texts: A JSON file with sentences for each setting, and with batches of sentences as `check`.
        """
        self.texts = json.loads(Path(texts).read_text(encoding="utf-8"))
        self.open(Path(model))

    def check(self, file: str) -> None:
        """Write the vectors of the batches of `check` to a file, (L+1, tokens, D).

        The first batch starts from zeros, and each later one from the state that the one before has left.
        """
        found = [vectors for batch in self.texts["check"] for vectors in self.embed_carrying(batch)]
        np.save(file, np.concatenate(found, axis=1))

    def seconds(self, setting: str) -> float:
        """Embed the sentences of a setting, and return how long it took."""
        start = time.perf_counter()
        self.embed(self.texts[setting], one_by_one=setting == "1")
        return time.perf_counter() - start

    def embed(self, sentences: Sentences, one_by_one: bool) -> Vectors:
        """Return all layers of sentences, (L+1, T, D) each."""
        size = 1 if one_by_one else BATCH
        batches = (sentences[start : start + size] for start in range(0, len(sentences), size))
        return [vectors for batch in batches for vectors in self.embed_carrying(batch)]

    @abstractmethod
    def open(self, model: Path) -> None:
        """Load a model."""

    @abstractmethod
    def embed_carrying(self, batch: Sentences) -> Vectors:
        """Return all layers of a batch, which goes on from the state of the batch before."""


class Ours(Worker):
    """Our package, in the precision of the environment variable `PEERS_PRECISION`."""

    def open(self, model: Path) -> None:
        """Load a model."""
        self.forget(str(model / "lm_weights.hdf5"))

    def forget(self, model: str) -> None:
        """Load a model again, so that it has not seen any word yet. The first sentence fills its buffers."""
        import elmo

        precision: Any = os.environ.get("PEERS_PRECISION", "float32")
        self._embedder = None  # so that memory never holds two of them
        self._embedder = elmo.load(model, precision=precision)
        self._embedder.embed([["packs", "the", "weights"]], layers="all")

    def embed(self, sentences: Sentences, one_by_one: bool) -> Vectors:
        """Return all layers of sentences."""
        assert self._embedder is not None
        if one_by_one:
            return [self._embedder.embed([sentence], layers="all")[0] for sentence in sentences]
        return self._embedder.embed(sentences, layers="all")

    def embed_carrying(self, batch: Sentences) -> Vectors:
        """Return all layers of a batch."""
        assert self._embedder is not None
        return self._embedder.embed(batch, layers="all", state="carry", batch_size=len(batch))

    def train(self, corpus: str, folder: str, size: str, settings: dict[str, object], steps: int) -> dict[str, Any]:
        """Train on a prepared corpus, and return the seconds and the loss of each step. Reading the batch counts."""
        from elmo.pretrain.loop import Pretrainer
        from elmo.pretrain.recipe import load_pretraining_recipe
        from elmo.text.corpus import Corpus

        run = Pretrainer(Corpus.open(Path(corpus)), Path(folder), load_pretraining_recipe(size, settings), device="cpu")
        seconds: list[float] = []
        losses: list[float] = []
        for number in range(1, steps + 1):
            start = time.perf_counter()
            losses.append(statistics.fmean(run.train_on(run.batches.read(number))))
            seconds.append(time.perf_counter() - start)
        return {"seconds": seconds, "losses": losses}


class AllenNLP(Worker):
    """AllenNLP's biLM, called the way that its `ElmoEmbedder` called it."""

    def open(self, model: Path) -> None:
        """Load a model."""
        import_allennlp()
        module = importlib.import_module("allennlp.modules.elmo")
        self._batch_to_ids: Any = module.batch_to_ids
        self._bilm: Any = module._ElmoBiLm(str(model / "options.json"), str(model / "lm_weights.hdf5")).eval()
        self._without_boundaries: Any = importlib.import_module("allennlp.nn.util").remove_sentence_boundaries

    def embed_carrying(self, batch: Sentences) -> Vectors:
        """Return all layers of a batch."""
        import torch

        with torch.no_grad():
            found = self._bilm(self._batch_to_ids(batch))
            layers = [self._without_boundaries(layer, found["mask"])[0] for layer in found["activations"]]
            stacked = torch.stack(layers, dim=1).numpy()
        return [vectors[:, : len(sentence)] for vectors, sentence in zip(stacked, batch, strict=True)]


class BilmTF(Worker):
    """bilm-tf, from the checkout in the environment variable `BILM_TF`."""

    def open(self, model: Path) -> None:
        """Load a model. Its batcher is given all words in advance."""
        tf = import_bilm_tf()
        bilm = importlib.import_module("bilm")
        words = {word for setting in ("bulk", "1") for sentence in self.texts[setting] for word in sentence}
        vocabulary = model / "words-of-bilm-tf.txt"
        vocabulary.write_text("\n".join(["<S>", "</S>", "<UNK>", *sorted(words)]), encoding="utf-8")
        self._batcher: Any = bilm.Batcher(str(vocabulary), 50)
        self._characters: Any = tf.placeholder("int32", shape=(None, None, 50))
        made = bilm.BidirectionalLanguageModel(str(model / "options.json"), str(model / "lm_weights.hdf5"))
        self._vectors: Any = made(self._characters)["lm_embeddings"]
        self._session: Any = tf.Session()
        self._session.run(tf.global_variables_initializer())

    def embed_carrying(self, batch: Sentences) -> Vectors:
        """Return all layers of a batch."""
        characters = self._batcher.batch_sentences(batch)
        stacked = self._session.run(self._vectors, feed_dict={self._characters: characters})
        return [vectors[:, : len(sentence)] for vectors, sentence in zip(stacked, batch, strict=True)]

    def train(self, vocabulary: str, text: str, folder: str, options: dict[str, Any], steps: int) -> dict[str, Any]:
        """Train by the training loop of bilm-tf, and return the seconds and the loss of each step.

        The loop asks for a batch at the beginning of each step, which is how the steps are timed. It writes a
        checkpoint after the last one, which is one more than those that are timed.
        """
        tf = import_bilm_tf()
        data = importlib.import_module("bilm.data")
        training = importlib.import_module("bilm.training")
        dataset = data.BidirectionalLMDataset(
            text, data.UnicodeCharsVocabulary(vocabulary, 50, validate_file=True), shuffle_on_load=True
        )
        beginnings: list[float] = []
        losses: list[float] = []

        class Timed:
            def iter_batches(self, *shape: int) -> Iterator[Any]:
                batches = dataset.iter_batches(*shape)
                while True:
                    beginnings.append(time.perf_counter())
                    yield next(batches)

        session: Any = tf.Session

        class Listening(session):
            def run(self, fetches: Any, *args: Any, **kwargs: Any) -> Any:
                found = super().run(fetches, *args, **kwargs)
                if isinstance(fetches, list) and len(found) > 3:  # the update, a summary, the perplexity, the states
                    losses.append(math.log(found[2]))
                return found

        tokens = options["batch_size"] * options["unroll_steps"]
        options |= {"n_epochs": 1, "n_train_tokens": (steps + 1) * tokens}
        tf.Session = Listening
        training.train(options, Timed(), 1, folder, folder)
        return {"seconds": np.diff(beginnings).tolist(), "losses": losses[:steps]}


class Stub(ModuleType):
    """A module that has a class of every name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class StubFinder(MetaPathFinder, Loader):
    """Finds a stub for every module of `STUBS`, and for what is in them."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        """Return how to make the module if it is in `STUBS`."""
        return ModuleSpec(fullname, self, is_package=True) if fullname.partition(".")[0] in STUBS else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Make the module."""
        return Stub(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Fill the module, which needs nothing but the one function that is called."""
        if module.__name__ == "cached_path":
            vars(module)["cached_path"] = lambda path, **_: path


def import_allennlp() -> None:
    """Make AllenNLP's ELMo importable without what it imports but never uses for it."""
    sys.meta_path.insert(0, StubFinder())


def import_bilm_tf() -> Any:
    """Make bilm-tf importable, and return the TensorFlow that it sees: version 1, as 2.15 still has it."""
    tf: Any = importlib.import_module("tensorflow.compat.v1")
    tf.disable_v2_behavior()
    sys.modules["tensorflow"] = tf
    sys.path.insert(0, os.environ["BILM_TF"])
    return tf


WORKERS: dict[str, type[Worker]] = {"ours": Ours, "allennlp": AllenNLP, "bilm-tf": BilmTF}


def serve() -> None:
    """Answer requests to the worker that the first argument names, until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # so that what the peers print is not taken for an answer
    worker = WORKERS[sys.argv[1]]()
    for line in sys.stdin:
        name, arguments = json.loads(line)
        print(json.dumps(getattr(worker, name)(**arguments)), file=answers, flush=True)
