"""The pages for readers (README and docs), the code blocks on them, and the commands in these blocks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from click.testing import CliRunner

from elmo.cli.main import cli

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])

FENCED = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```$", re.M | re.S)
GIVEN = re.compile(r"^<!-- given\n(.*?)^-->$", re.M | re.S)
"""A comment with Python names that a page assumes its reader to have."""


def blocks(text: str, language: str) -> list[str]:
    """Return the fenced blocks of a page in one language."""
    return [body for _, found, body in FENCED.findall(text) if found == language]


def prose(text: str) -> str:
    """Return a page without its fenced blocks and comments. Lines keep their numbers."""
    for pattern in (FENCED, re.compile(r"<!--.*?-->", re.S)):
        text = pattern.sub(lambda found: "\n" * found[0].count("\n"), text)
    return text


def python_of(text: str) -> str:
    """Return the Python of a page as one module: the names that its reader has, then the blocks in their order."""
    return "\n".join([*GIVEN.findall(text), *blocks(text, "python")])


def commands(text: str) -> list[str]:
    """Return the lines of the console blocks of a page."""
    return [line for block in blocks(text, "console") for line in block.splitlines() if line.strip()]


def parts(command: str) -> Iterator[list[str]]:
    """Yield the words of each program that a line of shell runs, without redirections."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    words: list[str] = []
    skip = False
    for word in lexer:
        if set(word) <= set("|&;"):
            yield words
            words = []
        elif set(word) <= set("<>"):
            skip = True  # the name of a file follows
        elif skip:
            skip = False
        else:
            words.append(word)
    yield words


def run_commands(lines: Sequence[str], shorter: Mapping[str, str]) -> None:
    """Run the lines with `elmo` in this process, with parts of them replaced by those of `shorter`.

    Each part has to occur, or a page that has changed would be run in its full length without a word.
    """
    missing = [long for long in shorter if not any(long in line for line in lines)]
    assert not missing, missing
    for command in lines:
        for long, short in shorter.items():
            command = command.replace(long, short)
        typed, _, command = command.rpartition(" | ")
        if not command.startswith("elmo "):
            continue
        command, _, target = command.partition(" > ")
        text = shlex.split(typed)[-1] if typed else None
        result = CliRunner().invoke(cli, shlex.split(command)[1:], input=text)
        assert result.exit_code == 0, (command, result.output, result.exception)
        assert result.output.strip(), command
        if target:
            Path(target).write_text(result.stdout, encoding="utf-8")
