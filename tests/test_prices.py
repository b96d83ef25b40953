"""Prices: each row has its source and day, the learner's own win, and a bad row is named."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import prices, settings
from helpers.settings import CourseError

TODAY = datetime.date(2026, 12, 1)
HEAD = prices.SHIPPED.read_text(encoding="utf-8").splitlines()[0] + "\n"
ROW = "gpu.b200.modal,gpu,B200,serverless,Modal,5,USD per GPU-hour,,my contract,2026-12-01,published\n"
NEW = "gpu.mine,gpu,B200,reserved,me,2.5,USD per GPU-hour,two years,my contract,2026-11-30,published\n"


@pytest.fixture(autouse=True)
def own_workspace(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "WORKSPACE", tmp_path / "workspace")
    return tmp_path / "workspace"


def write(folder, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / prices.OWN).write_text(HEAD + text, encoding="utf-8")


def test_every_shipped_price_can_be_read_and_none_is_the_learners():
    frame = prices.table(today=TODAY)
    assert len(frame) > 60
    assert set(frame["kind"]) == set(prices.UNITS)
    assert not frame["yours"].any()
    assert (frame["value"] >= 0).all()
    assert (frame["source"].str.len() > 3).all()


def test_known_prices():
    assert prices.value("gpu.b200.modal", "USD per GPU-hour") == 6.2496
    assert prices.value("region.broad", "times") == 1.5
    assert prices.value("llm.terra.cached-input", "USD per million tokens") == 0.2


def test_a_price_per_second_was_turned_into_one_per_hour():
    assert prices.value("gpu.b200.runpod-flex", "USD per GPU-hour") == pytest.approx(0.00240 * 3600)


def test_a_price_has_to_be_asked_for_in_its_unit():
    with pytest.raises(CourseError, match="USD per GPU-hour"):
        prices.value("gpu.b200.modal", "USD per minute")


def test_an_unknown_price_or_kind_is_answered_with_those_there_are():
    with pytest.raises(CourseError, match=r"gpu\.b200\.modal"):
        prices.row("gpu.b200.nobody")
    with pytest.raises(CourseError, match="telephony"):
        prices.table("petrol")


def test_the_learners_row_wins_and_a_new_one_is_added(own_workspace):
    before = prices.table(today=TODAY)
    write(own_workspace, ROW + NEW)
    frame = prices.table(today=TODAY)
    assert prices.value("gpu.b200.modal", "USD per GPU-hour") == 5
    assert list(frame.index) == [*before.index, "gpu.mine"]
    assert list(frame.index[frame["yours"]]) == ["gpu.b200.modal", "gpu.mine"]
    others = before.index.drop("gpu.b200.modal")
    assert frame.loc[others].equals(before.loc[others])
    assert "yours" in list(prices.show(frame)["yours"])


def test_the_gallery_does_not_see_the_learners_prices(own_workspace):
    write(own_workspace, ROW)
    with prices.shipped_only():
        assert prices.value("gpu.b200.modal", "USD per GPU-hour") == 6.2496
    assert prices.value("gpu.b200.modal", "USD per GPU-hour") == 5


def test_the_own_file_is_made_once_and_never_overwritten(own_workspace, capsys):
    path = prices.make_own()
    assert path == own_workspace / prices.OWN
    assert path.read_text(encoding="utf-8") == HEAD
    assert not prices.table()["yours"].any()
    assert "yours" not in prices.show(prices.table())
    path.write_text(HEAD + NEW, encoding="utf-8")
    assert prices.make_own() == path
    assert "stays as it is" in capsys.readouterr().out
    assert path.read_text(encoding="utf-8") == HEAD + NEW


def test_a_copy_that_was_cut_short_is_not_left_behind(own_workspace, monkeypatch, tmp_path):
    monkeypatch.setattr(prices, "SHIPPED", tmp_path / "none.csv")
    with pytest.raises(CourseError):
        prices.make_own()
    assert not (own_workspace / prices.OWN).exists()


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (NEW.replace(",gpu,", ",graphics,"), "graphics"),
        (NEW.replace("USD per GPU-hour", "USD per minute"), "USD per minute"),
        (NEW.replace("2.5", "-2.5"), "0 or more"),
        (NEW.replace("2.5", ""), "0 or more"),
        (NEW.replace("2.5", "two"), "two"),
        (NEW.replace("2.5", '"2,5"'), "2,5"),
        (NEW.replace(",reserved,", ",hire,"), "hire"),
        (NEW.replace(",B200,", ",,"), "item"),
        (NEW.replace("my contract", ""), "source"),
        (NEW.replace("2026-11-30", "yesterday"), "yesterday"),
        (NEW.replace("2026-11-30", "2026-11-31"), "2026-11-31"),
        (NEW.replace("published", "hearsay"), "hearsay"),
        (NEW + NEW, "already"),
    ],
)
def test_a_bad_row_of_the_learner_is_named(own_workspace, row, words):
    write(own_workspace, row)
    with pytest.raises(CourseError, match=r"prices\.csv, (line [23]|row 'gpu\.mine')") as caught:
        prices.table()
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("date", "days"),
    [("2026-12-01", 0), ("2026-11-30", 1), ("2026-09-02", 90), ("2026-11", 30), ("2026", 334), ("2027", 0)],
)
def test_a_price_counts_from_the_first_day_that_its_date_can_mean(date, days):
    assert prices.age_days(date, TODAY) == days


def test_a_price_is_stale_only_after_the_last_day_of_the_limit():
    day = datetime.date.fromisoformat("2026-08-01") + datetime.timedelta(prices.LIMIT_DAYS)
    assert not prices.table(today=day).loc["gpu.b200.modal", "stale"]
    assert prices.table(today=day + datetime.timedelta(1)).loc["gpu.b200.modal", "stale"]


def test_staleness_is_shown_and_warned_of():
    frame = prices.table(today=TODAY)
    fresh = frame[frame["date"] == "2026-09-20"]
    assert not fresh["stale"].any()
    assert prices.warning(fresh) == ""
    later = prices.table(today=datetime.date(2026, 12, 20)).loc[fresh.index]
    assert later["stale"].all()
    assert f"{len(fresh)} of {len(fresh)} prices are older than 90 days" in prices.warning(later)
    assert "(stale: 91 days)" in prices.show(later)["read"].iloc[0]
    assert prices.show(fresh)["read"].iloc[0] == "read on 2026-09-20"


def test_a_date_of_a_year_is_called_coarse():
    coarse = prices.table(today=TODAY).loc[["telephony.twilio-in"]]
    assert "only the year is known" in prices.warning(coarse)


@given(st.dates(datetime.date(2020, 1, 1), datetime.date(2030, 12, 31)), st.integers(0, 2000))
def test_a_finer_date_is_never_older_than_a_coarser_one(date, after):
    today = date + datetime.timedelta(days=after)
    ages = [prices.age_days(text, today) for text in (f"{date:%Y}", f"{date:%Y-%m}", f"{date:%Y-%m-%d}")]
    assert ages == sorted(ages, reverse=True)
    assert ages[-1] == after
