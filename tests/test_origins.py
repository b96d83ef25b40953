"""A table that cannot say where a number comes from is refused, and the error names the place."""

import numpy as np
import pandas as pd
import pytest

from helpers import origins
from helpers.settings import CourseError


def table(**columns):
    return pd.DataFrame({"origin": ["measured", "recorded"], "ttft_ms": [61.0, 72.0]} | columns)


def test_a_good_table_comes_back_unchanged():
    frame = table()
    before = frame.copy()
    assert origins.validate(frame, required=("ttft_ms",), numeric=("ttft_ms",)) is frame
    pd.testing.assert_frame_equal(frame, before)


def test_an_empty_table_is_valid():
    origins.validate(pd.DataFrame({"origin": []}))


def test_something_else_than_a_table():
    with pytest.raises(CourseError, match="list"):
        origins.validate([1, 2, 3])


def test_no_origin_column_says_how_to_add_it():
    with pytest.raises(CourseError, match=r'frame\["origin"\] = "measured"'):
        origins.validate(table().drop(columns="origin"))


def test_a_missing_column_is_named_with_the_place_to_look():
    with pytest.raises(CourseError, match=r"no column 'itl_ms'.*help\(figures\.itl\)"):
        origins.validate(table(), required=("itl_ms",), used_by="figures.itl")


@pytest.mark.parametrize("wrong", ["Measured", "guessed", "", None, np.nan, 3])
def test_a_wrong_origin_names_row_and_column(wrong):
    frame = table(origin=["measured", wrong]).set_axis(["first", "second"])
    with pytest.raises(CourseError, match="Row 'second', column 'origin'"):
        origins.validate(frame)


@pytest.mark.parametrize("missing", ["source", "date"])
@pytest.mark.parametrize("empty", [None, np.nan, pd.NaT, pd.NA, "", "  "])
def test_a_published_row_needs_source_and_date(missing, empty):
    given = {"source": "the model card", "date": "2026-11"} | {missing: empty}
    frame = table(origin=["measured", "published"], **{name: ["", value] for name, value in given.items()})
    with pytest.raises(CourseError, match=f"Row 1, column '{missing}'"):
        origins.validate(frame)


def test_a_published_row_needs_the_columns_too():
    with pytest.raises(CourseError, match="Row 1, column 'source'"):
        origins.validate(table(origin=["measured", "published"]))


def test_two_rows_with_one_index_are_no_trouble():
    frame = table(origin=["published", "published"], source=["card", "card"], date=["2026-11", None])
    with pytest.raises(CourseError, match="column 'date'"):
        origins.validate(frame.set_axis([0, 0]))


@pytest.mark.parametrize("wrong", ["61", True, [61.0]])
def test_a_value_that_is_no_number_names_row_and_column(wrong):
    with pytest.raises(CourseError, match="Row 1, column 'ttft_ms'"):
        origins.validate(table(ttft_ms=pd.Series([61.0, wrong], dtype=object)), numeric=("ttft_ms",))


def test_missing_values_and_infinity_are_numbers():
    values = pd.Series([None, np.nan, np.inf, pd.NA, 3, np.int64(4)], dtype=object)
    frame = pd.DataFrame({"origin": "measured", "high": values})
    origins.validate(frame, numeric=("high",))


def test_groups_keep_every_row_in_the_order_of_the_origins():
    frame = table(origin=["recorded", "measured"], server=["B", "A"])
    found = origins.groups(frame)
    assert [group.phrase for group in found] == ["measured on A, n = 1", "recorded on B, n = 1"]
    assert sorted(index for group in found for index in group.rows.index) == [0, 1]


def test_note_names_servers_counts_sources_and_dates():
    frame = pd.DataFrame(
        {
            "origin": ["measured", "published", "measured", "modelled"],
            "server": ["vLLM on CPU", None, "vLLM on CPU", None],
            "source": [None, "the model card", None, "our model of a B200"],
            "date": [None, "2026-11", None, None],
        }
    )
    said = "measured on vLLM on CPU, n = 2; published: the model card, 2026-11; modelled: our model of a B200"
    assert origins.note(frame) == said


def test_what_is_counted():
    frame = table(origin=["measured", "measured"], reply=["first", "first"])
    assert origins.note(frame) == "measured, n = 2"
    assert origins.note(frame, counted="reply") == "measured, n = 1"
    assert origins.note(frame.assign(n=[20, 200])) == "measured, n = 20 to 200"
    assert origins.note(frame.assign(n=[20, 20])) == "measured, n = 20"
