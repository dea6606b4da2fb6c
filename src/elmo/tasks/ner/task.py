"""Named entity recognition: a biLSTM-CRF over words and their characters (Peters et al. 2018, sec. 4, appendix A.7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor, nn

from elmo.errors import ElmoError
from elmo.schema import require_share
from elmo.tasks.common.batches import lengths_of, pad_ids, padding_mask
from elmo.tasks.common.columns import ColumnSentence, read_columns
from elmo.tasks.common.crf import CRF
from elmo.tasks.common.modules import BiLSTMs, CharacterEmbedding, WordEmbedding
from elmo.tasks.common.spans import OUTSIDE, Span, allowed_sequences, score_spans, spans_of, tags_for, tags_of
from elmo.tasks.common.static_vectors import FileWords, choose_words
from elmo.tasks.elmo.input import ElmoInput
from elmo.tasks.ner.data import format_conll, read_conll, require_tag
from elmo.tasks.recipe import CharactersConfig, TaskRecipe, WordsConfig, require_layers
from elmo.tasks.task import Scores, Sentence, Task, TaskModel, Vocabularies
from elmo.text.conllu import EMPTY, is_conllu
from elmo.text.tokenizers import Tokenizer

Spans = tuple[Span, ...]


@dataclass(frozen=True, kw_only=True)
class NerRecipe(TaskRecipe):
    """The recipe of named entity recognition.

    Attributes:
        token_column: The column of the token in files, counted from 0, or from the end if negative. The last column is
            the tag.
        misc_key: The key of the tag in the last column of CoNLL-U (MISC), as in "NER=B-PER". Words without it are
            outside of entities.
        scheme: The scheme of the tags that the model predicts, BIO or BIOUL.
        words: The word vectors.
        characters: The convolution over a word's characters.
        lstm: The hidden units of each biLSTM, per direction.
        dropout: Variational dropout on the input of each biLSTM, and plain dropout on the output of the last one.
    """

    token_column: int = 0
    misc_key: str = "NER"
    scheme: str = "BIOUL"
    words: WordsConfig
    characters: CharactersConfig
    lstm: tuple[int, ...] = (200, 100)
    dropout: float = 0.5

    def __post_init__(self) -> None:
        tags_for([], self.scheme)  # raises ElmoError for an unknown scheme
        require_share("dropout", self.dropout)
        require_layers("lstm", self.lstm)


@dataclass(frozen=True)
class NerExample:
    """A sentence and the entities in it, and for CoNLL-U its lines, and the key of the tags in them."""

    tokens: tuple[str, ...]
    spans: Spans = ()
    lines: ColumnSentence | None = None
    misc_key: str = ""


class NerModel(TaskModel[NerExample, Spans]):
    """Word and character vectors, concatenated with ELMo's; a stack of biLSTMs; and a CRF over tags.

    Source: Peters et al. 2018, sec. 4 and appendix A.7.
    """

    def __init__(self, recipe: NerRecipe, vocabularies: Vocabularies, elmo: ElmoInput) -> None:
        super().__init__(elmo)
        self.scheme, self.tags = recipe.scheme, tags_for(vocabularies["types"], recipe.scheme)
        self._tag_ids = {tag: id for id, tag in enumerate(self.tags)}
        self.words = WordEmbedding(vocabularies["words"], recipe.words)
        self.characters = CharacterEmbedding(recipe.characters)
        width = self.words.width + self.characters.width + elmo.input_width
        self.rnn = BiLSTMs(width, recipe.lstm, recipe.dropout)
        self.dropout = nn.Dropout(recipe.dropout)
        self.emit = nn.Linear(self.rnn.width + elmo.output_width, len(self.tags))
        self.crf = CRF(allowed_sequences(self.tags))

    def loss(self, examples: Sequence[NerExample]) -> Tensor:
        """Return the mean negative log-likelihood of the sentences' tags, in nats per sentence."""
        emissions, mask = self._emissions(examples)
        # Examples hold spans, whatever the scheme of their file was; the tags are those of the model's own scheme.
        rows = [tags_of(example.spans, len(example.tokens), self.scheme) for example in examples]
        gold = pad_ids([[self._tag_ids[tag] for tag in row] for row in rows], self.device)
        return -self.crf(emissions, gold, mask).mean()

    def predict(self, examples: Sequence[NerExample]) -> list[Spans]:
        """Return the spans of each sentence's best tags."""
        rows = self.crf.decode(*self._emissions(examples))
        return [tuple(spans_of([self.tags[id] for id in row])) for row in rows]

    def _emissions(self, examples: Sequence[NerExample]) -> tuple[Tensor, Tensor]:
        """Return the score of each tag at each token (B, T, K), and the mask (B, T)."""
        sentences = [example.tokens for example in examples]
        lengths = lengths_of(sentences)
        elmo = self.elmo(sentences)
        inputs = torch.cat([self.words(sentences), self.characters(sentences), elmo.input], dim=2)
        outputs = self.dropout(torch.cat([self.rnn(inputs, lengths), elmo.output], dim=2))
        return self.emit(outputs), padding_mask(lengths, self.device)


class Ner(Task[NerRecipe, NerExample, Spans]):
    """Reads CoNLL columns or CoNLL-U in any tagging scheme, scores as conlleval does, and writes BIO."""

    name = "ner"
    metric = "f1"
    recipe = NerRecipe
    model = NerModel
    reading = ("token_column", "misc_key")
    takes_sentence = True
    layouts = ("conllu",)

    def read(self, path: str, recipe: NerRecipe) -> list[NerExample]:
        """Read the sentences of a CoNLL file, or of one of CoNLL-U, which is recognized by its name."""
        if is_conllu(path):
            return _read_conllu(path, recipe.misc_key)
        sentences = read_conll(path, recipe.token_column)
        return [NerExample(tuple(sentence.tokens), tuple(spans_of(sentence.tags))) for sentence in sentences]

    def read_layout(self, path: str, layout: str, recipe: NerRecipe, encoding: str) -> Iterator[NerExample]:
        """Yield the sentences of a file of CoNLL-U without their entities."""
        for sentence in read_columns(path, None, encoding):
            yield NerExample(sentence.tokens, lines=sentence, misc_key=recipe.misc_key)

    def parse(self, line: str, tokenize: Tokenizer) -> NerExample:
        """Make an example from a sentence."""
        return NerExample(tuple(tokenize(line)))

    def sentences(self, example: NerExample) -> Sequence[Sentence]:
        """Return the one sentence of the example."""
        return [example.tokens]

    def note_on_gold(self, examples: Sequence[NerExample], recipe: NerRecipe) -> str | None:
        """Return a note on a set without an entity."""
        has_gold = any(example.spans for example in examples)
        return None if has_gold else "has no entity in it; is its last column the tag?"

    def vocabularies(
        self, train: Sequence[NerExample], recipe: NerRecipe, file_words: FileWords | None = None
    ) -> Vocabularies:
        """Return the `types` of entities, and the `words` with a vector of their own, those of files first."""
        # Sorted, because the order of a set of strings differs from process to process. With it the order of the tags
        # would differ, and one seed would give different models.
        types = sorted({span.type for example in train for span in example.spans})
        return {"types": types, "words": choose_words(self.all_sentences(train), recipe.words, file_words)}

    def score(self, examples: Sequence[NerExample], predictions: Sequence[Spans]) -> Scores:
        """Return precision, recall and F1 of spans in percent, and the F1 of each type."""
        return score_spans([example.spans for example in examples], predictions)

    def as_text(self, example: NerExample, prediction: Spans) -> str:
        """Write a token and its BIO tag on each line, and a blank line at the end.

        Of CoNLL-U, write the lines that were read, with the tags in MISC.
        """
        tags = tags_of(prediction, len(example.tokens), "BIO")
        if example.lines is not None:
            return example.lines.with_columns({example.misc_key: tags})
        return format_conll(example.tokens, tags) + "\n"

    def as_json(self, example: NerExample, prediction: Spans) -> dict[str, object]:
        """Return `tokens`, and `entities` with `start`, `end` (one past the last token), `type` and `text`."""
        entities = [span._asdict() | {"text": " ".join(example.tokens[span.start : span.end])} for span in prediction]
        return {"tokens": list(example.tokens), "entities": entities}


def _read_conllu(path: str, key: str) -> list[NerExample]:
    """Read the sentences of CoNLL-U whose MISC has the tags, and require that some word has one."""
    examples: list[NerExample] = []
    has_tags = False
    for sentence in read_columns(path, None):
        tags = sentence.attribute(key)
        for word, tag in enumerate(tags, 1):
            if tag is not None:
                require_tag(tag, f"{path}, sentence {len(examples) + 1}, word {word}")
                has_tags = True
        spans = tuple(spans_of([tag or OUTSIDE for tag in tags]))
        examples.append(NerExample(sentence.tokens, spans, sentence, key))
    if not has_tags:
        columns = (example.lines.column("misc") for example in examples if example.lines)
        keys = {item.partition("=")[0] for misc in chain.from_iterable(columns) for item in misc.split("|")} - {EMPTY}
        raise ElmoError(
            f"{path}: no word has a tag {key}=… in its last column, MISC; set the recipe's misc_key to the key of the "
            f"tags (misc_key=…). The keys in this file are: {', '.join(sorted(keys)) or 'none'}"
        )
    return examples


TASK = Ner()
