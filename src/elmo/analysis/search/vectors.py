"""Millions of vectors on disk, searched by faiss: an inverted file of float16 or product-quantized vectors.

The vectors are grouped around centroids, and a search only looks into the groups nearest to the query (Jégou et al.
2011, sec. 4). Product quantization rounds each piece of `PQ_WIDTH` numbers to one of 256 codes (sec. 2). All vectors
have length 1, so that the inner product is the cosine.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from elmo.analysis.origins import AGAIN
from elmo.analysis.vectors import Vectors
from elmo.errors import ElmoError
from elmo.extras import import_extra
from elmo.formats.files import require_file

Kind = Literal["float16", "pq"]
KINDS: tuple[Kind, ...] = get_args(Kind)

PQ_WIDTH = 4
"""How many numbers of a vector one byte stands for, which makes D / 4 bytes per token."""

PQ_MIN_TOKENS = 256
"""Fewest tokens from which the 256 codes of a byte can be learned."""

PER_LIST = 39
"""Vectors in the sample for each centroid: the minimum that faiss recommends."""

MAX_SAMPLE = 1 << 17
"""Most vectors from which centroids are learned."""

PROBES = 48
"""Number of groups that a search over all vectors looks into."""

_LIMITS = ("deserialization_vector_byte_limit", "deserialization_loop_limit")
"""Settings of faiss: the most bytes of an array, and the most repetitions, that a file may ask for."""

_LARGEST_SHARE = 128
"""The largest array that is made for a file, in multiples of its size. For product quantization, faiss checks that
there is room for a table of 256 numbers for each byte of a centroid's code, and a centroid has 4 bytes per dimension:
with `PQ_WIDTH`, the table is 64 times as large as the centroids in the file."""


_IN_SOURCE = re.compile(r"^(Error in .*? at \S+:\d+: )?(Error: )?('.*?' failed: )?")
"""What messages of faiss begin with, as in "Error in void f(int) at /faiss/io.cpp:69: Error: 'f' failed: …"."""


def num_lists(num_tokens: int) -> int:
    """Return the number of groups: twice the square root of the number of vectors, as far as the sample allows."""
    return max(1, min(int(2 * num_tokens**0.5), min(num_tokens, MAX_SAMPLE) // PER_LIST))


def sample_size(num_tokens: int) -> int:
    """Return the number of vectors from which the groups and codes are learned."""
    return min(num_tokens, max(PER_LIST * num_lists(num_tokens), 1 << 14))


def token_bytes(kind: Kind, width: int) -> int:
    """Return the number of bytes that one vector takes."""
    if kind == "float16":
        return 2 * width
    # The pieces of a vector must have equal widths: the smallest divisor from `PQ_WIDTH` on.
    return width // next(size for size in range(min(PQ_WIDTH, width), width + 1) if width % size == 0)


def import_faiss() -> Any:
    """Import faiss, which is an extra.

    Raises:
        ElmoError: If it is not installed, or cannot keep vectors on disk on this system.
    """
    faiss = import_extra("faiss", "an index")
    if not hasattr(faiss, "OnDiskInvertedLists"):
        raise ElmoError("faiss keeps no vectors on disk on this system; use Linux or macOS")
    return faiss


def require_enough_tokens(kind: Kind, num_tokens: int) -> None:
    """Raise an ElmoError for a kind of vectors for which the text has too few tokens."""
    if kind == "pq" and num_tokens < PQ_MIN_TOKENS:
        raise ElmoError(f"`kind`: pq needs {PQ_MIN_TOKENS} tokens to learn from, the text has {num_tokens}")


def train_index(sample: Vectors, kind: Kind, num_tokens: int, path: Path) -> None:
    """Learn the groups and codes for `num_tokens` vectors from a sample (N, D) of them, and write them to `path`."""
    faiss = import_faiss()
    width = sample.shape[1]
    codes = "SQfp16" if kind == "float16" else f"PQ{token_bytes(kind, width)}"
    index = faiss.index_factory(width, f"IVF{num_lists(num_tokens)},{codes}", faiss.METRIC_INNER_PRODUCT)
    index.cp.min_points_per_centroid = 1  # keeps faiss from warning about a small sample on stderr
    if kind == "pq":
        index.pq.cp.min_points_per_centroid = 1
        index.do_polysemous_training = False  # takes minutes, and only helps a kind of search that we do not use
    index.train(sample)
    _write(index, path)


def _write(index: Any, path: Path) -> None:
    try:
        import_faiss().write_index(index, str(path))
    except RuntimeError as error:
        raise ElmoError(
            f"{path}: can't be written ({_reason(error)}); fix that, then run the same command again to continue"
        ) from None


@contextmanager
def _bounded_by(path: Path) -> Generator[None]:
    """Let faiss make no array that is much larger than the file; a damaged file may ask for terabytes.

    The limits are settings of faiss for the whole process, so they are set back. Older versions have none.
    """
    faiss = import_faiss()
    names = [name for name in _LIMITS if path.exists() and hasattr(faiss, f"set_{name}")]
    before = {name: getattr(faiss, f"get_{name}")() for name in names}
    try:
        for name in names:
            getattr(faiss, f"set_{name}")(_LARGEST_SHARE * path.stat().st_size)
        yield
    finally:
        for name, limit in before.items():
            getattr(faiss, f"set_{name}")(limit)


def _read_groups(path: Path, flags: int = 0) -> Any:
    """Read an index whose vectors are in groups, as all of ours are, and in its own file."""
    faiss = import_faiss()
    require_file(path)
    try:
        with _bounded_by(path):
            index = faiss.read_index(str(path), flags)
    except RuntimeError as error:
        raise ElmoError(f"{path}: missing or damaged ({_reason(error)}); {AGAIN}") from None
    if not isinstance(index, faiss.IndexIVF):
        raise ElmoError(f"{path}: is not of the kind that 'elmo index' writes; {AGAIN}")
    groups = faiss.downcast_InvertedLists(index.invlists)
    # A file may name another one for its vectors. What is mapped of its own names none.
    if isinstance(groups, faiss.OnDiskInvertedLists) and (groups.filename or groups.ptr is None):
        raise ElmoError(f"{path}: its vectors are in another file, which is not opened; {AGAIN}")
    return index


def _reason(error: RuntimeError) -> str:
    """Return a message of faiss without the places and the conditions in its source, which stand before it."""
    return _IN_SOURCE.sub("", str(error).strip().rpartition("\n")[2])


class IndexPart:
    """Vectors that are added to a copy of the trained index, and kept in memory until they are written."""

    def __init__(self, trained: Path) -> None:
        self._index = _read_groups(trained)

    def add(self, vectors: Vectors, first: int) -> None:
        """Add vectors (N, D) of length 1, which are numbered from `first` on."""
        self._index.add_with_ids(vectors, np.arange(first, first + len(vectors), dtype=np.int64))

    def write(self, path: Path) -> None:
        """Write all vectors to a file."""
        _write(self._index, path)


class VectorStore:
    """The vectors in the files of all parts. They are mapped into memory, so that a search reads only what it needs."""

    def __init__(self, trained: Path, parts: Sequence[Path]) -> None:
        self._faiss = import_faiss()
        self._folder = trained.parent
        self._index = _read_groups(trained)  # the centroids, and no vectors
        self._parts = [self._map(path) for path in parts]
        self.num_vectors = sum(part.compute_ntotal() for part in self._parts)
        self._searching = threading.Lock()  # a search lends the groups of one part after the other to the only index

    @property
    def width(self) -> int:
        """Width of a vector, D."""
        return self._index.d

    def _map(self, path: Path) -> Any:
        """Map a part, and return its groups without the centroids. They stay mapped until the process ends."""
        part = _read_groups(path, self._faiss.IO_FLAG_MMAP | self._faiss.IO_FLAG_READ_ONLY)
        part.own_invlists = False  # so that the centroids of this part are freed, but not its groups
        groups, own = part.invlists, self._index
        # Of another number or size, they would be searched as they are: with wrong results, or a crash.
        if (groups.nlist, groups.code_size) != (own.nlist, own.code_size):
            raise ElmoError(f"{path}: is damaged, or part of another index; {AGAIN}")
        return groups

    def nearest(
        self, query: Vectors, size: int, among: NDArray[np.bool_] | None = None, probes: int = PROBES
    ) -> NDArray[np.int64]:
        """Find about `size` vectors that are nearest to a query.

        The fewer vectors are selected by `among`, the more groups are searched; all groups are searched if the first
        ones hold fewer than `size` selected vectors.

        Args:
            query: A vector (D,) of length 1.
            size: How many vectors to find.
            among: A mask (N,) of the vectors to search, or None for all.
            probes: How many groups to search at least.

        Returns:
            The numbers of the vectors, nearest first.
        """
        # A group holds few selected vectors if few are selected in all, so that more groups are needed to find `size`.
        num_vectors, num_lists = self.num_vectors, self._index.nlist
        chosen = num_vectors if among is None else int(np.count_nonzero(among))
        size = min(size, chosen)
        probes = min(num_lists, max(probes, probes * num_vectors // max(chosen, 1)))
        selector = among if among is None else self._faiss.IDSelectorBitmap(np.packbits(among, bitorder="little"))
        while size:
            settings = self._faiss.SearchParametersIVF(nprobe=probes, sel=selector)
            found = self._search(query, size, settings)
            if len(found) == size or probes == num_lists:
                return found
            probes = num_lists
        return np.zeros(0, np.int64)

    def blocks(self, among: NDArray[np.bool_] | None = None) -> Iterator[tuple[NDArray[np.int64], Vectors]]:
        """Yield all vectors, or those selected by `among`, a group of one part at a time: numbers (N,), vectors (N, D).

        Vectors come in no order. They are as stored: close to what was added with float16, and rounded to codes with
        product quantization.
        """
        for groups in self._parts:
            for number in range(self._index.nlist):
                size = groups.list_size(number)
                if not size:
                    continue
                numbers = self._faiss.rev_swig_ptr(groups.get_ids(number), size).copy()
                if not 0 <= numbers.min() <= numbers.max() < self.num_vectors:
                    raise ElmoError(self._damage)
                chosen = np.arange(size) if among is None else np.flatnonzero(among[numbers])
                if len(chosen):
                    codes = self._faiss.rev_swig_ptr(groups.get_codes(number), size * groups.code_size)
                    yield numbers[chosen], self._decode(number, codes.reshape(size, -1)[chosen])

    def runs(self, starts: NDArray[np.int64], length: int) -> Vectors:
        """Return the sums (N, D) of `length` vectors from each of `starts` (N,) on, which are increasing, as stored."""
        among = np.zeros(self.num_vectors, np.bool_)
        for offset in range(length):
            among[starts + offset] = True
        sums = np.zeros((len(starts), self.width), np.float32)
        for numbers, vectors in self.blocks(among):
            for offset in range(length):
                rows = np.searchsorted(starts, numbers - offset)
                found = np.flatnonzero(starts.take(rows, mode="clip") == numbers - offset)
                sums[rows[found]] += vectors[found]
        return sums

    def _decode(self, group: int, codes: NDArray[np.uint8]) -> Vectors:
        """Return the vectors (N, D) of codes (N, bytes), which hold only the differences from the group's centroid."""
        # Codes that stand alone begin with the number of their group, from which faiss knows the centroid.
        number = np.frombuffer(group.to_bytes(self._index.coarse_code_size(), "little"), np.uint8)
        return self._index.sa_decode(np.hstack([np.broadcast_to(number, (len(codes), len(number))), codes]))

    @property
    def _damage(self) -> str:
        return f"{self._folder}: a file of vectors is damaged (it numbers more of them than there are); {AGAIN}"

    def _search(self, query: Vectors, size: int, settings: Any) -> NDArray[np.int64]:
        """Search every part, and merge the results."""
        # The parts are searched one by one, each under the same centroids. Faiss could merge them or stack them, but a
        # merged index prints to stdout, and a stacked one copies each group that it searches, which took five times as
        # long.
        cosines: list[Vectors] = []
        numbers: list[NDArray[np.int64]] = []
        with self._searching:
            for groups in self._parts:
                self._index.replace_invlists(groups, False)
                found = self._index.search(query[None], size, params=settings)
                cosines.append(found[0][0])
                numbers.append(found[1][0])
        order = np.argsort(-np.concatenate(cosines), kind="stable")
        merged = np.concatenate(numbers)[order]  # -1 where a part has fewer than `size`
        if merged.max(initial=-1) >= self.num_vectors:
            raise ElmoError(self._damage)
        return merged[merged >= 0][:size]
