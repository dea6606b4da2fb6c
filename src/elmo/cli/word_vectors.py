"""What `elmo static` and `elmo types` share: the corpus that they read, and tests of the vectors that they write."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elmo.cli.shared import add_options, is_given
from elmo.config import SPECIAL_WORDS
from elmo.errors import ElmoError
from elmo.wording import counted

if TYPE_CHECKING:
    from elmo.text.corpus import Corpus


def names_corpus(source: str) -> bool:
    """Return whether a source is a folder, which has to be a corpus, and not text."""
    from elmo.targets import with_home

    return Path(with_home(source)).is_dir()


@contextmanager
def opened_corpus(source: str, output: Path, reading: Mapping[str, Any]) -> Generator[Corpus]:
    """Open a corpus folder, or prepare a text as one in a temporary folder next to `output`, which is locked meanwhile.

    Raises:
        ElmoError: If options say how to read a corpus, which has been read already, or if another process is writing
            `output`.
    """
    from tempfile import TemporaryDirectory

    from elmo.targets import unfinished_folder, work_folder_of
    from elmo.text.corpus import Corpus
    from elmo.text.prepare import prepare

    is_corpus = names_corpus(source)
    if is_corpus and (told := [name for name in reading if is_given(name)]):
        raise ElmoError(f"{source}: is a corpus, whose text is already tokenized; leave out --{told[0]}")
    unfinished = work_folder_of(output.absolute())
    # After an error, its traceback keeps the corpus mapped, and Windows can't remove it: the error must still be seen.
    with unfinished_folder(unfinished, output), TemporaryDirectory(dir=unfinished, ignore_cleanup_errors=True) as work:
        folder = Path(source)
        if not is_corpus:
            # min_count=1 keeps all words of the text: which of them get vectors is decided later, by --min-count.
            folder = prepare([source], Path(work) / "corpus", min_count=1, **reading).folder
        corpus = Corpus.open(folder)
        yield corpus
        del corpus  # Windows cannot delete files that are still mapped into memory


def num_left_out(num_words: int, corpus: Corpus) -> int:
    """Return how many words of a corpus are too rare to be among those with a vector."""
    return corpus.num_types - len(SPECIAL_WORDS) - num_words


def words_left_out(num_words: int, min_count: int) -> str:
    """Return the end of a result that says how many words were left out as too rare, or "" if none were."""
    return f"; {counted(num_words, 'word')} with fewer than {min_count} uses left out" if num_words > 0 else ""


word_test_options = add_options(
    click.option(
        "--similarity",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Afterwards, compare cosines with people's judgments. A line of FILE has two words and a number, with "
        "tabs between them. May be repeated. Needs gensim.",
    ),
    click.option(
        "--analogies",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Afterwards, solve analogies. A line of FILE has four words, and each section begins with a line "
        "': NAME'. May be repeated. Needs gensim.",
    ),
)
"""Add the options `--similarity` and `--analogies`, the files of `run_word_tests`."""


def require_word_tests(similarity: tuple[Path, ...], analogies: tuple[Path, ...]) -> None:
    """Refuse files that are not there, and a missing gensim, before anything is computed."""
    from elmo.extras import import_extra
    from elmo.formats.files import require_existing_file

    if similarity or analogies:
        import_extra("gensim", "a test of word vectors")
    for path in (*similarity, *analogies):
        require_existing_file(path)


def run_word_tests(
    path: Path, similarity: tuple[Path, ...], analogies: tuple[Path, ...], as_json: bool
) -> dict[str, Any]:
    """Test the vectors of a file, print a line for each test unless the result is JSON, and return the figures."""
    from elmo.analysis.word_tests import evaluate_analogies, evaluate_similarity, load_word_vectors

    if not similarity and not analogies:
        return {}
    vectors = load_word_vectors(path)
    lines: list[str] = []
    figures: dict[str, Any] = {"similarity": {}, "analogies": {}}
    try:
        for file in similarity:
            pairs = evaluate_similarity(vectors, file)
            figures["similarity"][str(file)] = pairs._asdict()
            lines.append(
                f"{file}: Spearman {pairs.spearman:.3f} ({pairs.share_unknown:.1%} of the pairs left out: no vector)"
            )
        for file in analogies:
            solved = evaluate_analogies(vectors, file)
            figures["analogies"][str(file)] = solved._asdict()
            lines.append(f"{file}: {solved.accuracy:.1%} of {solved.num_tested:,} analogies solved")
    except ElmoError as error:
        raise ElmoError(f"{error} (the vectors are in {path})") from None
    if not as_json:
        click.echo("\n".join(lines))
    return figures
