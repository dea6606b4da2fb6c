"""Compare ours with AllenNLP and with bilm-tf, the TensorFlow implementation of the paper's authors, on the same work.

All read one file of random weights in the published format, of the published sizes `small` and `original`, and embed
the same English sentences, tokenized by our `ptb`. Before anything is timed, all layers of 96 sentences are compared,
in three batches of 32: the first starts from zeros, the others from the carried state. The largest differences are
printed, and the run ends if float32 vectors differ by more than 1e-5. What counts is the time from lists of words to an
array of all layers for each sentence. The settings:

- `bulk`, all sentences. The peers get 32 of them at a time. `bulk-cold` is our first pass, in which each word is new to
  the model; in `bulk` it has seen them. The peers keep nothing of words, so they have one figure for both.
- `1` and `1-cold`, the same one sentence a call.
- `bulk-stored` and `1-stored`, if there is a text to train on: a first pass too, but the model folder holds the token
  vectors of that text's vocabulary, rounded to float16 (`elmo warm --types`). The model has seen none of the words.
- `pretrain`, a step of training, in which reading the batch counts. Both train `small` with the published settings, on
  the same text and vocabulary. A step makes 128 x 20 tokens, as bilm-tf counts them, and each direction predicts all of
  them. The median losses of the first steps are printed to show that both do the same. They are not equal, since each
  draws weights and negatives of its own.

Ours starts each sentence from zeros, which is its default; the peers carry their states on, which takes them no time
worth naming. Each peer is a process of its own, with the same number of threads. They take turns, and figures are
medians of the repeats. On a machine with more cores than threads, put `taskset --cpu-list 0,1` before the command:
TensorFlow has threads of two kinds, that many of each.

AllenNLP 2.10.1 and TensorFlow 2.15.1 are installed in environments of their own when they are not there yet, which
takes minutes and 3 GB. That needs Python 3.11 (`--python`). bilm-tf is on GitHub only
(https://github.com/allenai/bilm-tf). What makes them run today (the code is in `peer_workers.py`):

- AllenNLP is installed without its dependencies, whose versions are older than Python 3.11, and runs with the torch of
  today, NumPy 1.26, h5py, dill and tqdm. Stubs stand for transformers, spacy, torchvision, fairscale,
  huggingface_hub, lmdb, base58, more_itertools and cached_path, which it imports on the way to its ELMo; the function
  `cached_path` of the last one returns the path that it is given. As its `ElmoEmbedder` is gone since version 1,
  the biLM is called as that one did: `batch_to_ids`, `_ElmoBiLm`, `remove_sentence_boundaries`, without gradients.
- bilm-tf imports `tensorflow` and finds `tensorflow.compat.v1` with `disable_v2_behavior()`. TensorFlow 2.15 is the
  last version with Keras 2, which has the cells of `tf.nn.rnn_cell`; it needs NumPy 1 and protobuf 4. Its training is
  `bilm.training.train` on one device, whose steps are timed by the data set that it reads and whose perplexities are
  read by a subclass of `tf.Session`.

    python benchmarks/speed/peers.py text.txt --train-text wiki.txt --environments PEERS --bilm-tf PEERS/bilm-tf --json
    python benchmarks/speed/peers.py text.txt --environments PEERS --bilm-tf PEERS/bilm-tf --quick
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from peer_workers import BATCH

from elmo import _native
from elmo.formats import save_bilm
from elmo.pretrain.recipe import Recipe, load_pretraining_recipe
from elmo.schema import to_mapping
from elmo.text.corpus import Corpus
from elmo.text.prepare import prepare
from elmo.text.reading import Reading, read_sentences

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that `common` is found
from common.english import first_sentences
from common.machine import peak_rss_mb, report
from common.models import RECIPES, random_model
from common.script import script

PINS: dict[str, list[list[str]]] = {
    "allennlp": [
        ["--no-deps", "allennlp==2.10.1"],
        ["torch==2.13.0", "numpy==1.26.4", "h5py==3.11.0", "dill==0.3.8", "tqdm==4.66.5"],
    ],
    "bilm-tf": [["tensorflow-cpu==2.15.1", "keras==2.15.0", "numpy==1.26.4", "h5py==3.11.0", "protobuf==4.25.9"]],
}
"""What pip installs in the environment of each peer, call by call."""

PEERS = ("allennlp", "bilm_tf")
"""The keys of the peers' figures in the results."""

TOKENS = {"original": (3_000, 300), "small": (10_000, 1_500)}
"""The numbers of tokens in bulk, and with one sentence a call."""
QUICK_TOKENS = (1_000, 100)

TOLERANCE = 1e-5
"""The largest difference between float32 vectors; the root mean square of the smallest layer's is 0.05."""

TRAINED = "small"
VOCABULARY, TRAINING_TOKENS = 57_000, 1_500_000
"""The largest size of the vocabulary of pretraining, and how much of its text is read."""


class Process:
    """A running worker of `peer_workers.py`."""

    def __init__(self, kind: str, python: str | Path, log: Path, threads: int, **variables: str) -> None:
        self._kind, self._log = kind, log
        own = [str(Path(__file__).parent)]
        if kind == "ours" and "PYTHONPATH" in os.environ:
            own.append(os.environ["PYTHONPATH"])
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))},
            **{"PYTHONPATH": os.pathsep.join(own), "PYTHONUTF8": "1", "CUDA_VISIBLE_DEVICES": ""},
            **{"OMP_NUM_THREADS": str(threads), "TF_CPP_MIN_LOG_LEVEL": "2"},
            **{"TF_NUM_INTRAOP_THREADS": str(threads), "TF_NUM_INTEROP_THREADS": str(threads)},
            **variables,
        }
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [python, "-c", "import peer_workers; peer_workers.serve()", kind],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
            )

    def ask(self, method: str, **arguments: object) -> Any:
        """Let the worker run a method, and return its result. A worker that fails ends the program."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        time.sleep(0.2)  # threads of the last worker may wait for more work for a moment before they sleep
        try:
            print(json.dumps([method, arguments]), file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            lines = self._log.read_text(errors="replace").splitlines()[-20:]
            sys.exit("\n".join([*lines, f"{self._kind}: {method} failed; these are its last lines"]))
        return json.loads(answer)

    def peak_rss_mb(self) -> int:
        """Return the peak of its resident memory so far."""
        return peak_rss_mb(self._process.pid)

    def end(self) -> None:
        """Let the worker end, or kill it if it doesn't by itself."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()


class Bench:
    """Starts the workers, and measures."""

    def __init__(self, arguments: argparse.Namespace, work: Path) -> None:
        self.arguments, self.work = arguments, work
        self.repeats = 1 if arguments.quick else arguments.repeats
        self.pythons: Mapping[str, str | Path] = {
            "ours": sys.executable,
            **{peer: environment(peer, arguments.environments, arguments.python) for peer in PINS},
        }

    @contextmanager
    def started(self, kind: str, **variables: str) -> Generator[Process]:
        """Start a worker, which ends with the block."""
        checkout = str(self.arguments.bilm_tf.resolve())
        process = Process(
            kind, self.pythons[kind], self.work / f"{kind}.log", self.arguments.threads, BILM_TF=checkout, **variables
        )
        try:
            yield process
        finally:
            process.end()

    def embed(self, size: str) -> list[dict[str, Any]]:
        """Measure embedding with a model of this size, and compare the vectors first."""
        model, texts = self.work / size, self.work / f"{size}.json"
        save_bilm(random_model(RECIPES[size]), model)
        # What ours opens before each measurement. None keeps the model, which has met the words of the text then.
        passes = {"-cold": model / "lm_weights.hdf5", "": None}
        if self.arguments.train_text:
            passes["-stored"] = self.store_types(model)
        counts = self.write_texts(texts, size)
        precisions = ["float32", *(["bf16"] if _native.multiplies_bf16() else []), *(_native.available() & {"int8"})]
        rates: dict[tuple[str, str], list[float]] = {}
        with ExitStack() as stack:
            processes = {
                **{peer: stack.enter_context(self.started(peer.replace("_", "-"))) for peer in PEERS},
                **{name: stack.enter_context(self.started("ours", PEERS_PRECISION=name)) for name in precisions},
            }
            vectors = {name: self.vectors(process, model, texts) for name, process in processes.items()}
            differences = self.compare(size, vectors)
            for _ in range(self.repeats):
                for name, process in processes.items():
                    for setting, count in counts.items():
                        for kind, opened in (passes if name in precisions else {"": None}).items():
                            if opened:
                                process.ask("forget", model=str(opened))
                            seconds = process.ask("seconds", setting=setting)
                            rates.setdefault((name, setting + kind), []).append(count / seconds)
            peaks = {name: process.peak_rss_mb() for name, process in processes.items()}
        median = {key: statistics.median(values) for key, values in rates.items()}
        return [
            {
                "name": f"peers/{size}/{setting}/{precision}",
                **_compared(
                    median[precision, setting], **{peer: median[peer, setting.partition("-")[0]] for peer in PEERS}
                ),
                "num_tokens": counts[setting.partition("-")[0]],
                "peak_rss_mb": peaks[precision],
                **{f"{peer}_peak_rss_mb": peaks[peer] for peer in PEERS},
                **{f"difference_from_{peer}": value for peer, value in differences[precision].items()},
                "threads": self.arguments.threads,
            }
            for precision in precisions
            for setting in ("bulk", "bulk-cold", "bulk-stored", "1", "1-cold", "1-stored")
            if (precision, setting) in median
        ]

    def store_types(self, model: Path) -> Path:
        """Convert a model to our own format, and store the token vectors of the training text's vocabulary with it."""
        corpus, _ = self.training_corpus
        stored, words = self.work / f"{model.name}-stored", self.work / "words.txt"
        words.write_text("\n".join(corpus.vocabulary().words), encoding="utf-8")
        _run([sys.executable, "-m", "elmo", "convert", str(model / "lm_weights.hdf5"), str(stored)])
        _run([sys.executable, "-m", "elmo", "warm", str(stored), str(words), "--types", "--max-types", str(VOCABULARY)])
        return stored

    def write_texts(self, file: Path, size: str) -> dict[str, int]:
        """Write the sentences of each setting, and return their numbers of tokens."""
        in_bulk, in_ones = QUICK_TOKENS if self.arguments.quick else TOKENS[size]
        if self.arguments.tokens:
            in_bulk = self.arguments.tokens
        bulk = first_sentences(_sentences(self.arguments.text), in_bulk)
        texts = {"bulk": bulk, "1": first_sentences(bulk, in_ones)}
        of_batch = 8 if self.arguments.quick else BATCH
        few = list(islice(_sentences(self.arguments.text), 3 * of_batch))
        batches = [few[start : start + of_batch] for start in range(0, len(few), of_batch)]
        file.write_text(json.dumps({**texts, "check": batches}), encoding="utf-8")
        return {setting: sum(map(len, sentences)) for setting, sentences in texts.items()}

    def vectors(self, process: Process, model: Path, texts: Path) -> NDArray[np.float32]:
        """Load the model, and return the vectors that are compared."""
        file = self.work / "vectors.npy"
        process.ask("load", model=str(model), texts=str(texts))
        process.ask("check", file=str(file))
        return np.load(file)

    def compare(self, size: str, vectors: Mapping[str, NDArray[np.float32]]) -> dict[str, dict[str, float]]:
        """Return the largest difference of each precision's vectors from each peer's. That of float32 must be small."""
        found: dict[str, dict[str, float]] = {}
        for ours in sorted(vectors.keys() - set(PEERS)):
            for peer in PEERS:
                difference = float(f"{np.abs(vectors[ours] - vectors[peer]).max():.2g}")
                found.setdefault(ours, {})[peer] = difference
                print(f"{size}: vectors in {ours} differ from those of {peer} by {difference}", file=sys.stderr)
                if ours == "float32" and not difference < TOLERANCE:  # written like this, NaN is refused as well
                    sys.exit(f"{size}: not the same work, since float32 vectors differ from those of {peer}")
        return found

    def pretrain(self) -> dict[str, Any]:
        """Measure steps of training. Each repeat is a training of its own, first of bilm-tf and then of ours."""
        batch_size, steps, peer_steps = (16, 4, 4) if self.arguments.quick else (128, 12, 6)
        corpus, text = self.training_corpus
        settings = {"training.batch_size": batch_size, "training.fresh_starts": False}
        recipe = load_pretraining_recipe(TRAINED, settings)
        options = _training_options(recipe, corpus.vocabulary_size)
        seconds: list[float] = []
        theirs: list[float] = []
        loss = their_loss = 0.0
        for repeat in range(self.repeats):
            folder = self.work / f"bilm-tf-{repeat}"
            folder.mkdir()
            with self.started("bilm-tf") as process:
                names = {"vocabulary": str(self.work / "vocabulary.txt"), "text": str(text), "folder": str(folder)}
                found = process.ask("train", **names, options=options, steps=peer_steps)
                theirs.append(statistics.median(found["seconds"][2:]))
                their_loss = statistics.median(found["losses"])
            with self.started("ours") as process:
                names = {"corpus": str(self.work / "corpus"), "folder": str(self.work / f"ours-{repeat}")}
                found = process.ask("train", **names, size=TRAINED, settings=settings, steps=steps)
                seconds.append(statistics.median(found["seconds"][2:]))
                loss = statistics.median(found["losses"][:peer_steps])
        tokens = recipe.training.predictions_per_step
        return {
            "name": f"peers/{TRAINED}/pretrain-{batch_size}x{recipe.training.unroll_steps}/float32",
            **_compared(tokens / statistics.median(seconds), bilm_tf=tokens / statistics.median(theirs)),
            "vocabulary_size": corpus.vocabulary_size,
            "n_negative_samples_batch": recipe.training.n_negative_samples_batch,
            "loss": round(loss, 3),
            "bilm_tf_loss": round(their_loss, 3),
            "threads": self.arguments.threads,
        }

    @cached_property
    def training_corpus(self) -> tuple[Corpus, Path]:
        """Our corpus and the tokenized text, which bilm-tf reads with the same vocabulary."""
        text = self.work / "train.txt"
        num_tokens = 100_000 if self.arguments.quick else TRAINING_TOKENS
        with text.open("w", encoding="utf-8") as file:
            for sentence in first_sentences(_sentences(self.arguments.train_text or self.arguments.text), num_tokens):
                file.write(" ".join(sentence) + "\n")
        corpus = prepare([text], self.work / "corpus", min_count=1, max_vocabulary=VOCABULARY, workers=1)
        corpus.vocabulary().write(self.work / "vocabulary.txt")
        return corpus, text


def environment(peer: str, folder: Path, python: str) -> Path:
    """Return the Python of a peer's environment, which is made if it isn't there or holds other versions."""
    place = folder.resolve() / f"env-{peer}"
    found, done = place / "bin" / "python", place / "installed.json"
    if done.is_file() and json.loads(done.read_text()) == PINS[peer]:
        return found
    print(f"{place}: installing, which takes some minutes", file=sys.stderr)
    folder.mkdir(parents=True, exist_ok=True)
    _run([python, "-m", "venv", "--clear", str(place)])
    for packages in PINS[peer]:
        _run([str(found), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages])
    done.write_text(json.dumps(PINS[peer]))
    return found


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        sys.exit(f"{done.stdout}{' '.join(command)} failed")


def _sentences(path: Path) -> Iterator[list[str]]:
    """Yield the sentences of a text that are not empty."""
    return (sentence for sentence in read_sentences([path], Reading("ptb", "paragraphs")) if sentence)


def _training_options(recipe: Recipe, vocabulary_size: int) -> dict[str, Any]:
    """Return the options of bilm-tf for the same training. Its characters have no row for the mask in training."""
    options, training = to_mapping(recipe.bilm), recipe.training
    options["char_cnn"]["n_characters"] = 261
    names = ("batch_size", "unroll_steps", "n_negative_samples_batch", "dropout", "learning_rate", "all_clip_norm_val")
    return {**options, "n_tokens_vocab": vocabulary_size, **{name: getattr(training, name) for name in names}}


def _compared(rate: float, **peers: float) -> dict[str, float]:
    """Return tokens a second of ours and of the peers, and the ratios."""
    return {
        "tokens_per_second": round(rate),
        **{peer: round(theirs) for peer, theirs in peers.items()},
        **{f"ratio_to_{peer}": round(rate / theirs, 2) for peer, theirs in peers.items()},
    }


@script
def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="English text, not tokenized, to embed (plain or compressed)")
    parser.add_argument(
        "--train-text", type=Path, help=f"text to train on, the first {TRAINING_TOKENS:,} tokens; default: the same"
    )
    parser.add_argument("--environments", type=Path, required=True, help="the folder of the peers' environments")
    parser.add_argument("--bilm-tf", type=Path, required=True, help="a checkout of bilm-tf")
    parser.add_argument("--python", default=sys.executable, help="the Python 3.11 of new environments; default: this")
    parser.add_argument("--only", choices=["embed", "pretrain"], help="embedding or pretraining alone")
    parser.add_argument(
        "--sizes",
        nargs="+",
        default=["small", "original"],
        choices=list(RECIPES),
        help="the sizes of the models that embed; default: both",
    )
    parser.add_argument(
        "--tokens",
        type=int,
        help=f"tokens of the large text; default: {TOKENS['small'][0]:,} or {TOKENS['original'][0]:,}",
    )
    parser.add_argument("--threads", type=int, default=2, help="threads of each program; default: 2")
    parser.add_argument("--repeats", type=int, default=3, help="how often each is measured; the median counts")
    parser.add_argument("--quick", action="store_true", help="only the size small, few tokens and rows, no repeats")
    parser.add_argument("--json", action="store_true", help="print one JSON object that names the machine")
    arguments = parser.parse_args()
    if not (arguments.bilm_tf / "bilm" / "training.py").is_file():
        parser.error(
            f"--bilm-tf {arguments.bilm_tf}: is not a checkout of bilm-tf; git clone https://github.com/allenai/bilm-tf"
        )
    sizes = ["small"] if arguments.quick else arguments.sizes
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        bench = Bench(arguments, Path(temporary))
        if arguments.only != "pretrain":
            results += [result for size in sizes for result in bench.embed(size)]
        if arguments.only != "embed":
            results.append(bench.pretrain())
    report(results, arguments.json)


if __name__ == "__main__":
    main()
