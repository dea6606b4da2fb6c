"""All scripts of `benchmarks/` are on their page, and each command that a page or a script shows can be typed."""

from __future__ import annotations

import argparse
import ast
import json
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks"
SCRIPTS = sorted(
    path for path in FOLDER.rglob("*.py") if 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")
)
PAGES = [
    *(ROOT / "README.md", FOLDER / "README.md", ROOT / "src/elmo/models/en/README.md"),
    *sorted((ROOT / "docs").glob("*.md")),
]

FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`]+)`")
COMMAND = re.compile(r"(?:python )?(benchmarks/\w+/\w+\.py|…)(?: (.*))?", re.DOTALL)
BRACES = re.compile(r"(\S*)\{(\S+?)\}(\S*)")


class Parsed(Exception):  # noqa: N818 (it is no error)
    """The arguments were read without complaint."""


def pieces_of(text: str) -> Iterator[str]:
    """Yield the code of a page in Markdown: the lines of its blocks, and what is between backticks."""
    for block in FENCED.findall(text):
        yield from block.replace("\\\n", " ").splitlines()
    for code in INLINE.findall(FENCED.sub("", text)):
        yield " ".join(code.split())


def commands_of(pieces: Iterator[str]) -> Iterator[tuple[str, str]]:
    """Yield scripts and their arguments. After a full command, "…" stands for the script of the last one."""
    last = ""
    for piece in pieces:
        found = COMMAND.search(piece)
        if found and (found[1] != "…" or (last and piece.startswith("…") and found[2])):
            last = last if found[1] == "…" else found[1]
            # A command may end in "> file" or "&", and square brackets mark what may be left out.
            arguments = re.sub(r"\s[>&].*|[\[\]]", "", found[2] or "")
            yield last, BRACES.sub(lambda m: " ".join(m[1] + part + m[3] for part in m[2].split(",")), arguments)


def all_commands() -> list[tuple[str, str]]:
    found = {command for page in PAGES for command in commands_of(pieces_of(page.read_text(encoding="utf-8")))}
    for script in SCRIPTS:
        docstring = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
        found |= set(commands_of(line for line in docstring.splitlines() if line.startswith("    ")))
    runs = yaml.safe_load((FOLDER / "experiments" / "table_one.yaml").read_text(encoding="utf-8"))
    found |= set(commands_of(run["command"] for run in runs))
    return sorted(found)


def read_arguments(script: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a script until it has read its arguments."""
    parse = argparse.ArgumentParser.parse_args

    def parse_and_stop(parser: argparse.ArgumentParser) -> None:
        parse(parser)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
    run_script(script, arguments, monkeypatch)


def run_script(script: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a script in this process."""
    known = set(sys.modules)
    monkeypatch.setattr(sys, "argv", [str(script), *arguments])
    monkeypatch.syspath_prepend(script.parent)  # as Python does for a script
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        for name in set(sys.modules) - known:  # modules of scripts in several folders may have the same name
            if is_ours(name):
                del sys.modules[name]


def is_ours(name: str) -> bool:
    return str(getattr(sys.modules[name], "__file__", None)).startswith(str(FOLDER))


def test_this_file_sees_commands() -> None:
    """Commands in a block, in a line and after "…" are found. Otherwise the tests below would check nothing."""
    text = "`python benchmarks/a/b.py x-{1,2} --json`, `… --quick` and `…`\n```\npython benchmarks/c/d.py y > z\n```\n"
    assert list(commands_of(pieces_of(text))) == [
        ("benchmarks/c/d.py", "y"),
        ("benchmarks/a/b.py", "x-1 x-2 --json"),
        ("benchmarks/a/b.py", "--quick"),
    ]
    assert len(all_commands()) > 40


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_scripts_have_a_help_text_and_a_line_on_the_page(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        read_arguments(script, ["--help"], monkeypatch)
    assert end.value.code == 0
    assert "usage:" in capsys.readouterr().out
    assert script.relative_to(FOLDER).as_posix() in (FOLDER / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("script", "arguments"), all_commands())
def test_commands_of_pages_are_understood(script: str, arguments: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts stop after reading their arguments, since only the writers of these pages have the data. A script without
    arguments is only mentioned on the page, and is not run."""
    assert (ROOT / script).is_file()
    if arguments:
        with pytest.raises(Parsed):
            read_arguments(ROOT / script, shlex.split(arguments), monkeypatch)


@pytest.mark.parametrize(
    ("script", "arguments", "message"),
    [
        ("speed/tasks.py", ["ner"], "ner: expected TASK=FILE, such as ner=train.conll"),
        ("speed/exchange.py", ["--steps", "1"], "--steps: the first step is not measured; give at least 2"),
        ("pages/house.py", ["a"], "a: holds no Python file"),
        ("experiments/warm.py", ["no-model", "train.txt", "heldout.txt"], "no-model: no such file or folder"),
        ("experiments/ngram.py", ["no-corpus", "heldout.txt", "--kenlm", "bin"], "no-corpus: "),
        ("experiments/simulated_change.py", ["missing.txt"], "missing.txt: no such file"),
        ("experiments/paper_tasks.py", ["runs", "--seeds", "0"], "argument --seeds: '0' is not a number of 1 or more"),
        (
            "experiments/little_text.py",
            ["runs", "--seeds", "-2"],
            "argument --seeds: '-2' is not a number of 1 or more",
        ),
        ("experiments/paper_analyses.py", ["--only", "pos", "--data", ".", "--device", "no"], "pos/"),
        ("pages/results.py", ["page.md", "--records", "."], "a/none.json: is not the record of a training"),
    ],
)
def test_bad_input_ends_a_script_with_one_sentence(
    script: str,
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "none.json").write_text("{}")
    with pytest.raises(SystemExit) as end:
        run_script(FOLDER / script, arguments, monkeypatch)
    assert end.value.code == 2
    *usage, line = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{Path(script).name}: error: {message}")
    assert not usage or usage[0].startswith("usage: ")


def test_an_error_in_a_child_process_is_reported_once(tmp_path: Path) -> None:
    script = str(FOLDER / "speed" / "embed.py")
    command = [sys.executable, script, "--quick", "--sizes", "small", "--text", "missing.txt"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert re.fullmatch(r"embed\.py: error: .*missing\.txt.*\n", done.stderr)


@pytest.mark.slow
def test_writing_is_measured_in_all_formats(tmp_path: Path) -> None:
    command = [sys.executable, str(FOLDER / "speed" / "bulk.py"), "--quick", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    names = [result["name"] for result in json.loads(done.stdout)["results"]]
    assert [name for name in names if name.startswith("write/")] == [
        f"write/{f}" for f in ("h5", "npz", "parquet", "h5py")
    ]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_every_option_is_explained(script: Path) -> None:
    """`--help` says what each argument is for, unless it is one that a script passes to itself."""
    for call in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
            assert "help" in {keyword.arg for keyword in call.keywords}, ast.unparse(call)
