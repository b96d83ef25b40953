"""Predictions against what was published: every point, one factor fitted on one, errors as they are."""

from __future__ import annotations

import pandas as pd
import pytest

from helpers import calibration, hardware, memory, predictors
from helpers.figures import alt_text
from helpers.figures_capacity import capacity_cases, live_call_curves, predictions
from helpers.settings import CourseError


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return calibration.table()


def test_every_point_says_who_when_and_under_which_conditions():
    points = calibration.points()
    assert points["id"].is_unique
    assert set(points["origin"]) == {"published"}
    for column in ("conditions", "source", "date", "unit", "metric_unit"):
        assert (points[column].str.len() > 1).all(), column
    assert set(points["known"]) <= {"yes", "partly", "no"}
    assert set(points["gpu"]) - {""} <= set(hardware.table().index)
    assert set(points["precision"]) - {""} <= set(memory.FORMATS)
    assert set(points["shape"]) <= {"closed", "burst"}


def test_the_points_of_the_sources_are_there():
    """Spot checks against the published tables, one a source."""
    points = calibration.points().set_index("id")["value"]
    assert points["vultr.fp8.c512.ttft_ms"] == 2610
    assert points["sglang.b200.bf16.tok_s"] == 5795
    assert points["baseten.2h100.c128.tok_s"] == 7141
    assert points["l40s.fp8.c16.ttft_p95_ms"] == 518
    assert points["baseten.listing.c32.ttft_p50_ms"] == 10626
    assert points["spark.bf16.c1.stream_tok_s_p50"] == 23.4
    assert points["vultr.fp8.c1.ttft_ms"] == 362
    assert points["baseten.rtx.c64.tok_s"] == 883.86
    levels = calibration.points().query("gpu == 'B200' and gpus == 2")["concurrency"]
    assert sorted(levels.unique()) == [1, 8, 16, 32, 64, 128, 256, 512, 1024]
    assert (levels.value_counts() == 3).all()


def test_each_model_is_held_against_each_point(table):
    count = len(calibration.points())
    assert table["model"].value_counts().to_dict() == {
        calibration.OURS: count, "aiconfigurator": count, "dynamo.replay": count,
    }  # fmt: skip
    assert set(table["origin"]) == {"modelled"}
    silent = table[table["predicted"].isna()]
    assert (silent["why"].str.len() > 5).all()
    assert (silent[silent["model"] == calibration.OURS]["gpu"] == "").all()


def test_one_point_fits_one_factor_and_no_other(table):
    fitted = table[table["fitted"]]
    assert not fitted.duplicated(["model", "gpu", "precision"]).any()
    assert fitted["corrected_ratio"].to_numpy() == pytest.approx(1)
    for _, rows in table.groupby(["model", "gpu", "precision"]):
        assert rows["factor"].nunique() == 1
    times = table["metric_unit"] == "ms"
    assert table["corrected"][times].to_numpy() == pytest.approx(
        (table["predicted"] * table["factor"])[times].to_numpy(), nan_ok=True
    )
    assert table["corrected"][~times].to_numpy() == pytest.approx(
        (table["predicted"] / table["factor"])[~times].to_numpy(), nan_ok=True
    )


def test_the_summary_leaves_fitted_points_out_and_reports_misses(table):
    found = calibration.summary(table).set_index(["model", "kind"])
    ours = (table["model"] == calibration.OURS) & table["predicted"].notna()
    tests = table[ours & ~table["fitted"] & ~table["same_run"]]
    assert 0 < len(tests) < (ours & ~table["fitted"]).sum(), "other numbers of a fit's own run are no test"
    row = found.loc[calibration.OURS, "all"]
    assert row["points"] == len(tests)
    assert row["median_error"] == pytest.approx(tests["error"].median())
    assert row["worst_error"] == pytest.approx(tests["error"].max())
    assert row["within_goal"] == (row["median_error"] <= calibration.GOAL)


def test_the_error_is_in_the_unit_of_its_kind_and_the_same_in_table_and_figure(table):
    """The speed of one stream is told as time per token, in the summary and in the picture."""
    stream = table[table["metric"].str.startswith("stream") & table["test"]]
    assert len(stream) > 1
    for row in stream.to_dict("records"):
        assert row["error"] == pytest.approx(abs((1 / row["corrected"]) / (1 / row["published"]) - 1))
    others = table[~table["metric"].str.startswith("stream") & table["test"]]
    assert others["error"].to_numpy() == pytest.approx((others["corrected_ratio"] - 1).abs().to_numpy())
    words = alt_text(predictions(table))
    kinds = {"time per token": "time per token, ms", "time to first token": "time to first token, ms"}
    kinds |= {"throughput": "tokens per second"}
    rows = calibration.summary(table)
    told = rows[rows["kind"].isin(kinds)]
    assert len(told) > 5
    for row in told.to_dict("records"):
        assert (
            f"{kinds[row['kind']]}, {row['model']}: {row['points']} points, median error "
            f"{row['median_error']:.0%}, worst {row['worst_error']:.0%}"
        ) in words


def test_the_rtx_pro_6000_is_fitted_on_its_time_per_token(table):
    row = calibration.factors(table).set_index(["model", "gpu"]).loc[(calibration.OURS, "RTX PRO 6000")]
    assert row["point"] == "baseten.rtx.c1.tpot_p50_ms"
    assert row["tests"] > 3


def test_what_our_model_reached_stays_reached(table):
    """Looser than today's 13 % and 15 %, so that a change that makes it much worse is seen."""
    found = calibration.summary(table).set_index(["model", "kind"])["median_error"]
    assert found[calibration.OURS, "time per token"] < 0.25
    assert found[calibration.OURS, "conditions known"] < 0.30


def test_points_that_nobody_explains_are_not_bent(table):
    ours = table[table["model"] == "aiconfigurator"].set_index("id")
    assert ours["ratio"]["sglang.b200.bf16.tok_s"] == pytest.approx(3.57, abs=0.01)
    assert ours["ratio"]["vultr.nvfp4.peak.tok_s"] == pytest.approx(2.69, abs=0.01)
    for start in calibration.OPEN:
        rows = table[table["id"].str.startswith(start)]
        assert len(rows)
        assert (rows["why"].str.len() > 20).all()


def test_factors_and_one_that_is_not_there(table):
    found = calibration.factors(table)
    assert (found["factor"] > 0).all()
    row = found[
        (found["model"] == calibration.OURS) & (found["gpu"] == "B200") & (found["precision"] == "BF16")
    ]
    assert calibration.factor("B200", "BF16") == pytest.approx(float(row["factor"].iloc[0]))
    with pytest.raises(CourseError, match="Nothing published"):
        calibration.factor("H200", "NVFP4")


def test_tools_rows_belong_to_the_published_points():
    cases = predictors.published_cases()
    assert len(cases) == len(set(cases))
    recorded = predictors.recorded_points()
    mine = recorded[recorded["purpose"] == "published point"]
    assert len(mine) == len(cases) == len(predictors.recorded_replay())
    assert list(mine["concurrency"]) == [case.concurrency for case in cases]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_figure_of_predictions(table, theme):
    figure = predictions(table, theme=theme, title="x")
    assert "median error" in alt_text(figure)
    assert "missing" in alt_text(figure)
    assert figure.note.startswith("predictions: modelled")
    with pytest.raises(CourseError, match="no column"):
        predictions(table.drop(columns=["test"]))


def test_figures_of_the_line_and_of_cases():
    curve = pd.DataFrame(
        {
            "live_calls": [8, 80, 800],
            "ttfat_p50_ms": [60.0, 70.0, 300.0],
            "ttfat_p95_ms": [65.0, 90.0, 1200.0],
            "series": "BF16",
            "origin": "modelled",
        }
    )
    marks = pd.DataFrame({"number": [44], "load": ["simulated processes"], "origin": ["published"]})
    marks = marks.assign(source="the card", date="2026-08")
    figure = live_call_curves(curve, marks=marks, limit_ms=600)
    for words in ("BF16 (modelled)", "1,200 ms at 800", "card: 44 simulated processes", "limit is 600 ms"):
        assert words in alt_text(figure)
    cases = pd.DataFrame(
        {
            "what": ["as it is", "format"],
            "value": ["", "NVFP4"],
            "live_calls": [100, 300],
            "start": [True, False],
            "origin": "modelled",
        }
    )
    assert "format NVFP4: 300 (modelled)" in alt_text(capacity_cases(cases))
    assert "unless" not in capacity_cases(cases).note
    told = capacity_cases(cases.assign(factor=[2.7, 1.5], max_num_seqs=128))
    assert "format NVFP4 (times 1.5): 300 (modelled)" in alt_text(told)
    for words in (told.note, alt_text(told)):
        assert "times multiplied by 2.7 and 128 seats, unless a label says otherwise" in words
    with pytest.raises(CourseError, match="no column"):
        capacity_cases(cases.drop(columns=["start"]))
