"""The reader of typed-in figures: a table whose rows do not all say where they are from is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import tables
from helpers.settings import DATA, CourseError

HEAD = "id,value,unit,source,date,origin\n"
GOOD = "one,1.5,ms,somebody,2026-08,published\n"


def read(tmp_path, written, **options):
    path = tmp_path / "figures.csv"
    path.write_text(written, encoding="utf-8")
    return tables.read(path, **options)


def test_a_good_table_comes_back_as_it_stands(tmp_path):
    frame = read(tmp_path, HEAD + GOOD + "two,,,somebody,2026,modelled\n")
    assert list(frame.index) == ["one", "two"]
    assert frame.loc["one", "value"] == 1.5
    assert frame["value"].isna().tolist() == [False, True]
    assert frame.loc["two", "unit"] == ""


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("two,1,ms,,2026-08,published", "source"),
        ("two,1,ms, ,2026-08,published", "source"),
        ("two,1,ms,somebody,,published", "date"),
        ("two,1,ms,somebody,August 2026,published", "August 2026"),
        ("two,1,ms,somebody,2026-13,published", "2026-13"),
        ("two,1,ms,somebody,2026-08,guessed", "guessed"),
        ("two,1,ms,somebody,2026-08,", "origin"),
        ('two,"1,500",ms,somebody,2026-08,published', "1,500"),
        ("two,inf,ms,somebody,2026-08,published", "inf"),
        ("two,nan,ms,somebody,2026-08,published", "nan"),
        ("one,2,ms,somebody,2026-08,published", "already"),
        (",2,ms,somebody,2026-08,published", "id"),
    ],
)
def test_a_bad_row_is_named(tmp_path, row, words):
    with pytest.raises(CourseError, match=r"figures\.csv, line 3") as caught:
        read(tmp_path, HEAD + GOOD + row + "\n")
    assert words in str(caught.value)


def test_a_missing_column_is_named(tmp_path):
    with pytest.raises(CourseError, match="'unit'"):
        read(tmp_path, "id,value,source,date,origin\none,1,me,2026,modelled\n")
    frame = read(tmp_path, "id,value,source,date,origin\none,1,me,2026,modelled\n", unitless=True)
    assert frame.loc["one", "value"] == 1
    with pytest.raises(CourseError, match="'vendor'"):
        read(tmp_path, HEAD + GOOD, text=("vendor",))


def test_a_key_may_be_two_columns(tmp_path):
    head = "gpu,what,value,unit,source,date,origin\n"
    rows = "B200,price,1,USD,me,2026,modelled\nB200,power,2,W,me,2026,modelled\n"
    assert len(read(tmp_path, head + rows, key=("gpu", "what"))) == 2
    with pytest.raises(CourseError, match="B200 / price"):
        read(tmp_path, head + rows + rows, key=("gpu", "what"))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(CourseError, match=r"none\.csv"):
        tables.read(tmp_path / "none.csv")
    with pytest.raises(CourseError, match="cannot be read"):
        read(tmp_path, "")


def test_what_a_spreadsheet_adds_does_not_count(tmp_path):
    written = "\ufeff" + HEAD + "\n" + "one , 1.5 ,ms, somebody,2026-08 ,published\n,,,,,\n"
    frame = read(tmp_path, written.replace("\n", ",,\r\n"))
    assert list(frame.index) == ["one"]
    assert frame.loc["one", "date"] == "2026-08"
    with pytest.raises(CourseError, match=r"line 5 \(two\).*source"):
        read(tmp_path, f"{HEAD}\n{GOOD}\ntwo,1,ms,,2026,published\n")


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (HEAD + GOOD.replace("1.5", "1,5"), r"line 2 \(one\): there are 7 cells"),
        (HEAD + GOOD + GOOD.replace("somebody", "one, two"), r"line 3 \(one\): there are 7 cells"),
        ((HEAD + GOOD).replace(",", ";"), "with commas"),
        ("# mine\n" + HEAD + GOOD, "with commas"),
        (HEAD.replace("unit", "value") + GOOD, "same name"),
        (HEAD + '"' + GOOD, "cannot be read"),
    ],
)
def test_a_file_with_other_signs_between_its_cells_is_refused_in_words(tmp_path, written, words):
    with pytest.raises(CourseError, match=words):
        read(tmp_path, written)


@given(value=st.floats(allow_nan=False, allow_infinity=False), year=st.integers(2000, 2099))
def test_numbers_come_back_exactly(tmp_path_factory, value, year):
    frame = read(tmp_path_factory.mktemp("t"), f"{HEAD}one,{value!r},ms,somebody,{year},published\n")
    assert frame.loc["one", "value"] == value


READ_WITH = {
    "published.csv": {"text": ("what", "conditions")},
    "gpus.csv": {"key": ("gpu", "quantity")},
    "budget.csv": {"key": ("version", "number"), "numeric": ("ms",)},
    "calibration.csv": {},
    "call_day.csv": {"key": ("day", "hour")},
    "clips/gaps.csv": {"numeric": ("gap_ms",), "unitless": True},
    "models/origins.csv": {"key": "model", "numeric": ("parameters",), "unitless": True},
    "phonebench.csv": {"key": "model", "numeric": ("score", "usd_per_minute"), "unitless": True},
    "prices.csv": {},
    "stages.csv": {"numeric": ("p50_ms", "p95_ms")},
    "hub/files.csv": {"key": ("repo", "file"), "numeric": ("files", "bytes"), "unitless": True},
    "hub/repositories.csv": {"key": "repo", "numeric": ("files", "bytes"), "unitless": True},
}


@pytest.mark.parametrize("name", READ_WITH)
def test_the_courses_own_tables_are_good(name):
    assert len(tables.read(name, **READ_WITH[name]))


def test_no_typed_in_table_goes_past_the_reader():
    """A CSV under data/ with a column `origin` was typed in, unless it is a run of ours."""
    typed = {
        path.relative_to(DATA).as_posix()
        for path in DATA.rglob("*.csv")
        if "runs" not in path.parts and "origin" in path.open(encoding="utf-8").readline().strip().split(",")
    }
    assert typed == set(READ_WITH)
