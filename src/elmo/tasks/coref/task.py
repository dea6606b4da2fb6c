"""Coreference: end-to-end over spans (Lee et al. 2017), with ELMo as in Peters et al. 2018, sec. 4 and appendix A.6."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from elmo.tasks.common.columns import note_on_conll
from elmo.tasks.common.static_vectors import FileWords, choose_words
from elmo.tasks.coref.data import Clusters, Document, format_document, read_documents
from elmo.tasks.coref.metric import score_clusters
from elmo.tasks.coref.model import CorefModel
from elmo.tasks.coref.recipe import CorefRecipe
from elmo.tasks.task import Scores, Sentence, Task, TaskModel, Vocabularies
from elmo.text.columns import paragraphs
from elmo.text.tokenizers import Tokenizer


class Coref(Task[CorefRecipe, Document, Clusters]):
    """Reads and writes CoNLL-2012, and scores as its official scorer does. An example is a document."""

    name = "coref"
    metric = "f1"
    recipe = CorefRecipe
    model = CorefModel
    reading = ("singletons",)

    def read(self, path: str, recipe: CorefRecipe) -> list[Document]:
        """Read the documents of a CoNLL file."""
        least = 1 if recipe.singletons else 2
        return [
            replace(document, clusters=tuple(cluster for cluster in document.clusters if len(cluster) >= least))
            for document in read_documents(path)
        ]

    def pieces(self, lines: Iterable[str]) -> Iterator[tuple[int, str]]:
        """Split a text into documents, which are separated by blank lines. All other lines are sentences."""
        return ((group[0][0], "\n".join(line for _, line in group)) for group in paragraphs(lines))

    def note_on_plain(self, model: TaskModel[Document, Clusters], sample: str) -> str | None:
        """Return a note on columns, as in a file to train or evaluate with."""
        return note_on_conll(sample)

    def parse(self, line: str, tokenize: Tokenizer) -> Document:
        """Make an example from a document with a sentence on each line."""
        sentences = (tuple(tokenize(sentence)) for sentence in line.split("\n"))
        return Document(tuple(filter(None, sentences)))

    def named(self, example: Document, source: str, number: int) -> Document:
        """Name a document after the file that it comes from, and make its number the number of its part."""
        return replace(example, name="_".join(source.split()) or example.name, part=number)

    def sentences(self, example: Document) -> Sequence[Sentence]:
        """Return all sentences of the document."""
        return example.sentences

    def note_on_gold(self, examples: Sequence[Document], recipe: CorefRecipe) -> str | None:
        """Return a note on a set without two mentions of the same thing."""
        has_gold = any(len(cluster) > 1 for document in examples for cluster in document.clusters)
        return None if has_gold else "has no two mentions of the same thing; is its last column coreference?"

    def vocabularies(
        self, train: Sequence[Document], recipe: CorefRecipe, file_words: FileWords | None = None
    ) -> Vocabularies:
        """Return the `words` with a vector of their own, those of files first, and the `genres`."""
        words = choose_words(self.all_sentences(train), recipe.words, file_words)
        return {"words": words, "genres": sorted({recipe.genre_of(document.name) for document in train} - {""})}

    def score(self, examples: Sequence[Document], predictions: Sequence[Clusters]) -> Scores:
        """Return the mean F1 of MUC, B³ and CEAF-e in percent, and what it is made of (see `score_clusters`)."""
        return score_clusters([example.clusters for example in examples], predictions)

    def as_text(self, example: Document, prediction: Clusters) -> str:
        """Write the document in CoNLL columns, and a line for each cluster after its end.

        Readers of the format skip these lines.
        """
        words = list(chain.from_iterable(example.sentences))
        texts = ([" ".join(words[start:end]) for start, end in cluster] for cluster in prediction)
        lines = (f"# {number}: {' | '.join(mentions)}\n" for number, mentions in enumerate(texts))
        return format_document(example, prediction) + "".join(lines)

    def as_json(self, example: Document, prediction: Clusters) -> dict[str, object]:
        """Return `name`, `part`, `sentences`, and `clusters` of mentions.

        A mention has `start`, `end` (one past the last word, counted in the document) and `text`.
        """
        words = list(chain.from_iterable(example.sentences))
        clusters = [
            [{"start": start, "end": end, "text": " ".join(words[start:end])} for start, end in cluster]
            for cluster in prediction
        ]
        sentences = [list(sentence) for sentence in example.sentences]
        return {"name": example.name, "part": example.part, "sentences": sentences, "clusters": clusters}


TASK = Coref()
