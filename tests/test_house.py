"""The parts of `elmo` import each other only as planned, only some names are public, and imports are cheap.

The tests call `elmo` the house, and each package or module directly under it a room.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest

import elmo
from elmo import extras
from elmo.tasks import TASKS

SOURCE = Path(elmo.__file__).parent
ROOT = Path(__file__).parents[1]
BASE = {"config", "cores", "errors", "extras", "lazy", "progress", "schema", "targets", "wording"}
MODEL = BASE | {"nn", "text", "formats"}
ALLOWED = {
    "errors": set[str](),
    "schema": {"errors"},
    "config": {"errors", "schema"},
    "cores": set[str](),
    "extras": {"errors"},
    "lazy": set[str](),
    "progress": set[str](),
    "targets": {"errors"},
    "wording": set[str](),
    "text": BASE,
    "nn": BASE | {"_native"},
    "formats": BASE | {"nn", "text"},
    "_native": set[str](),
    "embed": MODEL | {"_native", "__version__"},
    "training": BASE | {"formats", "nn", "text"},
    "pretrain": MODEL | {"training"},
    "tasks": MODEL | {"embed", "training", "pretrain"},
    "analysis": MODEL | {"embed", "training", "pretrain", "tasks"},
    "integrations": MODEL | {"embed", "tasks", "analysis"},
    "cli": MODEL | {"embed", "training", "pretrain", "tasks", "analysis", "integrations"},
    "__main__": {"cli"},
    "__init__": MODEL | {"embed"},
}
"""The rooms that each room may import from, besides itself. `embed` and `pretrain` may not import each other, nor may
`text` and `nn`."""

PUBLIC = [
    *("Elmo", "ElmoError", "Embedder", "ParallelEmbedder", "ScalarMix"),
    *("batch_to_ids", "get_tokenizer", "load", "split_sentences"),
]
PUBLIC_MODULES = {
    "elmo.analysis": [
        *("Annotated", "ContextIndex", "LinearProbe", "Neighbors", "Score", "Tagged", "Use", "Uses", "WordNeighbor"),
        *("build_index", "evaluate_typos", "evaluate_wsd", "find_neighbors", "fit_probe", "gather_uses"),
        *("mark_uses", "nearest_uses", "plot_uses", "probe_pos", "read_annotated", "read_conllu"),
        *("read_first_senses", "separation", "with_typos", "ChangeIndex", "plot_change", "type_vectors"),
        *("evaluate_analogies", "evaluate_similarity", "load_word_vectors"),
    ],
    "elmo.pretrain": [
        *("FineTuning", "Pretrainer", "PretrainingConfig", "Reading", "Recipe", "finetune", "load_pretraining_recipe"),
        *("prepare",),
    ],
    "elmo.tasks": [
        *("NO_ELMO", "TASKS", "Result", "TrainedTask", "evaluate", "get_task", "load", "load_task_recipe", "predict"),
        *("train",),
    ],
}
"""What programs may import besides `elmo` itself, and `elmo.integrations`, whose names are those of other libraries."""

OF_HUB = {re.split(r"[^\w.-]", line)[0] for line in requires("huggingface-hub") or ()}
EXTRAS = sorted({*extras.EXTRAS, "jinja2", "httpx"} - OF_HUB)
"""Packages that nobody needs for the core: those of extras, and two that only `elmo explore` and downloads import.
Some versions of huggingface-hub, which is no extra, need httpx."""
MODULES = sorted(path for path in SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    """Return the room of a module: its folder under `elmo`, or its own name if it is directly under it."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the full name of everything that a module imports from `elmo`, anywhere in the module."""
    package = ["elmo", *path.relative_to(SOURCE).parent.parts]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name.split(".")[0] == "elmo")
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*start, *filter(None, [node.module])])
            if base.split(".")[0] == "elmo":
                yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_rooms_import_only_from_rooms_below(path: Path) -> None:
    room = room_of(path)
    assert room in ALLOWED, f"{room} is not in the plan of the house"
    for line, name in imports_of(path):
        used = name.split(".")[1] if "." in name else "the package itself"
        assert used == room or used in ALLOWED[room], f"line {line}: {room} must not import {name}"


def test_integrations_do_not_import_each_other() -> None:
    for path in MODULES:
        if room_of(path) == "integrations":
            own = path.relative_to(SOURCE).parts[1].removesuffix(".py")  # a module, or a folder of modules
            others = [name for _, name in imports_of(path) if name.startswith("elmo.integrations.")]
            assert not [name for name in others if name.split(".")[2] != own], path.name


def test_tasks_do_not_import_each_other() -> None:
    """What several tasks need is in `tasks.common`, which imports none of them."""
    for path in MODULES:
        if room_of(path) == "tasks" and (own := path.relative_to(SOURCE).parts[1]) in (*TASKS, "common", "elmo"):
            used = {name.split(".")[2] for _, name in imports_of(path) if name.startswith("elmo.tasks.")}
            assert not used & (set(TASKS) - {own}), path


OLD_NAMES = {"Elmo", "Embedder", "ScalarMix"}
"""Classes that the older toolkits' programs import by name from our integrations, too."""

COMMON_NAMES = {
    "load": {"formats/recognize.py", "embed/embedder.py", "tasks/__init__.py"},
    "train": {"tasks/__init__.py", "cli/task.py"},
    "evaluate": {"tasks/__init__.py", "cli/task.py"},
    "predict": {"tasks/__init__.py", "tasks/prediction.py", "cli/task.py"},
}
"""The verbs of the public API, and where they may be defined: for a model, an embedder, a task, and its command."""


def test_a_name_means_one_thing() -> None:
    """No two modules define a public class or function of the same name."""
    found: dict[str, list[str]] = {}
    for path in MODULES:
        if room_of(path) == "_native":  # its Python side repeats the names of compiled functions
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(path.relative_to(SOURCE).as_posix())
    twice = {name: set(paths) for name, paths in found.items() if len(paths) > 1}
    assert all(any(path.startswith("integrations/") for path in twice.pop(name)) for name in OLD_NAMES)
    assert all(path.startswith("cli/") for path in twice.pop("command"))
    assert {name: paths for name, paths in twice.items() if not paths <= COMMON_NAMES.get(name, set())} == {}


def test_this_file_sees_imports() -> None:
    """Known imports are found. Otherwise the tests above would check nothing."""
    names = {name for _, name in imports_of(SOURCE / "nn" / "bilm.py")}
    assert {"elmo.config.BiLMConfig", "elmo.nn.lstm.LSTMStack"} <= names


PRIVATE_EXCEPTIONS = {
    "_exit": "os._exit ends a forked child, which must not do what the end of a test run does",
    "_replace": "a method of named tuples",
    "_asdict": "a method of named tuples",
    "_native": "the name of our package of C++ kernels",
    "_repr_html_": "what notebooks call to show an object",
    "_saved_indices": "torch's name: what the backward pass of indexing keeps",
    "_ElmoBiLm": "AllenNLP's name, which its users' programs have: a class",
    "_ElmoCharacterEncoder": "AllenNLP's name: a class",
    "_elmo": "AllenNLP's name: the Elmo of an ElmoTokenEmbedder",
    "_projection": "AllenNLP's name: the linear layer of an ElmoTokenEmbedder",
    "_elmo_lstm": "AllenNLP's name: the biLM of an Elmo, and the LSTMs of that biLM",
    "_states": "AllenNLP's name: the state that the LSTMs carry from batch to batch",
    "_token_embedder": "AllenNLP's name: the char encoder of a biLM",
    "_word_embedding": "AllenNLP's name: the vectors of a vocabulary's words",
    "_bos_embedding": "AllenNLP's name: the vector of the sentence's beginning",
    "_eos_embedding": "AllenNLP's name: the vector of the sentence's end",
}
"""Private names that tests may use, and why."""


def private_names(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines and private names of other objects that a module reads, imports or replaces.

    A name that a test's own class or module defines is left out: `self._count`, `cls._count`, `_count()`. Names that
    are given as text are included: `monkeypatch.setattr(module, "_count", 1)` and `getattr(module, "_count")`.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id in OWN):
            names = [node.attr]
        elif isinstance(node, ast.ImportFrom):
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [name for alias in node.names for name in alias.name.split(".")]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", None)) in BY_NAME:
            texts = [one.value for one in node.args[:2] if isinstance(one, ast.Constant)]
            names = [name for text in texts if isinstance(text, str) for name in text.split(".")]
        yield from ((node.lineno, name) for name in names if re.match("_[A-Za-z]", name))


OWN = ("self", "cls")
BY_NAME = ("getattr", "setattr", "delattr", "hasattr", "object")
"""Functions that take an attribute's name as text; `object` is that of `mock.patch.object`."""


def test_tests_use_only_what_is_public() -> None:
    """If tests used private names, a change within a module would change its tests."""
    found: list[str] = []
    used: set[str] = set()
    for path in sorted((ROOT / "tests").rglob("*.py")):
        place = path.relative_to(ROOT / "tests")
        names = list(private_names(path))
        used |= {name for _, name in names}
        found += [f"{place}, line {line}: {name}" for line, name in names if name not in PRIVATE_EXCEPTIONS]
    assert found == []
    assert set(PRIVATE_EXCEPTIONS) - used == set(), "exceptions that no test needs"


def test_private_names_are_found(tmp_path: Path) -> None:
    """The check above sees every way to reach a private name, and not the names of the test itself."""
    lines = (
        "from elmo.a import _b",
        "import elmo._c",
        "self._own, cls._own, _own, other.__doc__, self._own._d",
        "monkeypatch.setattr('elmo.e._f', 1)",
        "monkeypatch.setattr(g, '_h', '_own')",
        "setattr(i.j(), '_k', '_own')",
        "l[0]._m",
    )
    (tmp_path / "test.py").write_text("\n".join(lines), encoding="utf-8")
    assert sorted(name for _, name in private_names(tmp_path / "test.py")) == ["_b", "_c", "_d", "_f", "_h", "_k", "_m"]


def test_text_never_imports_torch() -> None:
    """A program that only prepares text does not wait for torch, and neither do the processes that it starts."""
    names = [f"elmo.text.{path.stem}" for path in (SOURCE / "text").glob("*.py") if path.stem != "__init__"]
    assert len(names) > 8
    code = (
        f"import importlib, sys\nfor name in {names}:\n    importlib.import_module(name)\nprint('torch' in sys.modules)"
    )
    assert run(code) == "False\n"


NEED_TORCH = {"elmo.formats.elmo", "elmo.embed.module_engine", "elmo.embed.torch_kernels", "elmo.embed.warm"}
"""Modules of `formats` and `embed` that are imported only where torch is needed."""


def test_formats_and_embed_import_torch_only_where_it_is_needed() -> None:
    names = [
        ".".join(["elmo", *path.relative_to(SOURCE).with_suffix("").parts]).removesuffix(".__init__")
        for path in MODULES
        if room_of(path) in ("formats", "embed") and path.stem != "parquet"
    ]
    assert set(names) > NEED_TORCH
    load = "\n".join(f"importlib.import_module({name!r})" for name in sorted(set(names) - NEED_TORCH))
    code = f"import importlib, sys\n{load}\nprint('torch' in sys.modules)"
    assert run(code) == "False\n"


def test_public_names_are_these() -> None:
    assert sorted(elmo.__all__) == PUBLIC
    assert all(getattr(elmo, name).__doc__ for name in PUBLIC)
    assert set(PUBLIC) <= set(dir(elmo))
    with pytest.raises(AttributeError, match="'elmo' has no attribute 'nothing'"):
        _ = elmo.nothing


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_public_modules_have_these_names(module: str) -> None:
    found = importlib.import_module(module)
    assert sorted(found.__all__) == sorted(PUBLIC_MODULES[module])
    assert all(getattr(found, name) is not None for name in found.__all__)
    # This comes after all imports, since only then can a module have taken the place of a function of its name.
    assert not any(inspect.ismodule(getattr(found, name)) for name in found.__all__)


def public_callables() -> Iterator[tuple[str, Any]]:
    """Yield the public functions, classes (but not exceptions) and their public methods, each with its full name."""
    for module in ("elmo", *PUBLIC_MODULES):
        for name in importlib.import_module(module).__all__:
            found: Any = getattr(importlib.import_module(module), name)
            if inspect.isfunction(found) or (inspect.isclass(found) and not issubclass(found, Exception)):
                yield f"{module}.{name}", found
            for method, value in vars(found).items() if inspect.isclass(found) else ():
                if inspect.isfunction(value) and not method.startswith("_"):
                    yield f"{module}.{name}.{method}", value


PLAIN_PARAMETERS = {"self", "args", "kwargs"}
"""Parameters that need no explanation."""


def test_public_docstrings_explain_all_arguments_and_what_is_returned() -> None:
    """An argument has an entry of its own, or is named in a sentence, in backticks."""
    found: list[str] = []
    for name, function in public_callables():
        text, signature = inspect.getdoc(function) or "", inspect.signature(function)
        names = sorted(signature.parameters.keys() - PLAIN_PARAMETERS)
        known = {one for one in names if re.search(rf"^ +\*{{0,2}}{one}:|`{one}\b", text, re.MULTILINE)}
        found += [f"{name}: {one}" for one in names if one not in known]
        returns = inspect.isfunction(function) and signature.return_annotation not in (None, "None")
        if returns and not re.search("^(Returns|Yields):|^(Return|Yield) | and (return|yield) ", text, re.MULTILINE):
            found.append(f"{name}: what is returned")
    assert found == []


DEEP = re.compile(r"^\s*(?:from|import) (elmo(?:\.\w+)*)", re.MULTILINE)


@pytest.mark.parametrize("page", sorted([*ROOT.glob("docs/**/*.md"), ROOT / "README.md"]), ids=lambda path: path.name)
def test_docs_import_only_what_is_public(page: Path) -> None:
    for module in DEEP.findall(page.read_text(encoding="utf-8")):
        assert module in ("elmo", *PUBLIC_MODULES) or module.startswith("elmo.integrations."), module


def run(code: str) -> str:
    """Return what a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("use", ["", "[getattr(elmo, name) for name in elmo.__all__]"], ids=["import", "all names"])
def test_import_takes_in_no_extra(use: str) -> None:
    """`pip install elmo-torch` must be enough. SciPy comes with it, but is slow to import, and few programs need it."""
    loaded = json.loads(run(f"import elmo, json, sys\n{use}\nprint(json.dumps(sorted(sys.modules)))"))
    assert "elmo" in loaded
    assert not {*EXTRAS, "scipy"} & set(loaded)


BLOCKED = f"""
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {EXTRAS}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Block())
"""


def test_the_drawing_has_every_room_on_its_line() -> None:
    """docs/architecture.md draws the rooms from top to bottom, with a line for each or two, and the base below."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    *lines, base = text.partition("```text\n")[2].partition("\n```")[0].splitlines()
    rooms = [re.split(r" {3,}", line)[0].split() for line in lines]
    assert set(base.split(", ")) == BASE
    assert {room for line in rooms for room in line} == ALLOWED.keys() - BASE - {"__main__", "__init__"}
    for number, line in enumerate(rooms):
        below = {room for other in rooms[number + 1 :] for room in other} | BASE
        assert all(ALLOWED[room] - {"__version__"} <= below for room in line), line


def test_core_rooms_import_without_any_extra() -> None:
    """Text, nn, formats and embed can be imported in a minimal install, and the command shows its help.

    Only Parquet needs an extra, in a module that is imported when somebody asks for it.
    """
    names = [
        ".".join(["elmo", *path.relative_to(SOURCE).with_suffix("").parts]).removesuffix(".__init__")
        for path in MODULES
        if room_of(path) in ("text", "nn", "formats", "embed") and path.stem != "parquet"
    ]
    run(f"{BLOCKED}\nimport importlib\nfor name in {names}:\n    importlib.import_module(name)")
    assert "Commands:" in run(
        f"{BLOCKED}\nimport sys\nsys.argv = ['elmo', '--help']\nimport elmo.__main__ as m\nm.main()"
    )


def test_import_takes_no_time() -> None:
    """What takes long to import is imported only when it is used."""
    slow = {"numpy", "h5py", "huggingface_hub", "tqdm", "yaml", "torch"}
    assert json.loads(run(f"import json, sys, elmo\nprint(json.dumps(sorted({slow} & set(sys.modules))))")) == []
