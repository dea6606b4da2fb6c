"""Semantic role labeling: a deep highway LSTM (He et al. 2017), with ELMo as in Peters et al. 2018, appendix A.5."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from elmo.errors import ElmoError
from elmo.tasks.common.columns import note_on_conll
from elmo.tasks.common.objects import as_tokens, begins_object, is_list_of, read_object
from elmo.tasks.common.static_vectors import FileWords, choose_words
from elmo.tasks.srl.frames import VERB, ArgumentCounts, Frame, arguments_of, format_frames, read_frames
from elmo.tasks.srl.model import Frames, SrlExample, SrlModel, SrlRecipe, count_predicates
from elmo.tasks.task import Scores, Sentence, Task, TaskModel, Vocabularies
from elmo.text.tokenizers import Tokenizer


class Srl(Task[SrlRecipe, SrlExample, Frames]):
    """Reads the columns of PropBank and CoNLL, scores as srl-eval.pl does, and writes tokens and columns."""

    name = "srl"
    metric = "f1"
    recipe = SrlRecipe
    model = SrlModel
    reading = ("format",)
    takes_sentence = True

    def read(self, path: str, recipe: SrlRecipe) -> list[SrlExample]:
        """Read the sentences of a file."""
        sentences = read_frames(path, recipe.format)
        return [SrlExample(tokens, frames, lemmas=lemmas) for tokens, frames, lemmas in sentences]

    def require_usable(self, recipe: SrlRecipe, has_elmo: bool) -> None:
        """Refuse a recipe without word vectors if there is no ELMo, either."""
        if recipe.words is None and not has_elmo:
            raise ElmoError("words: null leaves no vectors for tokens without ELMo at the input")

    def read_train(self, path: str, recipe: SrlRecipe) -> list[SrlExample]:
        """Read each predicate as an example of its own, with its sentence."""
        # The published size of batches is a number of predicates. Each example still says where the other predicates of
        # its sentence are: with `training.share` some are left out, and must not count as words that are no predicates.
        sentences = ((e.tokens, e.frames or ()) for e in self.read(path, recipe))
        return [
            SrlExample(tokens, (frame,), tuple(each.predicate for each in frames))
            for tokens, frames in sentences
            for frame in frames
        ]

    def note_on_gold(self, examples: Sequence[SrlExample], recipe: SrlRecipe) -> str | None:
        """Return a note on a set without a predicate."""
        return None if any(example.frames for example in examples) else "has no predicate in it"

    def note_on_plain(self, model: TaskModel[SrlExample, Frames], sample: str) -> str | None:
        """Return a note on columns, as in a file to train or evaluate with."""
        return note_on_conll(sample)

    def parse(self, line: str, tokenize: Tokenizer) -> SrlExample:
        """Make an example from a sentence, or from a JSON object with `tokens` and the indices of its `predicates`."""
        return _marked(line) if begins_object(line) else SrlExample(tuple(tokenize(line)))

    def sentences(self, example: SrlExample) -> Sequence[Sentence]:
        """Return the one sentence of the example."""
        return [example.tokens]

    def vocabularies(
        self, train: Sequence[SrlExample], recipe: SrlRecipe, file_words: FileWords | None = None
    ) -> Vocabularies:
        """Return `roles`, `predicates` (how often each form is one) and `words` with a vector of their own."""
        # A sentence is in as many examples as it has predicates, but is counted once.
        places: dict[tuple[str, ...], set[int]] = defaultdict(set)
        for example in train:
            places[example.tokens].update(example.places or (frame.predicate for frame in example.frames or ()))
        return {
            "roles": sorted({span.type for e in train for frame in e.frames or () for span in frame.spans}),
            "predicates": count_predicates(places.items()),
            "words": choose_words(places, recipe.words, file_words) if recipe.words else [],
        }

    def score(self, examples: Sequence[SrlExample], predictions: Sequence[Frames]) -> Scores:
        """Return precision, recall and F1 of arguments in percent, and "perfect".

        The latter is the percentage of predicates without a mistake. The same is given for verbs alone ("verbs_f1"),
        which are predicates tagged VB..., if parts of speech are known. Each role has its own precision, recall and F1
        ("f1/ARG0").
        """
        all_counts, verb_counts = ArgumentCounts(), ArgumentCounts()
        for example, predicted in zip(examples, predictions, strict=True):
            for gold, found in zip(example.frames or (), predicted, strict=True):
                all_counts.add(gold.spans, found.spans)
                if gold.tag.startswith("VB"):
                    verb_counts.add(gold.spans, found.spans)
        verbs = {f"verbs_{name}": value for name, value in verb_counts.scores().items()}
        return all_counts.scores() | (verbs if verb_counts.num_frames else {}) | all_counts.role_scores()

    def as_text(self, example: SrlExample, prediction: Frames) -> str:
        """Write the format conll2005: token, lemma or "-", and a column for each predicate; then a blank line.

        The predicates of plain text have no lemmas. The words themselves are written in place of these.
        """
        return format_frames(example.tokens, prediction, example.lemmas)

    def as_json(self, example: SrlExample, prediction: Frames) -> dict[str, object]:
        """Return `tokens`, and `frames` with `predicate` (its index), `text` (its token) and `arguments`.

        An argument has a `role`, and `pieces` with `start`, `end` (one past the last token) and `text`.
        """
        return {
            "tokens": list(example.tokens),
            "frames": [
                {
                    "predicate": frame.predicate,
                    "text": example.tokens[frame.predicate],
                    "arguments": [
                        {"role": a.role, "pieces": [_piece(example.tokens, *ends) for ends in a.pieces]}
                        for a in arguments_of(frame.spans)
                        if a.role != VERB
                    ],
                }
                for frame in prediction
            ],
        }


def _piece(tokens: Sentence, start: int, end: int) -> dict[str, object]:
    return {"start": start, "end": end, "text": " ".join(tokens[start:end])}


def _marked(line: str) -> SrlExample:
    """Make an example from a sentence with given predicates."""
    values = read_object(line)
    tokens, places = values.get("tokens"), values.get("predicates")
    if not is_list_of(tokens, str) or not is_list_of(places, int):
        raise ElmoError('expected {"tokens": [texts], "predicates": [indices of tokens, counted from 0]}')
    tokens = as_tokens(tokens, "tokens")
    for place in places:
        if not 0 <= place < len(tokens):
            raise ElmoError(f"predicates: no token has the index {place}; there are {len(tokens)}, counted from 0")
    return SrlExample(tokens, tuple(map(Frame, sorted(set(places)))))


TASK = Srl()
