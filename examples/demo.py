"""Train and use a model on a text that every machine has: the help texts in Python's own documentation.

The demo prepares the text, pretrains the `tiny` recipe on it for a minute, evaluates the model on held-out text, embeds
some sentences and shows the nearest uses of a word. Then the package's own English model embeds other sentences, tells
the senses of words apart, and draws them. `make demo` runs it, and each step is a command that you could type.
"""

import argparse
import ast
import csv
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

SENTENCES = """\
The value of the name is a list of all the names in the module .
If the object is of the right type , its value is returned .
An exception is raised when the name can not be found .
"""
OWN = """\
They saw a new play on Broadway .
Children play in the park .
The bank of the river is steep .
"""
MARK = ".elmo-demo"
"""An empty file by which the demo knows a folder of its own, which it may replace."""

WORD, QUERY = "name", "The class name is bound to the class object in the original namespace ."


def paragraphs() -> list[str]:
    """Return English paragraphs of Python's documentation, or of its docstrings if a build has no documentation."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        texts = list(_docstrings())
    else:
        texts = [text for _, text in sorted(topics.items())]
    found = (re.sub(r"\s+", " ", p).strip() for text in texts for p in re.split(r"\n\s*\n", textwrap.dedent(text)))
    return list(dict.fromkeys(p for p in found if _is_english(p)))


def _docstrings() -> list[str]:
    """Return the docstrings of the standard library's modules, which are read but not run."""
    library = Path(ast.__file__).parent
    docstrings: list[str] = []
    for path in sorted(library.glob("*.py")):
        nodes = ast.walk(ast.parse(path.read_bytes()))
        documented = (node for node in nodes if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef))
        docstrings.extend(ast.get_docstring(node) or "" for node in documented)
    return docstrings


def _is_english(paragraph: str) -> bool:
    """Return whether a paragraph is prose rather than a program, a grammar or a table."""
    words = [word.strip(".,;:()*“”\"'") for word in paragraph.split()]
    return len(words) >= 5 and sum(word.isalpha() for word in words) >= 0.6 * len(words)


def elmo(*arguments: str) -> None:
    """Run a command of `elmo`, showing it first."""
    print("\n$ elmo " + " ".join(f"'{a}'" if " " in a else a for a in arguments), flush=True)
    subprocess.run([sys.executable, "-m", "elmo", *arguments], check=True)


def show_metrics(path: Path) -> None:
    """Show how perplexity fell on the training text and on held-out text."""
    names = ("step", "seconds", "tokens_per_second", "forward_perplexity", "backward_perplexity", "heldout_perplexity")
    with path.open() as file:
        rows = [row for row in csv.DictReader(file) if row["heldout_perplexity"]]
    print("\n" + " ".join(f"{name:>19}" for name in names))
    for row in rows:
        print(" ".join(f"{float(row[name]):>19,.0f}" for name in names))


def show_english(folder: Path) -> None:
    """Show what the package's own model does with our sentences: their vectors, and the senses of three words."""
    (folder / "own.txt").write_text(OWN, encoding="utf-8")
    elmo("embed", "en", str(folder / "own.txt"), str(folder / "english.h5"))
    script = Path(__file__).with_name("senses.py")
    print(f"\n$ python examples/senses.py en --pictures {folder / 'senses'}", flush=True)
    subprocess.run([sys.executable, script, "en", "--pictures", folder / "senses"], check=True)


def main() -> None:
    """Run the demo in a new folder, which replaces an older one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "folder", nargs="?", default="demo-run", type=Path, help="a folder left by an earlier demo is replaced"
    )
    parser.add_argument("--minutes", default="1", help="training time")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    if folder.exists() and not (folder / MARK).exists():
        parser.error(f"{folder}: exists, and was not made by this demo; remove it, or name another folder")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / MARK).touch()
    (folder / "sentences.txt").write_text(SENTENCES, encoding="utf-8")
    text = paragraphs()
    heldout = text[::20]
    (folder / "train.txt").write_text("\n".join(p for i, p in enumerate(text) if i % 20), encoding="utf-8")
    (folder / "heldout.txt").write_text("\n".join(heldout), encoding="utf-8")
    raw = ("--tokenizer", "ptb", "--text", "paragraphs")

    def path(name: str) -> str:
        return str(folder / name)

    elmo("prepare", path("corpus"), path("train.txt"), *raw)
    settings = ("--recipe", "tiny", "--set", "training.n_epochs=100", "--max-minutes", arguments.minutes)
    held = ("--heldout", path("heldout.txt"), "--evaluate-every", "200")
    elmo("pretrain", path("corpus"), path("model"), *settings, *held)
    show_metrics(folder / "model" / "metrics.csv")
    elmo("perplexity", path("model"), path("heldout.txt"), *raw)
    elmo("embed", path("model"), path("sentences.txt"), path("vectors.h5"))
    elmo("neighbors", path("model"), path("train.txt"), *raw, "--word", WORD, "--in", QUERY, "--top", "5")
    show_english(folder)


if __name__ == "__main__":
    main()
