"""Compare source trees by what a reader has to take in, as a Markdown table with a column for each tree.

    python benchmarks/pages/house.py now=src/elmo before=BEFORE/src/elmo PEER

A tree is a folder, with a name for its column if it has one. Folders called `tests` and files called `test_*.py` or
`conftest.py` are left out, and so are empty files. A function is as long as from its `def` to its last line, methods
and functions within functions included. A comment line has a `#` comment that is meant for readers, not for a linter.
Docstrings are those of public classes, functions and methods; the mean is over those that have one.

If a folder is called `elmo`, two more rows count the files of the package that Python has imported after
`elmo.load("en").embed(...)` and after `elmo pretrain` for two steps (which embeds, too, since it measures the warm
state). Build a tree's kernels first (`python setup.py build_ext --inplace`), because without them other files run.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import re
import statistics
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

FOR_LINTERS = re.compile(r"#\s*(noqa|type:|pyright:|fmt:|ruff:|pragma:)")

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

RUNS = {
    'files imported by `elmo.load("en").embed(...)`': (
        'import elmo; elmo.load("en").embed([["They", "saw", "a", "new", "play", "."]])',
    ),
    "files imported by `elmo pretrain`": (
        "run('prepare', 'corpus', 'text.txt')",
        "run('pretrain', 'corpus', 'run', '--recipe', 'tiny', '--max-steps', '2', '--set', 'training.batch_size=2')",
    ),
}
"""The code to run for each row of imported files. Each piece runs in a process; the files of the last one count."""

PREAMBLE = """
import runpy, sys
def run(*arguments):
    sys.argv = ["elmo", *arguments]
    try:
        runpy.run_module("elmo", run_name="__main__")
    except SystemExit as end:
        assert not end.code, end.code
"""

COUNT = """
files = {getattr(module, "__file__", None) for name, module in sys.modules.items() if name.split(".")[0] == "elmo"}
print("\\nfiles", len({file for file in files if file and file.endswith(".py")}))
"""


class Module(NamedTuple):
    """The counts of a file."""

    num_lines: int
    comment_lines: int
    function_lengths: list[int]
    docstrings: list[str | None]
    classes: list[str]


def main() -> None:
    """Read the trees and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", nargs="+", metavar="[NAME=]FOLDER", help="a source tree, and the name of its column")
    columns: list[dict[str, str]] = []
    for tree in parser.parse_args().trees:
        name, _, folder = tree.rpartition("=")
        path = Path(folder).resolve()
        if not path.is_dir():
            parser.error(f"{folder}: no such folder")
        if not any(source_files(path)):
            parser.error(f"{folder}: holds no Python file")
        columns.append({"": name or path.name, **measure(path)})
    rows = {row: None for column in columns for row in column}
    for number, row in enumerate(rows):
        print("|", " | ".join([row, *(column.get(row, "") for column in columns)]), "|")
        if not number:
            print("|---" * (len(columns) + 1) + "|")


def measure(root: Path) -> dict[str, str]:
    """Return the cells of a tree's column, by the names of their rows."""
    modules = [read_module(path) for path in source_files(root)]
    lines = [module.num_lines for module in modules]
    functions = [length for module in modules for length in module.function_lengths]
    docstrings = [text for module in modules for text in module.docstrings]
    written = [len(text.splitlines()) for text in docstrings if text]
    classes = [name for module in modules for name in module.classes]
    comments = sum(module.comment_lines for module in modules)
    cells = {
        "modules": f"{len(modules):,}",
        "lines": f"{sum(lines):,}",
        "lines of the median module": f"{statistics.median(lines):.0f}",
        "lines of the largest module": f"{max(lines):,}",
        "functions": f"{len(functions):,}",
        "lines of the median function": f"{statistics.median(functions):.0f}",
        "comment lines": f"{comments / sum(lines):.1%} (one in {sum(lines) / max(comments, 1):.0f})",
        "public definitions with a docstring": f"{len(written) / len(docstrings):.0%}",
        "mean lines of a public docstring": f"{statistics.mean(written):.1f}",
        "public class names used twice": str(sum(classes.count(name) > 1 for name in set(classes))),
    }
    return cells | (count_imports(root) if root.name == "elmo" else {})


def source_files(root: Path) -> Iterator[Path]:
    """Yield the Python files of a tree, without its tests and empty files."""
    for path in sorted(root.rglob("*.py")):
        is_test = path.name.startswith("test_") or path.name == "conftest.py"
        if not is_test and "tests" not in path.relative_to(root).parts and path.read_text(encoding="utf-8").strip():
            yield path


def read_module(path: Path) -> Module:
    """Count lines, comments, functions, docstrings and classes in one file."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    comments = {
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT and not FOR_LINTERS.match(token.string)
    }
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return Module(
        num_lines=len(text.splitlines()),
        comment_lines=len(comments),
        function_lengths=[(node.end_lineno or node.lineno) - node.lineno + 1 for node in functions],
        docstrings=[ast.get_docstring(node) for node in public_definitions(tree)],
        classes=[node.name for node in tree.body if isinstance(node, ast.ClassDef) and node.name[0] != "_"],
    )


def public_definitions(node: ast.Module | ast.ClassDef) -> Iterator[Definition]:
    """Yield the public classes and functions of a module, and the public methods of these classes."""
    for child in node.body:
        if isinstance(child, Definition) and not child.name.startswith("_"):
            yield child
            if isinstance(child, ast.ClassDef):
                yield from public_definitions(child)


def count_imports(package: Path) -> dict[str, str]:
    """Run the package of this folder, and return how many of its files each row of `RUNS` imports."""
    cells: dict[str, str] = {}
    environment = {**os.environ, "PYTHONPATH": str(package.parent)}
    for row, pieces in RUNS.items():
        with TemporaryDirectory() as folder:
            (Path(folder) / "text.txt").write_text(
                "They saw a new play .\nIt was a good one .\n" * 50, encoding="utf-8"
            )
            for piece in pieces:
                code = [sys.executable, "-c", f"{PREAMBLE}{piece}{COUNT}"]
                done = subprocess.run(code, cwd=folder, env=environment, capture_output=True, text=True, check=False)
                if done.returncode:
                    sys.exit(f"{package}: {piece}\n{done.stderr}")
                cells[row] = done.stdout.split()[-1]
    return cells


if __name__ == "__main__":
    main()
