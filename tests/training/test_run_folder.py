"""What is left of an attempt that trained nothing is removed from a run folder."""

from __future__ import annotations

from pathlib import Path

from elmo.training.run_folder import AttemptFiles


def test_an_attempt_that_trained_nothing_is_forgotten(tmp_path: Path) -> None:
    """TensorBoard would mix its curves with those of the next run."""
    (tmp_path / "tensorboard").mkdir()
    for name in ("tensorboard/events", "metrics.csv", "recipe.yaml"):
        (tmp_path / name).touch()
    AttemptFiles("a run folder", ("recipe.yaml",), forgotten=("recipe.yaml",)).forget(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_is_forgotten_may_be_a_folder_or_missing(tmp_path: Path) -> None:
    """A copied biLM is a folder, and an attempt that was killed early has none yet."""
    (tmp_path / "bilm").mkdir()
    (tmp_path / "bilm" / "config.json").touch()
    files = AttemptFiles("a run folder", ("config.json",), forgotten=("bilm", "start.json"))
    for _ in range(2):
        files.forget(tmp_path)
        assert list(tmp_path.iterdir()) == []
