"""Ratings: each is kept at once, nothing is overwritten, and the panel shows no gap before the end."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import settings as how_often
from hypothesis import strategies as st

from helpers import clips, panels_rating, ratings, settings, telephone
from helpers.settings import CourseError

GAPS = [300.0, 600.0, 1500.0]


@pytest.fixture(autouse=True)
def own_workspace(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "WORKSPACE", tmp_path / "workspace")


@pytest.fixture(autouse=True)
def pictures(monkeypatch):
    drawn = []
    monkeypatch.setattr(
        panels_rating.figures, "show", lambda figure, frame, **options: drawn.append((figure, frame))
    )
    return drawn


def rated(gaps=GAPS, how=lambda gap: 1 + (gap > 500) + 2 * (gap > 1000), rounds=1, **options):
    sitting = ratings.begin(gaps, rounds=rounds, **options)
    while sitting.next_ms is not None:
        sitting.rate(how(sitting.next_ms))
    return sitting


# Kept


def test_each_gap_comes_once_a_round_in_an_order_of_chance():
    orders = set()
    for seed in range(20):
        sitting = ratings.begin(GAPS, rounds=2, seed=seed)
        assert sorted(sitting.order[:3]) == sorted(sitting.order[3:]) == GAPS
        assert sitting.order[2] != sitting.order[3]
        orders.add(sitting.order)
    assert len(orders) > 5
    assert ratings.begin(GAPS, seed=7).order == ratings.begin(GAPS, seed=7).order


def test_a_rating_is_never_written_where_nobody_could_read_it():
    sitting = ratings.begin(GAPS, seed=1)
    sitting.rate(np.int64(2))
    assert ratings.sittings()[0].given == [2]
    sitting.path.rename(sitting.path.with_suffix(".away"))
    with pytest.raises(CourseError, match="not there any more"):
        sitting.rate(3)
    assert not sitting.path.exists()
    assert sitting.given == [2]


def test_two_gaps_with_the_same_rating_are_no_reversal():
    frame = pd.DataFrame({"gap_ms": GAPS, "rating": [1, 1, 1], "origin": "measured"})
    assert ratings.tolerance(frame).reversals == 0


def test_a_line_of_another_place_does_not_count():
    sitting = ratings.begin(GAPS, seed=1)
    with sitting.path.open("a") as file:
        file.write("\n" + json.dumps({"position": 1, "gap_ms": sitting.next_ms, "rating": 2}))
    assert ratings.sittings()[0].given == []


@pytest.mark.parametrize("first", ['{"order": [1, 2], "rounds": Infinity}', '{"order": [1e999], "rounds": 1'])
def test_a_damaged_sitting_is_passed_over(first):
    ratings.begin(GAPS).path.with_name("0.jsonl").write_text(first)
    assert len(ratings.sittings()) == 1


def test_a_rating_is_on_disk_at_once_and_comes_back():
    sitting = ratings.begin(GAPS, seed=1)
    sitting.rate(3)
    [kept] = ratings.sittings()
    assert kept.given == [3]
    assert kept.next_ms == sitting.order[1]
    kept.rate(1)  # as another kernel would go on
    [again] = ratings.sittings()
    assert again.given == [3, 1]


def test_a_sitting_is_one_file_and_none_is_overwritten():
    names = [rated(seed=seed).name for seed in range(5)]
    assert len(set(names)) == 5
    assert len(ratings.sittings()) == 5
    assert ratings.newest(finished=False) is None
    assert ratings.newest(finished=True).name == names[-1]


def test_the_newest_unfinished_one_is_found_only_while_it_is_the_newest():
    open_one = ratings.begin(GAPS)
    assert ratings.newest(finished=False).name == open_one.name
    assert ratings.newest(finished=True) is None
    rated()
    assert ratings.newest(finished=False) is None


def test_the_table_tells_round_and_position():
    frame = rated(rounds=2, seed=3).table()
    assert list(frame.columns) == list(ratings.COLUMNS)
    assert frame["round"].to_list() == [1, 1, 1, 2, 2, 2]
    assert frame["position"].to_list() == [1, 2, 3, 4, 5, 6]
    assert set(frame["origin"]) == {"measured"}


def test_a_line_cut_off_spoils_only_itself():
    sitting = ratings.begin(GAPS, seed=1)
    sitting.rate(2)
    with sitting.path.open("a") as file:
        file.write('\n{"position": 1, "gap_')
    [kept] = ratings.sittings()
    assert kept.given == [2]
    kept.rate(4)
    assert ratings.sittings()[0].given == [2, 4]


@pytest.mark.parametrize(
    "text",
    ["", "no", "[1]", '{"order": []}', '{"order": [1, 2, 3], "rounds": 2}', '{"order": "x", "rounds": 1}'],
)
def test_other_files_are_passed_over(text):
    sitting = rated()
    (sitting.path.parent / "0.jsonl").write_text(text)
    assert [one.name for one in ratings.sittings()] == [sitting.name]
    assert (sitting.path.parent / "0.jsonl").read_text() == text


@pytest.mark.parametrize(
    "entry",
    [
        {"position": 0, "gap_ms": 1.0, "rating": 2},
        {"position": 1, "gap_ms": None, "rating": 2},
        {"position": 0, "rating": 9},
        ["position"],
    ],
)
def test_a_line_that_is_no_rating_is_passed_over(entry):
    sitting = ratings.begin(GAPS)
    with sitting.path.open("a") as file:
        file.write("\n" + json.dumps(entry))
    assert ratings.sittings()[0].given == []


@pytest.mark.parametrize("rating", [0, 5, "fine", 2.5, None])
def test_what_is_no_rating_is_refused_and_not_kept(rating):
    sitting = ratings.begin(GAPS)
    before = sitting.path.read_text()
    with pytest.raises(CourseError, match="1 to 4"):
        sitting.rate(rating)
    assert sitting.path.read_text() == before


def test_after_the_last_there_is_nothing_to_rate():
    with pytest.raises(CourseError, match="All clips"):
        rated().rate(1)


@pytest.mark.parametrize(
    ("gaps", "rounds"), [([], 1), ([300], 1), ([300, 300], 1), ([300, float("nan")], 1), (GAPS, 0), (GAPS, 3)]
)
def test_what_makes_no_sitting_is_refused(gaps, rounds):
    with pytest.raises(CourseError):
        ratings.begin(gaps, rounds=rounds)
    assert ratings.sittings() == []


def test_a_folder_that_cannot_be_written_in_is_said(monkeypatch):
    sitting = ratings.begin(GAPS)
    sitting.path.unlink()
    sitting.path.mkdir()  # as good as any reason why it cannot be written
    with pytest.raises(CourseError, match="could not be written"):
        sitting.rate(1)
    assert sitting.given == []


# Summed up


def frame_of(values: dict[float, list[int]]) -> pd.DataFrame:
    rows = [(gap, rating, n + 1) for gap, some in values.items() for n, rating in enumerate(some)]
    return pd.DataFrame(rows, columns=["gap_ms", "rating", "round"]).assign(origin="measured")


@pytest.mark.parametrize(
    ("values", "content", "lost"),
    [
        ({300: [1], 600: [2], 1500: [3]}, 600, 1500),
        ({300: [1], 600: [2], 1500: [2]}, 1500, None),
        ({300: [3], 600: [1], 1500: [2]}, None, 300),
        ({300: [1], 600: [4], 1500: [1]}, 300, 600),
        ({300: [1, 1], 600: [2, 3], 1500: [4, 4]}, 300, 600),
    ],
)
def test_the_limit_of_a_listener(values, content, lost):
    found = ratings.tolerance(frame_of(values))
    assert (found.content_ms, found.lost_ms) == (content, lost)
    for number in (content, lost):
        if number is not None:
            assert f"{number:,.0f} ms" in found.sentence()


def test_how_well_somebody_agrees_with_himself():
    found = ratings.tolerance(frame_of({300: [1, 1], 600: [2, 3], 1500: [4, 4]}))
    assert (found.repeated, found.alike, found.ratings) == (3, 2, 6)
    assert "Of 3 clips rated twice, 2 got the same" in found.sentence()


def test_ratings_that_go_the_other_way_are_told():
    found = ratings.tolerance(frame_of({300: [2], 600: [1], 1500: [4], 2500: [3]}))
    assert found.reversals == 2
    assert "twice" in found.sentence()


@how_often(deadline=None)
@given(st.lists(st.integers(1, 4), min_size=2, max_size=8))
def test_content_and_lost_are_neighbours(values):
    gaps = [300.0 + 100 * n for n in range(len(values))]
    found = ratings.tolerance(frame_of({gap: [value] for gap, value in zip(gaps, values, strict=True)}))
    edges = [None, *gaps, None]
    assert edges[edges.index(found.content_ms) + 1 if found.content_ms else 1] == found.lost_ms
    assert found.content_ms is None or all(
        v <= 2 for g, v in zip(gaps, values, strict=True) if g <= found.content_ms
    )


@pytest.mark.parametrize("rating", [0, 5, 2.5])
def test_a_table_with_another_rating_is_refused(rating):
    with pytest.raises(CourseError, match="1 to 4"):
        ratings.tolerance(frame_of({300: [1]}).assign(rating=rating))
    with pytest.raises(CourseError, match="no ratings"):
        ratings.tolerance(frame_of({300: [1]}).iloc[:0])


def test_an_example_never_passes_for_ratings():
    frame = ratings.mine_or_example(GAPS)
    assert set(frame["origin"]) == {"modelled"}
    assert "nobody's" in frame["source"].iloc[0]
    assert ratings.tolerance(frame).sentence().startswith("An example, not your ratings.")
    assert "You" not in ratings.tolerance(frame).sentence()
    rated()
    mine = ratings.mine_or_example(GAPS)
    assert set(mine["origin"]) == {"measured"}
    assert ratings.tolerance(mine).sentence().startswith("You were content")


def test_an_unfinished_sitting_is_no_result():
    ratings.begin(GAPS).rate(1)
    assert set(ratings.mine_or_example(GAPS)["origin"]) == {"modelled"}


# The panel


def texts(panel) -> str:
    return panel.status.value + panel.answer.value + " ".join(b.description for b in panel.rate)


def test_no_gap_is_told_before_all_are_rated(pictures):
    panel = panels_rating.RatingPanel(GAPS)
    panel.once.click()
    lengths = set()
    for _ in GAPS:
        shown = texts(panel)
        assert not re.search(r"300|600|1,?500", shown)
        assert pictures == []
        samples, rate_hz = telephone.read_wav(bytes(panel.audio.value))
        assert rate_hz == telephone.RATE_HZ
        lengths.add(len(samples))
        assert clips.measure(samples).gap_ms == pytest.approx(panel.sitting.next_ms, abs=10)
        panel.rate[1].click()
    assert len(lengths) == 1
    assert "up to 1,500 ms" in panel.answer.value
    [(_, frame)] = pictures
    assert len(frame) == 3
    assert set(frame["origin"]) == {"measured"}


def test_twice_means_each_clip_twice(pictures):
    panel = panels_rating.RatingPanel(GAPS)
    panel.twice.click()
    assert "Clip 1 of 6" in panel.status.value
    for _ in range(6):
        panel.rate[0].click()
    assert "Of 3 clips rated twice, 3 got the same" in panel.answer.value


def test_a_sitting_that_was_broken_off_goes_on(pictures):
    first = panels_rating.RatingPanel(GAPS)
    first.once.click()
    first.rate[0].click()
    again = panels_rating.RatingPanel(GAPS)
    assert "Clip 2 of 3" in again.status.value
    assert "1 of these clips" in again.answer.value
    again.rate[0].click()
    again.rate[0].click()
    assert len(pictures) == 1
    assert len(ratings.sittings()) == 1


def test_opened_again_it_shows_the_last_result_and_can_begin_anew(pictures):
    rated()
    panel = panels_rating.RatingPanel(GAPS)
    assert len(pictures) == 1
    assert "You were content" in panel.answer.value
    assert panel.hearing.layout.display == "none"
    panel.once.click()
    assert panel.hearing.layout.display == ""
    assert len(ratings.sittings()) == 2
    assert len(ratings.newest(finished=True).given) == 3


def test_a_sitting_with_other_clips_is_not_gone_on_with():
    ratings.begin([400.0, 800.0])
    panel = panels_rating.RatingPanel(GAPS)
    assert panel.sitting is None
    assert panel.start.layout.display == ""


def test_what_goes_wrong_is_said_in_the_panel():
    panel = panels_rating.RatingPanel(GAPS)
    panel.once.click()
    panel.sitting.path.unlink()
    panel.sitting.path.mkdir()
    panel.rate[0].click()
    assert "could not be written" in panel.answer.value
    assert panel.sitting.given == []


def test_without_a_browser_it_says_what_it_is(capsys):
    panels_rating.rate(GAPS)
    said = capsys.readouterr().out
    assert "3 clips of one exchange" in said
    assert all(word in said for word in ratings.WORDS)
    assert not re.search(r"300|600|1,?500", said)


def test_the_lessons_gaps_are_the_default():
    panel = panels_rating.RatingPanel()
    assert panel.gaps_ms == clips.gaps()["gap_ms"].to_list()
