"""The script that makes the package's own model works from the first step to the last, on a small text."""

from __future__ import annotations

import lzma
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from commands import set_options
from elmo import formats
from elmo.pretrain.recipe import load_pretraining_recipe
from elmo.training.recipes import parse_override
from scripts import load_script

SCRIPT = Path(__file__).parents[1] / "examples" / "build_english.py"
SMALLER = {
    "char_cnn.filters": [[1, 4], [2, 8]],
    "lstm.dim": 16,
    "lstm.projection_dim": 8,
    "training.batch_size": 4,
    "training.max_steps": 4,
    "training.n_negative_samples_batch": 16,
}
"""Settings that turn a run of days into one of a second. All other keys are those of the recipe."""

PARAGRAPH = (
    "They saw a new play at the bank. Children play in the park every spring, and he made a spectacular play. "
    "The bank gave him money for the spring of the clock; she sat on the bank of the river.\n"
)
TAGGED = [("Dogs", "NNS"), ("chase", "VBP"), ("small", "JJ"), ("cats", "NNS"), (".", ".")]
QUERIES = ("play", "bank", "spring")
INDEX = "".join(f"{word}%1:0{n}:00:: 00000{n} {n} 0\n" for word in QUERIES for n in (1, 2))


def conllu(number: int) -> str:
    rows = [f"{i}\t{word}\t{word}\tX\t{tag}" + "\t_" * 5 for i, (word, tag) in enumerate(TAGGED, 1)]
    return ("\n".join(rows) + "\n\n") * number


def annotated(name: str) -> dict[str, str]:
    """Return the files of a set of sentences in which each word has one of its two senses."""
    sentences, keys = [], []
    for number, (word, sense) in enumerate((word, sense) for word in QUERIES for sense in (1, 1, 2, 2)):
        place = f"d0.s{number}.t0"
        before = f'<wf lemma="x" pos="DET">No{number}</wf>'
        use = f'<instance id="{place}" lemma="{word}" pos="NOUN">{word}</instance>'
        sentences.append(f'<sentence id="d0.s{number}">\n{before}\n{use}\n</sentence>\n')
        keys.append(f"{place} {word}%1:0{sense}:00::\n")
    xml = f'<corpus lang="en" source="own">\n<text id="d0">\n{"".join(sentences)}</text>\n</corpus>\n'
    return {f"wsd/{name}.data.xml": xml, f"wsd/{name}.gold.key.txt": "".join(keys)}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a folder with all the files that the script asks for."""
    files = {f"lm/{name}.txt": PARAGRAPH * 20 for name in ("en_wiki2014", "en_wiki_recent", "en_books", "en_misc")}
    files |= {f"lm/en_heldout_{part}.txt": PARAGRAPH for part in ("valid", "test")}
    files["lm/wikitext2_valid.txt"] = "They saw a <unk> play .\n"
    files |= {f"pos/ud_ewt_{part}.conllu": conllu(6) for part in ("train", "dev", "test")}
    for name in ("semcor", "senseval2", "senseval3", "semeval2007", "semeval2013", "semeval2015"):
        files |= annotated(name)
    files["wsd/wordnet30_index.sense"] = INDEX
    for name, text in files.items():
        path = tmp_path / "data" / f"{name}.xz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lzma.compress(text.encode()))
    return tmp_path / "data"


def test_the_runs_are_of_the_recipe_and_make_its_steps() -> None:
    """The recipe knows the settings of each run, and has the steps of all runs together."""
    stages = load_script(SCRIPT).STAGES
    runs = [load_pretraining_recipe("en", dict(map(parse_override, stage))) for stage in stages]
    assert sum(run.training.max_steps or 0 for run in runs) == load_pretraining_recipe("en").training.max_steps


@pytest.mark.slow
def test_a_whole_experiment_by_commands(data: Path, tmp_path: Path) -> None:
    """The model is trained, measured and stored in half precision, with its figures in the card. A second start trains
    nothing."""
    command = [sys.executable, SCRIPT, data, tmp_path / "work", "--into", tmp_path / "en", *set_options(SMALLER)]
    command += ["--baseline", tmp_path / "work" / "run-1"]  # exists by the time it is measured
    done = subprocess.run(command, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    model = formats.load(tmp_path / "en")
    assert model.config.lstm.dim == 16
    assert {t.dtype for t in load_file(tmp_path / "en" / "softmax.safetensors").values()} == {torch.float16}
    trained = formats.load(tmp_path / "work" / "run").bilm.state_dict()
    assert all(torch.equal(model.bilm.state_dict()[name], t.half().float()) for name, t in trained.items())
    card = model.card or ""
    assert model.figures["trained for"].startswith("4 steps, ")
    assert "license: apache-2.0\n---\n" in card
    assert "*baseline*: of the same size, trained as published for 4 steps, " in card
    for text in (
        "perplexity of en_heldout_test |",
        "en_heldout_test, baseline |",
        "wikitext2_valid |",
        "UD EWT, %: layer 1 |",
        "sets: layer 2 |",
    ):
        assert text in card
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "work").glob("run*/**/*.safetensors")}
    assert {path.parent.name for path in written} == {"run", "run-1", "run-2", "checkpoints"}
    again = subprocess.run([*command, "--figures", tmp_path / "work" / "figures.json"], capture_output=True)
    assert again.returncode == 0
    assert {path: path.stat().st_mtime_ns for path in written} == written
    assert (tmp_path / "en" / "README.md").read_text(encoding="utf-8") == card
