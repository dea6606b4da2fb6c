"""An error about a missing package names the extra that installs it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from elmo.errors import ElmoError
from elmo.extras import EXTRAS, import_extra

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def test_each_package_is_in_the_extra_that_is_named() -> None:
    extras = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for package, extra in EXTRAS.items():  # names on PyPI have hyphens, and sometimes a suffix, as in faiss-cpu
        name = {"sklearn": "scikit_learn"}.get(package, package)
        assert any(re.match(rf"{name}\b(?!_)", line.replace("-", "_").replace("_cpu", "")) for line in extras[extra])


def test_a_missing_package_is_reported_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ElmoError, match=re.escape("an index needs faiss, which is not installed: pip install 'elmo-t")):
        import_extra("faiss", "an index")


def test_a_package_that_is_broken_is_not_called_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "faiss.py").write_text("import no_such_module\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "faiss", raising=False)
    with pytest.raises(ElmoError, match="an index needs faiss, which can't be imported: No module named 'no_such_mod"):
        import_extra("faiss", "an index")


def test_another_version_of_a_package_is_not_called_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentence Transformers 5, which many have, lacks the module that ours is based on."""
    for name in [name for name in sys.modules if name.startswith("sentence_transformers.")]:
        monkeypatch.delitem(sys.modules, name)
    package = ModuleType("sentence_transformers")
    package.__path__ = []
    monkeypatch.setitem(sys.modules, "sentence_transformers", package)
    says = (
        "ElmoTokens needs another version of sentence_transformers, since the one that is installed has no module "
        "sentence_transformers.base: pip install 'elmo-torch[sentence-transformers]'"
    )
    with pytest.raises(ElmoError, match=re.escape(says)):
        import_extra("sentence_transformers.base.modules", "ElmoTokens")


@pytest.mark.parametrize("package", ["flair", "ray", "sentence_transformers", "sklearn", "spacy"])
def test_an_integration_names_the_extra_that_it_lacks(package: str) -> None:
    hidden = f"sys.modules.update({{'{package}': None, 'pyarrow': None}})"  # without pyarrow, as if there are no extras
    code = f"import sys; {hidden}; import elmo.integrations.{package}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    says = f"needs {package}, which is not installed: pip install 'elmo-torch[{EXTRAS[package]}]'"
    *_, last = run.stderr.splitlines()
    assert last.startswith("elmo.errors.ElmoError: ")
    assert last.endswith(says)
