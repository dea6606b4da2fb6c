"""Use an installed `elmo` as somebody would in the first five minutes, and stop at the first step that fails.

It runs in the environment that `elmo` is installed in, with nothing but the package and what it requires:
`python -I packaging/try_installed.py --kernels yes`. `make dist-test` and cibuildwheel run it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import sysconfig
from contextlib import chdir
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

TEXT = "They saw a new play on Broadway .\nChildren play in the park .\n"
SENTENCES = (
    (("They", "PRON"), ("saw", "VERB"), ("a", "DET"), ("play", "NOUN"), (".", "PUNCT")),
    (("Children", "NOUN"), ("play", "VERB"), ("in", "ADP"), ("the", "DET"), ("park", "NOUN"), (".", "PUNCT")),
)
EMPTY = "\t_"


def elmo(*arguments: str) -> str:
    """Run a command of `elmo` and return what it prints to stdout; a failure is shown and ends the program."""
    done = subprocess.run(
        [sys.executable, "-I", "-m", "elmo", *arguments], capture_output=True, encoding="utf-8", check=False
    )
    if done.returncode:
        sys.exit(f"elmo {' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def require(is_true: bool, what: str) -> None:
    """End the program unless something is as it should be."""
    if not is_true:
        sys.exit(f"not true of this installation: {what}")


def try_import(kernels: str) -> None:
    """Import the package, which must be the installed one, and embed with the English model."""
    import elmo as package
    from elmo import _native

    where = Path(package.__file__ or "")
    installed = {sysconfig.get_path(kind) for kind in ("platlib", "purelib")}  # a wheel without kernels is pure Python
    require(any(map(where.is_relative_to, installed)), f"elmo is imported from site-packages, not {where}")
    require(package.__version__ == version("elmo-torch"), "the package and its metadata have the same version")
    if kernels != "any":
        require(bool(_native.available()) == (kernels == "yes"), f"native kernels: {kernels}")
    (vectors,) = package.load("en").embed([["They", "saw", "a", "new", "play", "."]])
    require(vectors.shape == (6, 384), "six words have vectors of 384 numbers")
    levels = ", ".join(_native.LEVELS) or "none"
    print(f"Python {sys.version.split()[0]}, elmo {package.__version__}, kernels: {levels}")


def try_commands() -> None:
    """Embed a text, pretrain and fine-tune a model on it, and train a tagger on two sentences and use it."""
    Path("text.txt").write_text(TEXT, encoding="utf-8")
    embedded = elmo("embed", "en", "text.txt", "vectors.h5")
    require("2 sentences, 14 tokens" in embedded, f"embedding reports 2 sentences and 14 tokens ({embedded.strip()})")
    elmo("prepare", "corpus", "text.txt", "--min-count", "1")
    elmo("pretrain", "corpus", "model", "--recipe", "tiny", "--max-steps", "2")
    elmo("finetune", "model", "tuned", "text.txt", "--set", "training.max_steps=2")
    require("2 sentences" in elmo("embed", "tuned", "text.txt", "tuned.h5"), "a fine-tuned model embeds text")
    rows = [
        "".join(f"{n}\t{word}\t_\t{tag}{EMPTY * 6}\n" for n, (word, tag) in enumerate(sentence, 1))
        for sentence in SENTENCES
    ]
    Path("train.conllu").write_text("\n".join(rows * 10) + "\n", encoding="utf-8")
    small = ("--set", "lstm=[32]", "--set", "training.max_epochs=10")
    data = ("--train", "train.conllu", "--dev", "train.conllu")
    elmo("task", "train", "tag", *data, "--elmo", "en", "--out", "tagger", *small)
    tagged = elmo("task", "predict", "tagger", "text.txt")
    columns = [line.split("\t") for line in tagged.splitlines() if line and not line.startswith("#")]
    tags = {(row[1], row[3]) for row in columns}
    require({("Children", "NOUN"), ("the", "DET")} <= tags, f"the tagger has learned its two sentences ({tags})")


def try_to_end() -> None:
    """End Python while another thread computes, which depends on what the kernels were compiled by."""
    program = """
import threading, time
import elmo

model = elmo.load("en")
def embed():
    try:
        while True:
            model.embed([["They", "saw", "it"]])
    except RuntimeError:  # Python is ending; if the error were printed just then, Python might abort
        pass
threading.Thread(target=embed, daemon=True).start()
time.sleep(0.5)
"""
    code = subprocess.run([sys.executable, "-I", "-c", program], stderr=subprocess.DEVNULL, check=False).returncode
    require(code == 0, f"Python ends while a thread computes, with exit code 0 (and not {code})")


def try_softmax() -> None:
    """Measure perplexity, which needs the softmax of `elmo-torch-en-softmax`."""
    Path("text.txt").write_text(TEXT, encoding="utf-8")
    require("on 14 tokens" in elmo("perplexity", "en", "text.txt"), "perplexity is measured on 14 tokens")


def main() -> None:
    """Try everything in a temporary folder, which is the current one, so that names of files are relative."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", choices=["yes", "no", "any"], default="any", help="whether there must be kernels")
    parser.add_argument("--softmax", action="store_true", help="try what needs the softmax of the English model alone")
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder, chdir(folder):
        if arguments.softmax:
            try_softmax()
        else:
            try_import(arguments.kernels)
            try_commands()
            try_to_end()


if __name__ == "__main__":
    main()
