"""Question answering: BiDAF with self-attention (Clark and Gardner 2017), as in Peters et al. 2018, appendix A.4."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from elmo.errors import ElmoError
from elmo.tasks.common.static_vectors import FileWords, choose_words
from elmo.tasks.squad.data import CONTEXT, QUESTION, SquadExample, parse_question, read_squad, split_paths
from elmo.tasks.squad.metric import score_answers
from elmo.tasks.squad.model import SquadModel, SquadPrediction, SquadRecipe, best_prediction
from elmo.tasks.task import Scores, Sentence, Task, Vocabularies
from elmo.text.tokenizers import Tokenizer, get_tokenizer


class Squad(Task[SquadRecipe, SquadExample, SquadPrediction]):
    """Reads the JSON of SQuAD v1.1 and questions in plain text; scores F1 and exact match."""

    name = "squad"
    metric = "f1"
    recipe = SquadRecipe
    model = SquadModel
    reading = ("tokenizer",)
    shared = ("longest_answer",)

    def files(self, path: str) -> list[str]:
        """Return the files of a path, which are separated by commas."""
        return split_paths(path)

    def read(self, path: str, recipe: SquadRecipe) -> list[SquadExample]:
        """Read the questions of JSON files, or of some of their articles."""
        return read_squad(path, get_tokenizer(recipe.tokenizer))

    def tokenizer(self, recipe: SquadRecipe) -> str:
        """Return the recipe's tokenizer."""
        return recipe.tokenizer

    def parse(self, line: str, tokenize: Tokenizer) -> SquadExample:
        """Make an example from a paragraph and a question with a tab between them, or from a JSON object."""
        return parse_question(line, tokenize)

    def sentences(self, example: SquadExample) -> Sequence[Sentence]:
        """Return the paragraph, which ELMo reads as one sentence as in the published code, and the question."""
        return [example.context.tokens, example.question]

    def texts(self, example: SquadExample) -> Mapping[str, Sequence[Sentence]]:
        """Return the paragraph and the question, as two kinds of text.

        The published biLM was fine-tuned on paragraphs alone, but reads questions too.
        """
        return {"contexts": [example.context.tokens], "questions": [example.question]}

    def order(self, example: SquadExample) -> tuple[int, tuple[str, ...]]:
        """Put the longest paragraphs first, and the questions about the same paragraph next to each other."""
        return -len(example.context.tokens), example.context.tokens

    def vocabularies(
        self, train: Sequence[SquadExample], recipe: SquadRecipe, file_words: FileWords | None = None
    ) -> Vocabularies:
        """Return the `words` with a vector of their own, those of files first. A paragraph is counted once."""
        paragraphs = dict.fromkeys(example.context.tokens for example in train)
        questions = (example.question for example in train)
        return {"words": choose_words([*paragraphs, *questions], recipe.words, file_words)}

    def combine(self, recipe: SquadRecipe, predictions: Sequence[SquadPrediction]) -> SquadPrediction:
        """Return the best span by the mean probabilities of starts and of ends."""
        starts, ends = (np.mean([getattr(p, side) for p in predictions], axis=0) for side in ("starts", "ends"))
        return best_prediction(starts, ends, recipe.longest_answer)

    def score(self, examples: Sequence[SquadExample], predictions: Sequence[SquadPrediction]) -> Scores:
        """Return "f1" and "exact_match" of the answers' texts, in percent."""
        answers = [_answer(example, found) for example, found in zip(examples, predictions, strict=True)]
        return score_answers([example.answers for example in examples], answers)

    def as_text(self, example: SquadExample, prediction: SquadPrediction) -> str:
        """Write a line with the answer, a tab and its score. Line ends and tabs in an answer become blanks."""
        return f"{' '.join(_answer(example, prediction).split())}\t{prediction.score:.3f}\n"

    def note_on_file(self, examples: Sequence[SquadExample]) -> str | None:
        """Return a note on a set with several questions of one id."""
        repeated = next((name for name, number in Counter(e.id for e in examples).items() if number > 1), None)
        if repeated is None:
            return None
        return f"has several questions with the id {repeated!r}, and a file of answers has one for each id"

    def as_file(self, examples: Sequence[SquadExample], predictions: Sequence[SquadPrediction]) -> str:
        """Write a JSON object with the answer to each question's id, as the official script reads it.

        Raises:
            ElmoError: If two questions have the same id.
        """
        if note := self.note_on_file(examples):
            raise ElmoError(note)
        answers = {e.id: _answer(e, found) for e, found in zip(examples, predictions, strict=True)}
        return json.dumps(answers, ensure_ascii=False, indent=1) + "\n"

    def as_json(self, example: SquadExample, prediction: SquadPrediction) -> dict[str, object]:
        """Return `answer`, `score`, `start` and `end` (in characters of the paragraph), `context` and `question`."""
        start, end = example.context.characters(prediction.bounds)
        texts = {CONTEXT: example.context.text, QUESTION: " ".join(example.question)}
        return {"answer": _answer(example, prediction), "score": prediction.score, "start": start, "end": end, **texts}


def _answer(example: SquadExample, prediction: SquadPrediction) -> str:
    """Return the characters of the paragraph from the answer's first token to its last one."""
    start, end = example.context.characters(prediction.bounds)
    return example.context.text[start:end]


TASK = Squad()
