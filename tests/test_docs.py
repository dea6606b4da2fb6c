"""On every page, commands have only options that exist, Python type-checks, links have a target and lines are short."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from elmo.cli.main import VERBS, cli
from pages import GIVEN, PAGES, ROOT, blocks, commands, parts, prose, python_of

LANGUAGES = {"bash", "bibtex", "console", "ini", "python", "text", "yaml"}
TOOLS = {".", "awk", "cat", "cp", "cut", "echo", "mkdir", "perl", "pre-commit", "printf", "zcat"}
"""Programs that commands on pages use besides our own."""

UNWRAPPED = {"results.md", "analysis.md", "performance.md"}
"""Pages whose lines may be longer: those that benchmarks/pages writes, and one of mostly tables and commands."""

PAST = {"lab-notes.md", "CHANGELOG.md"}
"""Pages whose commands were right when they were written."""

OLD_TOOLKITS = ("allennlp", "bilm", "elmoformanylangs", "simple_elmo")
"""Packages that older programs on the pages import. They can no longer be installed."""

NOT_INSTALLED = (*OLD_TOOLKITS, "flair", "sentence_transformers", "datasets")
"""Packages that programs on the pages import, but that our tests do not install."""

DOCS = sorted(ROOT.glob("docs/**/*.md"))
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield the commands that have none of their own, with their names, such as ("task", "train")."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from leaves(found, (*path, name))
    else:
        yield path, command


LEAVES = dict(leaves(cli))


@pytest.fixture
def only_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands check their arguments and do nothing else."""
    for command in LEAVES.values():
        monkeypatch.setattr(command, "callback", lambda **_: None)


def check(command: str) -> None:
    """Fail if a line of shell has a program, a script, an extra or an option that doesn't exist."""
    for program, *arguments in parts(command):
        program = program.removeprefix(".venv/bin/")
        if program in ("python", "torchrun") and ("-m", "elmo") in (pairs := list(pairwise(arguments))):
            program, arguments = "elmo", arguments[pairs.index(("-m", "elmo")) + 2 :]
        match program:
            case "elmo":
                cli.main(arguments, prog_name="elmo", standalone_mode=False)
            case "python" | "python3":
                check_script(*arguments)
            case "make":
                for target in arguments:
                    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M), command
            case "pip":
                extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
                asked = {
                    extra for word in arguments for found in re.findall(r"\[(.*)\]", word) for extra in found.split(",")
                }
                assert asked <= set(extras), command
            case _:
                assert program in TOOLS, command


def check_script(script: str, *arguments: str) -> None:
    """Fail if a script or test of the repository doesn't exist, or lacks an option that a page passes to it."""
    if script == "-m":
        assert arguments[0] in ("pytest", "venv")
        assert all((ROOT / path).exists() for path in arguments if path.startswith("tests"))
        return
    if script == "-c":
        compile(arguments[0], "-c", "exec")
        return
    text = (ROOT / script).read_text(encoding="utf-8")
    text += "".join(path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks" / "common").glob("*.py"))
    for option in filter(lambda word: word.startswith("--"), arguments):
        assert f'"{option}"' in text, (script, option)


@each_page
@pytest.mark.usefixtures("only_parsed")
def test_commands_have_only_options_that_exist(page: Path) -> None:
    if page.name in PAST:
        return
    for command in commands(page.read_text(encoding="utf-8")):
        check(command)


@pytest.mark.usefixtures("only_parsed")
def test_examples_in_help_parse() -> None:
    context = click.Context(cli)
    groups = [found for verb in VERBS if (found := cli.get_command(context, verb)) is not None]
    examples = [command.epilog or "" for command in (*groups, *LEAVES.values())]
    lines = [line.strip() for text in examples for line in text.splitlines() if line.startswith("  ")]
    assert len(lines) > 60
    for line in lines:
        check(re.sub(r"\s{2,}\(.*\)$", "", line))


@pytest.mark.parametrize("group", ["", "task", "analyze"])
def test_help_says_the_whole_of_what_commands_do(group: str) -> None:
    """Click cuts off what doesn't fit on a line."""
    shown = CliRunner().invoke(cli, [*group.split(), "--help"]).output
    assert shown.count("\n  ") > 5
    assert "..." not in shown.partition("Commands:")[2]


INLINE = re.compile(r"`(?:[^`]*\| )?elmo ((?:[a-z]+ ?)+)([^`]*)`")


@each_page
def test_commands_in_sentences_have_only_options_that_exist(page: Path) -> None:
    if page.name in PAST:
        return
    for words, rest in INLINE.findall(prose(page.read_text(encoding="utf-8"))):
        verb, *others = words.split()
        command = LEAVES.get((verb, *others[:1])) or LEAVES.get((verb,))
        known = [name for each in ([command] if command else LEAVES.values()) for p in each.params for name in p.opts]
        assert verb in VERBS, words
        for option in re.findall(r"(?<=\s)--[a-z][\w-]*", f" {rest}"):
            assert option in (*known, "--help"), (words, option)


def test_an_option_that_does_not_exist_is_found(only_parsed: None) -> None:
    check("cat text.txt | elmo prepare corpus - --min-count 2 > log")
    with pytest.raises(click.NoSuchOption):
        check("cat text.txt | elmo prepare corpus - --least-count 2 > log")
    with pytest.raises(AssertionError):
        check("python benchmarks/speed/embed.py --no-such-option")


@each_page
def test_code_blocks_say_what_they_hold(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    marks = re.findall(r"^ *```(.*)$", text, re.M)
    assert set(marks[::2]) <= LANGUAGES, "a fence opens without a known language"
    assert set(marks[1::2]) <= {""}


@pytest.mark.slow
def test_python_type_checks(tmp_path: Path) -> None:
    for page in PAGES:
        if code := python_of(page.read_text(encoding="utf-8")):
            name = page.relative_to(ROOT).with_suffix("").as_posix().replace("/", "_").replace("-", "_")
            (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    settings = {
        "typeCheckingMode": "basic",
        "extraPaths": [str(ROOT / "src")],
        # What h5py finds under a name may be a group, which readers of our files know it isn't.
        "reportIndexIssue": "none",
        "reportOperatorIssue": "none",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "--project", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(ran.stdout)
    assert found["summary"]["filesAnalyzed"] > 5, ran.stderr
    errors = [
        f"{Path(each['file']).name}: {each['message']}"
        for each in found["generalDiagnostics"]
        if each["severity"] == "error"
        and not each["message"].startswith(tuple(f'Import "{name}' for name in NOT_INSTALLED))
    ]
    assert errors == []


LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", [page for page in PAGES if page not in DOCS], ids=lambda path: path.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Only pages outside docs/ are checked here, because MkDocs checks the others."""
    for link in LINK.findall(prose(page.read_text(encoding="utf-8"))):
        path, _, anchor = link.partition("#")
        if "://" in path:
            continue
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.*)$", prose(page.read_text(encoding="utf-8")), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


WIDTH = 88


@pytest.mark.parametrize("page", DOCS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_prose_is_wrapped(page: Path) -> None:
    """Only tables, and single words that don't fit on a line, may be longer."""
    if page.name in UNWRAPPED:
        return
    for number, line in enumerate(prose(page.read_text(encoding="utf-8")).splitlines(), 1):
        assert len(line) <= WIDTH or line.startswith(("|", "![")) or " " not in line.strip(), f"line {number}"


@pytest.mark.parametrize("page", DOCS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_lists_and_tables_follow_a_blank_line(page: Path) -> None:
    """GitHub doesn't need the blank line, but without it MkDocs shows a list or a table as text."""
    before = ""
    for number, line in enumerate(prose(page.read_text(encoding="utf-8")).splitlines(), 1):
        starts = re.match(r"([-*] |\d+\. )", line) and not re.match(r"([-*] |\d+\. |  )", before)
        starts = starts or (line.startswith("|") and not before.startswith("|"))
        assert not (starts and before.strip()), f"line {number}"
        before = line


def test_commands_and_links_in_sentences_are_seen() -> None:
    """Otherwise the tests that look for them would check nothing."""
    text = "Run `elmo task train ner --elmo en` or `cat a | elmo info en --json`: see [tasks](docs/tasks.md#ner)."
    assert INLINE.findall(text) == [("task train ner ", "--elmo en"), ("info en ", "--json")]
    assert LINK.findall(text) == ["docs/tasks.md#ner"]


def test_the_search_of_the_site_loads_nothing_from_other_hosts() -> None:
    """Where no such script is named, the plugin `offline` adds one of another host to every page."""
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert "offline" in settings["plugins"]
    scripts = settings["extra"]["polyfills"]
    assert any("iframe-worker" in script for script in scripts)
    assert all((ROOT / settings["docs_dir"] / script).is_file() for script in scripts)


def test_given_names_are_read() -> None:
    assert GIVEN.findall("a\n<!-- given\nx = 1\n-->\nb") == ["x = 1\n"]
    assert blocks("```python\na\n```\n\n  ```text\n  b\n  ```\n", "python") == ["a\n"]
