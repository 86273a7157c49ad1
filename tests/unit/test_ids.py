"""Job ids: their spelling, their order, and what is no id."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coatcheck.domain.ids import InvalidId, from_text, new_id, new_ids, to_text, to_texts


@given(st.uuids())
def test_an_id_survives_its_spelling(job_id: UUID) -> None:
    assert from_text(to_text(job_id)) == job_id


@pytest.mark.parametrize("count", [0, 1, 127, 128, 129, 1_000])
def test_many_ids_have_the_spelling_of_each(count: int) -> None:
    ends = [UUID(int=0), UUID(int=(1 << 128) - 1)]
    job_ids = [*ends, *(uuid4() for _ in range(count))][:count]
    assert to_texts(job_ids) == [to_text(each) for each in job_ids]


@given(st.uuids(), st.uuids())
def test_spellings_sort_as_ids_do(first: UUID, second: UUID) -> None:
    assert (to_text(first) < to_text(second)) == (first.int < second.int)


@given(st.uuids())
def test_lower_case_and_look_alikes_are_read(job_id: UUID) -> None:
    text = to_text(job_id)
    assert from_text(text.lower()) == job_id
    assert from_text(text.replace("1", "I").replace("0", "O")) == job_id
    assert from_text(text.replace("1", "l").replace("0", "o")) == job_id


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0" * 25,
        "0" * 27,
        "8" + "0" * 25,
        "U" * 26,
        "0" * 25 + "-",
        "0" * 25 + "ö",
        "0" * 25 + "\N{LATIN SMALL LETTER LONG S}",  # a capital S in upper case
        "0_" * 13,  # what Python reads in numbers
        "+" + "0" * 25,
        "0" * 25 + "\n",
        "\N{ARABIC-INDIC DIGIT ZERO}" * 26,
    ],
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidId):
        from_text(text)


@given(st.text(max_size=40))
def test_any_text_is_an_id_or_refused(text: str) -> None:
    try:
        job_id = from_text(text)
    except InvalidId:
        return
    assert len(to_text(job_id)) == len(text)


def test_new_ids_are_new_and_begin_with_the_time() -> None:
    made = [new_id() for _ in range(1_000)]
    assert len(set(made)) == 1_000
    assert [each.int >> 80 for each in made] == sorted(each.int >> 80 for each in made)


@pytest.mark.parametrize("count", [0, 1, 1_000])
def test_ids_made_together_are_in_order(count: int) -> None:
    made = new_ids(count)
    assert len(set(made)) == count
    assert made == sorted(made)
    assert {len(each) for each in made} <= {16}
    assert len({each[:6] for each in made}) <= 1, "of one millisecond"
