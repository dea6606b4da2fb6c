"""Pages of the site that are made from code: commands, the Python API, recipes, the changelog and notebooks.

MkDocs calls `on_files` (`hooks` in mkdocs.yml). Nothing is written to docs/.
"""

from __future__ import annotations

import base64
import dataclasses
import importlib
import inspect
import json
import re
import typing
from collections.abc import Iterator
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

import click
import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from elmo.cli.main import VERBS, cli
from elmo.pretrain import Recipe, load_pretraining_recipe
from elmo.pretrain.recipe import RECIPE_NAMES
from elmo.schema import to_mapping
from elmo.tasks import TASKS, get_task
from elmo.tasks.recipe import ElmoConfig, TaskTrainingConfig, WordsConfig

ROOT = Path(__file__).parents[1]

NOTEBOOKS = ROOT / "examples" / "notebooks"

SHARED: dict[str, type] = {"elmo": ElmoConfig, "training": TaskTrainingConfig, "words": WordsConfig}
"""The sections of a recipe that all tasks share, which are shown once."""

OTHERS = ("CHANGELOG", "CONTRIBUTING", "SECURITY")
"""The pages at the root of the repository that are on the site, too."""

INTEGRATIONS = {
    "allennlp": "AllenNLP's classes",
    "bilm": "bilm-tf's functions",
    "flair": "Flair",
    "many_langs": "ELMoForManyLangs' embedder",
    "ray": "Ray",
    "simple_elmo": "simple_elmo's model",
    "sentence_transformers": "Sentence Transformers",
    "sklearn": "scikit-learn",
    "spacy": "spaCy",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to those of docs/."""
    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        for name, content in notebook_files(path).items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def pages() -> dict[str, str]:
    """Return the Markdown of each generated page by its path."""
    made = {"reference/commands/index.md": commands_page(), "reference/recipes.md": recipes_page()}
    context = click.Context(cli, info_name="elmo")
    for verb in VERBS:
        command = cli.get_command(context, verb)
        assert command is not None
        made[f"reference/commands/elmo-{verb}.md"] = "\n".join(command_lines(command, verb, context, 1))
    for name in ("elmo", "elmo.pretrain", "elmo.tasks", "elmo.analysis"):
        made[f"reference/python/{name.rpartition('.')[2]}.md"] = module_page(name)
    made["reference/python/integrations.md"] = integrations_page()
    made = {path: link_pages(text, path) for path, text in made.items()}
    for name in OTHERS:
        made[f"{name.lower()}.md"] = root_page(name)
    return made


def link_pages(text: str, path: str) -> str:
    """Return the text of the generated page at `path` with a link wherever it names a page of docs/."""
    up = "../" * path.count("/")

    def link(found: re.Match[str]) -> str:
        title = (ROOT / "docs" / f"{found[1]}.md").read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        return f"[{title}]({up}{found[1]}.md)"

    blocks = re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("```") else re.sub(r"docs/([\w-]+)\.md", link, part) for part in blocks)


def root_page(name: str) -> str:
    """Return a page that stands at the root of the repository, with links to pages of the site alone."""

    def relink(found: re.Match[str]) -> str:
        path = found[2].removesuffix(".md")
        if path in OTHERS:
            return f"[{found[1]}]({path.lower()}.md)"
        return f"[{found[1]}]({found[2].removeprefix('docs/')})" if path.startswith("docs/") else found[1]

    return re.sub(r"\[([^\]]+)\]\(((?!https?:)[^)]+)\)", relink, (ROOT / f"{name}.md").read_text(encoding="utf-8"))


# Notebooks. nbconvert does the same, but brings ten packages with it.


def notebook_files(path: Path) -> dict[str, str | bytes]:
    """Return the page of a notebook, its pictures and the notebook itself, by their names."""
    text = path.read_text(encoding="utf-8")
    lines: list[str] = []
    files: dict[str, str | bytes] = {path.name: text}
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            lines += [relink_notebook(source), ""]
            continue
        magic, _, rest = source.partition("\n")
        lines += fenced(*(("bash", rest) if magic == "%%bash" else ("python", source)))
        for number, output in enumerate(cell["outputs"]):
            data = output.get("data", {})
            if picture := data.get("image/png"):
                name = f"{path.stem}-{cell['id']}-{number}.png"
                files[name] = base64.b64decode(picture)
                lines += [f"![What the cell above shows]({name})", ""]
            elif html := data.get("text/html"):
                # Without its own looks, a table of pandas is drawn, and on small screens scrolled, as others are.
                lines += [re.sub(r"<style scoped>.*?</style>|(?<=<table)[^>]*", "", "".join(html), flags=re.DOTALL), ""]
            else:
                lines += fenced("text", "".join(output.get("text", data.get("text/plain", ""))).strip("\n"))
    lines.append(
        f"[Download this page as a notebook]({path.name}). In the repository it is `examples/notebooks/{path.name}`, "
        "next to the files that it reads."
    )
    return {**files, f"{path.stem}.md": "\n".join(lines)}


def fenced(language: str, text: str) -> list[str]:
    """Return the lines of a block of code or output."""
    return [f"```{language}", text, "```", ""]


def relink_notebook(text: str) -> str:
    """Return the text of a notebook with its links to pages and notebooks as links of the site."""
    text = re.sub(r"\]\(\.\./\.\./docs/", "](../", text)
    text = re.sub(r"\]\(([\w-]+)\.ipynb\)", r"](\1.md)", text)
    return re.sub(r"\[([^\]]+)\]\([\w/.-]+\.py\)", r"`examples/notebooks/\1`", text)


# Commands. mkdocs-click does the same, but leaves out the examples and the order of the verbs.


LAYER_OR_LAYERS = """`elmo embed` can write several layers, so its option is `--layers`. `elmo neighbors`,
`elmo index` and `elmo types` need one vector for each token, so theirs is `--layer`: one
layer, the mean of all, or weights. The arguments in Python are called `layers` and
`layer` in the same way."""


def commands_page() -> str:
    """Return the page that lists all commands."""
    rows = [f"| [elmo {verb}](elmo-{verb}.md) | {help} |" for verb, help in VERBS.items()]
    return "\n".join(
        ["# Commands", "", plain(cli.help or ""), "", "| command | |", "|---|---|", *rows, "", LAYER_OR_LAYERS, ""]
    )


def command_lines(command: click.Command, name: str, parent: click.Context, level: int) -> Iterator[str]:
    """Yield the lines for a command: its description, usage, options, examples and commands of its own."""
    context = click.Context(command, info_name=name, parent=parent)
    yield from (f"{'#' * level} {context.command_path}", "", *description(command.help or ""))
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield from ("```text", usage, "```", "")
    records = [parameter.get_help_record(context) for parameter in command.get_params(context)]
    rows = [f"| `{names}` | {plain(text)} |" for names, text in filter(None, records) if text and "--help" not in names]
    if rows:
        yield from ("| option | |", "|---|---|", *rows, "")
    if command.epilog:
        examples = inspect.cleandoc(command.epilog.replace("\b\n", "").removeprefix("Examples:\n"))
        yield from ("```console", examples, "```", "")
    if isinstance(command, click.Group):
        for verb in command.list_commands(context):
            found = command.get_command(context, verb)
            assert found is not None
            yield from command_lines(found, verb, context, level + 1)


def description(help: str) -> Iterator[str]:
    """Yield the lines of a command's description. Paragraphs that click doesn't wrap, after a backspace, are tables."""
    for paragraph in inspect.cleandoc(help).split("\n\n"):
        table = paragraph.removeprefix("\b\n")
        yield from ("```text", table, "```", "") if table != paragraph else (plain(paragraph), "")


def plain(text: str) -> str:
    """Escape what Markdown would take for markup."""
    return re.sub(r"([\\`*_<>|\[\]])", r"\\\1", text)


# The Python API


def module_page(name: str) -> str:
    """Return the page of a module: what its `__all__` names."""
    module = importlib.import_module(name)
    summary = (module.__doc__ or "").partition("\n")[0]
    rows = [f"| [`{each}`][{name}.{each}] | {summary_of(getattr(module, each))} |" for each in module.__all__]
    objects = [f"::: {name}.{each}\n" for each in module.__all__]
    return "\n".join([f"# {name}", "", summary, "", "| name | |", "|---|---|", *rows, "", *objects])


def integrations_page() -> str:
    """Return the page of the adapters to other libraries, which need not be installed."""
    lines = ["# elmo.integrations", "", "Adapters to other libraries, and the older toolkits' own APIs.", ""]
    options = "    options:\n      heading_level: 3\n      show_root_heading: false\n      show_root_toc_entry: false"
    for name, title in INTEGRATIONS.items():
        lines += [f"## {title}", "", f"`elmo.integrations.{name}`", "", f"::: elmo.integrations.{name}", options, ""]
    return "\n".join(lines)


# Recipes


def recipes_page() -> str:
    """Return the page with the keys of all recipes, and their values in the recipes of the package."""
    lines = [
        "# Recipes",
        "",
        "A recipe is a YAML file with all settings of a training: sizes, learning rate, number of epochs and so on.",
        "",
        "- `--recipe` takes the name of one of the package's recipes, or the path of your own file.",
        "- `--set KEY=VALUE` changes a single key. The value is YAML, too: `--set char_cnn.n_highway=2`.",
        "- In the tables, a dot stands for a level of the file: `lstm.dim` is the key `dim` in the section `lstm`.",
        "- Begin a file of your own with one from this page, or with the `recipe.yaml` of a pretraining's run folder, "
        "and change it. A key that you leave out has the default of the tables, not the value of the package's recipe.",
        "- [Pretrain a model](../pretraining.md) and [Train task models](../tasks.md) say which values to try.",
        "",
        "## Pretraining",
        "",
        *key_table(Recipe, ""),
        "### Values in the package's recipes",
        "",
        "A key that a recipe leaves out has its default.",
        "",
        *value_table(),
        *recipe_lines("mini"),
        "## Tasks: the sections that all of them share",
        "",
    ]
    for section, kind in SHARED.items():
        lines += [f"### {section}", "", *key_table(kind, f"{section}.")]
    for name in TASKS:
        recipe = get_task(name).recipe
        lines += [f"## {name}", "", plain(summary_of(recipe)), "", *key_table(recipe, "", without=SHARED)]
        lines += recipe_lines(name)
    return "\n".join(lines)


def recipe_lines(name: str) -> list[str]:
    """Return the lines that show a recipe of the package."""
    text = package_files("elmo").joinpath("recipes", f"{name}.yaml").read_text(encoding="utf-8")
    return [f"The recipe of the package, `{name}.yaml`:", "", *fenced("yaml", text.strip())]


def summary_of(thing: object) -> str:
    """Return the first paragraph of the docstring of a class or function on one line; constants have none."""
    text = inspect.getdoc(thing) if inspect.isclass(thing) or inspect.isroutine(thing) else None
    return " ".join((text or "").partition("\n\n")[0].split()).replace("|", r"\|")


def key_table(kind: type, prefix: str, without: typing.Container[str] = ()) -> list[str]:
    """Return a table of the keys of a dataclass and of those inside it: name, default and meaning."""
    rows = [f"| `{key}` | {default} | {text} |" for key, default, text in keys_of(kind, prefix, without)]
    return ["| key | default | |", "|---|---|---|", *rows, ""] if rows else []


def keys_of(kind: type, prefix: str, without: typing.Container[str] = ()) -> Iterator[tuple[str, str, str]]:
    """Yield the dotted name, the default and the meaning of each key of a dataclass.

    Raises:
        KeyError: If the docstring doesn't describe a key.
    """
    hints, texts = typing.get_type_hints(kind), descriptions(kind)
    for field in dataclasses.fields(kind):
        if field.name in without:
            continue
        inner = [each for each in (hints[field.name], *typing.get_args(hints[field.name])) if is_section(each)]
        if inner:
            yield from keys_of(inner[0], f"{prefix}{field.name}.")
        else:
            default = "required" if field.default is dataclasses.MISSING else f"`{as_yaml(field.default)}`"
            yield f"{prefix}{field.name}", default, texts[field.name]


def is_section(kind: Any) -> bool:
    """Whether a field of this type has keys of its own."""
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def descriptions(kind: type) -> dict[str, str]:
    """Return what the docstring of a dataclass says of its attributes."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):  # a field of a base class is described there
        for section in griffe.Docstring(inspect.cleandoc(base.__doc__ or "")).parse("google"):
            if section.kind is griffe.DocstringSectionKind.attributes:
                found |= {each.name: " ".join(each.description.split()) for each in section.value}
    return {name: re.sub(r"\bNone\b", "null", text).replace("|", r"\|") for name, text in found.items()}


def value_table() -> list[str]:
    """Return a table of the values in the package's recipes of pretraining, from small to large."""
    names = list(reversed(RECIPE_NAMES))
    columns = [dict(flat(to_mapping(load_pretraining_recipe(name)))) for name in names]
    values = {key: [f"`{as_yaml(column.get(key))}`" for column in columns] for key in columns[0]}
    differing = {key: row for key, row in values.items() if len(set(row)) > 1}
    shared = [f"`{key}` {row[0]}" for key, row in values.items() if key not in differing]
    return [
        f"| key | {' | '.join(names)} |",
        "|---" * (len(names) + 1) + "|",
        *(f"| `{key}` | {' | '.join(row)} |" for key, row in differing.items()),
        "",
        f"In all of them: {', '.join(shared)}.",
        "",
    ]


def flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted names and the values of nested mappings."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from flat(typing.cast("dict[str, Any]", value), f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def as_yaml(value: object) -> str:
    """Return a value as it is written in a recipe."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(as_yaml, typing.cast('list[object]', value)))}]"
    return str(value)
