import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo.errors import ElmoError
from elmo.nn.packing import Packing


@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.integers(0, 3))
def test_holds_every_token_once_in_reading_order(lengths: list[int], extra: int) -> None:
    """Step t of packed row r is token t of the r-th longest sentence, or backward the t-th token from its end."""
    longest = max(lengths) + extra
    packing = Packing.of(torch.tensor(lengths), longest, torch.device("cpu"))
    rows = packing.rows.tolist()
    assert sorted(rows) == [row for row, length in enumerate(lengths) if length]
    assert [lengths[row] for row in rows] == sorted((n for n in lengths if n), reverse=True)
    assert packing.batch_sizes == [sum(n > step for n in lengths) for step in range(max(lengths))]
    places = [(row, step) for step, size in enumerate(packing.batch_sizes) for row in rows[:size]]
    assert packing.orders[0].tolist() == [row * longest + step for row, step in places]
    assert packing.orders[1].tolist() == [row * longest + lengths[row] - 1 - step for row, step in places]


@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.integers(0, 3))
def test_what_is_unpacked_is_what_was_packed(lengths: list[int], extra: int) -> None:
    """Both directions, and several layers at once, are unpacked as they were, with zeros at padding."""
    longest = max(lengths) + extra
    packing = Packing.of(torch.tensor(lengths), longest, torch.device("cpu"))
    x = torch.rand(len(lengths), longest, 2) + 1
    is_token = (torch.arange(longest) < torch.tensor(lengths).unsqueeze(1)).unsqueeze(2)
    for direction in (0, 1):
        packed = packing.pack(x, direction)
        assert len(packed) == sum(lengths)
        layers = packing.unpack(torch.stack([packed, 2 * packed]), direction)
        assert torch.equal(layers, torch.stack([x, 2 * x]) * is_token)


@pytest.mark.parametrize("lengths", [[4, 3], [3, 4], [1, 5]], ids=str)
def test_a_row_longer_than_the_batch_is_refused(lengths: list[int]) -> None:
    """What it lacks was read from the next row, whose vectors it then replaced."""
    with pytest.raises(ElmoError, match=rf"^`lengths`: a row has {max(lengths)} tokens, but the batch is 3 wide"):
        Packing.of(torch.tensor(lengths), 3, torch.device("cpu"))
    assert Packing.of(torch.zeros(0, dtype=torch.long), 3, torch.device("cpu")).batch_sizes == []
