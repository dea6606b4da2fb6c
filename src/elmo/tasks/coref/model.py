"""The coreference model scores all spans as mentions, and pairs of the best ones as antecedents (Lee et al. 2017)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elmo.tasks.common.batches import lengths_of
from elmo.tasks.common.modules import CharacterEmbedding, WordEmbedding
from elmo.tasks.coref.data import Cluster, Clusters, Document, Mention, cut_document
from elmo.tasks.coref.layers import Antecedents, AntecedentScorer, CoupledBiLSTM, MentionScorer, SpanParts
from elmo.tasks.coref.recipe import CorefRecipe
from elmo.tasks.elmo.input import ElmoInput
from elmo.tasks.task import Sentence, TaskModel, Vocabularies

WORDS_AT_ONCE = 4096
"""The number of words whose spans are scored together in prediction. All words of a novel would take gigabytes."""


class ScoredSpans(NamedTuple):
    """All spans of some sentences.

    Attributes:
        candidates: The spans (S, 2), as indices into the words of these sentences.
        scores: Their scores (S,) as mentions.
        words: The words as the biLSTM reads them, from which span vectors are made.
        context: The same words in context.
        parts: The parts of the spans.
    """

    candidates: NDArray[np.int64]
    scores: Tensor
    words: Tensor
    context: Tensor
    parts: SpanParts


class Ranking(NamedTuple):
    """The mentions of a document that are left after pruning, in order, and the scores of their antecedents."""

    mentions: list[Mention]
    antecedents: Iterator[Antecedents]


class CorefModel(TaskModel[Document, Clusters]):
    """Word and character vectors with ELMo's, a biLSTM over sentences, and scores of spans and of pairs of spans.

    Documents are read one at a time. In prediction, the number of documents in a batch does not change the memory
    needed.

    Source: Lee et al. 2017, sec. 4 and 5; Peters et al. 2018, appendix A.6.
    """

    def __init__(self, recipe: CorefRecipe, vocabularies: Vocabularies, elmo: ElmoInput) -> None:
        super().__init__(elmo)
        self.recipe = recipe
        self._genres = {genre: number for number, genre in enumerate(vocabularies["genres"], 1)}
        self.words = WordEmbedding(vocabularies["words"], recipe.words)
        self.characters = CharacterEmbedding(recipe.characters)
        share, spans = recipe.dropout.hidden, recipe.spans
        self.word_dropout, self.dropout = nn.Dropout(recipe.dropout.words), nn.Dropout(share)
        width = self.words.width + self.characters.width + elmo.input_width
        self.encoder = CoupledBiLSTM(width, recipe.lstm, share)
        context_dim = self.encoder.width + elmo.output_width
        self.mentions = MentionScorer(
            width, context_dim, spans.max_width, features=recipe.features, hidden=recipe.hidden, dropout=share
        )
        self.antecedents = AntecedentScorer(
            self.mentions.width,
            num_genres=len(self._genres) + 1,
            max_antecedents=spans.max_antecedents,
            features=recipe.features,
            hidden=recipe.hidden,
            dropout=share,
        )

    def loss(self, examples: Sequence[Document]) -> Tensor:
        """Return the mean over documents of the negative log-likelihood of antecedents, summed over mentions, in nats.

        The likelihood of a mention is the probability that its antecedent is any earlier mention of its cluster, or
        none if there is no such mention.

        Source: Lee et al. 2017, sec. 6.
        """
        return torch.stack([self._loss(self.shorten(document)) for document in examples]).mean()

    def predict(self, examples: Sequence[Document]) -> list[Clusters]:
        """Return the clusters of each document.

        A mention is linked to its best antecedent, unless having none scores at least as high.
        """
        return [self._link(document) for document in examples]

    def _loss(self, document: Document) -> Tensor:
        mentions, antecedents = self.rank(document)
        cluster_of = {mention: number for number, cluster in enumerate(document.clusters) for mention in cluster}
        clusters = torch.tensor([cluster_of.get(mention, -1) for mention in mentions], device=self.device)
        losses: list[Tensor] = []
        for row, column, scores in antecedents:
            own, other = clusters[row : row + len(scores), None], clusters[column : column + scores.shape[1]]
            is_right = (own == other) & (own >= 0) & scores.isfinite()
            # If no antecedent is in the mention's cluster, or the mention is in none, having none is the right answer.
            is_right = torch.cat([~is_right.any(dim=1, keepdim=True), is_right], dim=1)
            scores = _with_none(scores)
            losses.append((scores.logsumexp(1) - scores.masked_fill(~is_right, -torch.inf).logsumexp(1)).sum())
        return torch.stack(losses).sum()

    def _link(self, document: Document) -> Clusters:
        if not document.sentences:
            return ()
        mentions, antecedents = self.rank(document)
        best: list[int] = []
        for _, column, scores in antecedents:
            places: list[int] = _with_none(scores).argmax(dim=1).tolist()
            best += [column + place - 1 if place else -1 for place in places]
        return link_mentions(mentions, best)

    def shorten(self, document: Document) -> Document:
        """Return at most as many consecutive sentences as the recipe trains on, at random."""
        number = self.recipe.max_sentences or len(document.sentences)
        if not self.training or number >= len(document.sentences):
            return document
        first = int(torch.randint(len(document.sentences) - number + 1, ()))
        return cut_document(document, first, first + number)

    def rank(self, document: Document) -> Ranking:
        """Score all spans of a document as mentions, and the pairs of those that are left after pruning.

        A long document is read piece by piece in prediction, twice: for its spans' scores, which decide together on
        what is left, and for the vectors of these. Its sentences know nothing of each other until pairs are scored.
        """
        pieces = self._cut(document.sentences)
        # A single piece is kept as a whole. With several pieces, that would take too much memory.
        kept = [self.score_spans(pieces[0])] if len(pieces) == 1 else None
        candidates, scores = _join(kept or map(self.score_spans, pieces))
        number = max(1, int(self.recipe.spans.per_word * document.starts[-1]))
        left = prune_spans(candidates, scores.detach().cpu().numpy(), number)
        mentions = [Mention(*span) for span in candidates[left].tolist()]
        vectors = self._vectors_of(kept or map(self.score_spans, pieces), left)
        speakers, genre = self.metadata(document, mentions)
        places = torch.tensor(left, device=self.device)
        return Ranking(mentions, self.antecedents(vectors, scores[places], speakers, genre))

    def _cut(self, sentences: Sequence[Sentence]) -> list[Sequence[Sentence]]:
        """Cut a document into pieces of whole sentences, about `WORDS_AT_ONCE` words each. In training there is one."""
        if self.training:
            return [sentences]
        pieces: list[list[Sentence]] = [[]]
        num_words = 0
        for sentence in sentences:
            if pieces[-1] and num_words + len(sentence) > WORDS_AT_ONCE:
                pieces.append([])
                num_words = 0
            pieces[-1].append(sentence)
            num_words += len(sentence)
        return [*pieces]

    def score_spans(self, sentences: Sequence[Sentence]) -> ScoredSpans:
        """Score all spans of some sentences as mentions."""
        lengths = lengths_of(sentences)
        words, from_elmo = self.read(sentences)
        context = torch.cat([self.dropout(self.encoder(words, lengths)), from_elmo], dim=1)
        candidates = enumerate_spans(lengths.tolist(), self.recipe.spans.max_width)
        starts, ends = torch.from_numpy(candidates).to(self.device).unbind(1)
        parts = self.mentions.split(context, starts, ends)
        return ScoredSpans(candidates, self.mentions(words, context, parts), words, context, parts)

    def _vectors_of(self, pieces: Iterable[ScoredSpans], left: Sequence[int]) -> Tensor:
        """Return the vectors of the spans of all pieces whose indices are in `left`."""
        vectors: list[Tensor] = []
        places, start = np.asarray(left), 0
        for spans in pieces:
            end = start + len(spans.candidates)
            own = torch.from_numpy(places[(places >= start) & (places < end)] - start).to(self.device, torch.long)
            vectors.append(self.mentions.vectors(spans.words, spans.context, spans.parts.select(own)))
            start = end
        return torch.cat(vectors)

    def read(self, sentences: Sequence[Sentence]) -> tuple[Tensor, Tensor]:
        """Return the vectors of all words (T, D) that the biLSTM reads, and those of ELMo (T, E) for its output.

        T is the number of words of all sentences together, in the order of the text.
        """
        text = [list(chain.from_iterable(sentences))]
        own = self.word_dropout(torch.cat([self.words(text), self.characters(text)], dim=2)).squeeze(0)
        elmo = self.elmo.of_tokens(sentences)
        return torch.cat([own, elmo.input], dim=1), elmo.output

    def metadata(self, document: Document, mentions: Sequence[Mention]) -> tuple[Tensor, Tensor]:
        """Return a number for the speaker of each mention's first word (M,), and the number of the document's genre."""
        names: dict[str, int] = {}
        said_by = document.speakers or ("",) * document.starts[-1]
        speakers = [names.setdefault(said_by[mention.start], len(names)) for mention in mentions]
        genre = self._genres.get(self.recipe.genre_of(document.name), 0)
        return torch.tensor(speakers, device=self.device), torch.tensor(genre, device=self.device)


def _join(pieces: Iterable[ScoredSpans]) -> tuple[NDArray[np.int64], Tensor]:
    """Return the spans (S, 2) of all pieces, as indices into the document, and their scores (S,)."""
    candidates: list[NDArray[np.int64]] = []
    scores: list[Tensor] = []
    start = 0
    for spans in pieces:
        candidates.append(spans.candidates + start)
        scores.append(spans.scores)
        start += len(spans.words)
    return np.concatenate(candidates), torch.cat(scores)


def _with_none(scores: Tensor) -> Tensor:
    """Prepend 0, the score of having no antecedent, to the scores (R, C) of antecedents: (R, C + 1)."""
    return torch.cat([scores.new_zeros(len(scores), 1), scores], dim=1)


def enumerate_spans(lengths: Sequence[int], max_width: int) -> NDArray[np.int64]:
    """Return all spans (N, 2) of up to `max_width` words in sentences of these `lengths`, by start and then by end."""
    ends = np.repeat(np.cumsum(lengths), lengths)
    starts = np.arange(len(ends))
    widths = np.minimum(ends - starts, max_width)
    first = np.repeat(starts, widths)
    offset = np.arange(len(first)) - np.repeat(np.cumsum(widths) - widths, widths)
    return np.stack([first, first + offset + 1], axis=1)


def prune_spans(spans: NDArray[np.int64], scores: NDArray[np.floating], num_spans: int) -> list[int]:
    """Return the indices of the `num_spans` best of `spans` (N, 2) that do not cross a better one, in ascending order.

    Two spans cross if they overlap and neither contains the other. Fewer are returned if there are no more.

    Source: Lee et al. 2017, sec. 5.
    """
    # The furthest end of the kept spans by their start, and the earliest start by their end. A span crosses one of them
    # if, at a place inside it, a kept span begins that ends after it, or a kept span ends that begins before it.
    furthest: dict[int, int] = {}
    earliest: dict[int, int] = {}
    kept: list[int] = []
    for place in np.argsort(-scores, kind="stable").tolist():
        if len(kept) == num_spans:
            break
        start, end = spans[place].tolist()
        inside = range(start + 1, end)
        if not any(furthest.get(word, 0) > end or earliest.get(word, start) < start for word in inside):
            kept.append(place)
            furthest[start] = max(end, furthest.get(start, 0))
            earliest[end] = min(start, earliest.get(end, start))
    return sorted(kept)


def link_mentions(mentions: Sequence[Mention], antecedents: Sequence[int]) -> tuple[Cluster, ...]:
    """Return the clusters of at least two mentions that are formed by links.

    `antecedents` has for each mention the index of an earlier one, or -1.
    """
    clusters: list[list[Mention]] = []
    numbers: list[int] = []  # of the cluster of each mention; an antecedent is earlier, so its cluster is known
    for mention, antecedent in zip(mentions, antecedents, strict=True):
        numbers.append(len(clusters) if antecedent < 0 else numbers[antecedent])
        if antecedent < 0:
            clusters.append([])
        clusters[numbers[-1]].append(mention)
    return tuple(tuple(cluster) for cluster in clusters if len(cluster) > 1)
