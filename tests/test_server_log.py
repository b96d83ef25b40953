"""vLLM's log: lines become rows, those that matter are found, and the cause of an end is the first error."""

import math

import pandas as pd
import pytest

from helpers import drills, figures, server_log
from helpers.settings import CourseError

SAMPLE = """\
INFO 12-31 23:59:50 [importing.py:88] Triton not installed or not compatible
(APIServer pid=57) INFO 12-31 23:59:54 [api_utils.py:273] non-default args: {'port': 8000}
(APIServer pid=57) INFO 01-01 00:00:02 [model.py:1883] Using max model len 4096
(EngineCore pid=59) INFO 01-01 00:00:12 [core.py:121] Initializing a V1 LLM engine (v0.27.1) with config
(Worker pid=61) INFO 01-01 00:00:21 [cpu_model_runner.py:131] Starting to load model /m...
(Worker pid=61) Loading safetensors checkpoint shards: 100% Completed | 1/1
(Worker pid=61) INFO 01-01 00:00:22 [default_loader.py:430] Loading weights took 0.22 seconds
(EngineCore pid=59) INFO 01-01 00:00:25 [core.py:355] init engine (profile) took 2.77 s
(APIServer pid=57) INFO:     Application startup complete.
(APIServer pid=57) INFO:     127.0.0.1:43202 - "GET /health HTTP/1.1" 200 OK
(APIServer pid=57) INFO:     127.0.0.1:43202 - "POST /v1/chat/completions HTTP/1.1" 404 Not Found
"""


def test_a_line_becomes_its_parts():
    log = server_log.frame(SAMPLE)
    assert len(log) == len(SAMPLE.splitlines())
    assert log.iloc[1].to_dict() == {
        "line": 2,
        "at_s": 4.0,
        "process": "APIServer",
        "pid": 57,
        "level": "INFO",
        "source": "api_utils.py:273",
        "message": "non-default args: {'port': 8000}",
    }
    first = log.iloc[0]
    assert (first["process"], first["pid"], first["at_s"]) == ("", 0, 0.0)


def test_lines_of_other_kinds_are_rows_too_with_the_time_before_them():
    log = server_log.frame(SAMPLE)
    bar, health = log.iloc[5], log.iloc[9]
    assert (bar["level"], bar["source"], bar["process"]) == ("", "", "Worker")
    assert bar["at_s"] == log.iloc[4]["at_s"]
    assert (health["level"], health["message"]) == ("INFO", '127.0.0.1:43202 - "GET /health HTTP/1.1" 200 OK')


def test_the_clock_goes_on_over_new_year():
    assert server_log.frame(SAMPLE)["at_s"].tolist()[:3] == [0.0, 4.0, 12.0]


def test_an_empty_log_is_an_empty_table():
    log = server_log.frame("")
    assert len(log) == 0
    assert len(server_log.explained(log)) == 0
    assert len(server_log.startup(log)) == 0
    assert server_log.cause("") is None
    assert server_log.end("") == []


def test_what_has_no_time_yet_has_none():
    assert math.isnan(server_log.frame("usage: api_server.py\n" + SAMPLE).iloc[0]["at_s"])


def test_the_lines_that_mean_something_are_explained_in_their_order():
    found = server_log.explained(server_log.frame(SAMPLE), width=20)
    assert found["message"].str.len().max() <= 20
    assert found["meaning"].tolist()[:2] == [
        "what was understood of your command",
        "prompt plus answer may be so long",
    ]
    assert "404" in found["look_at"].iloc[-1]
    assert found["at_s"].is_monotonic_increasing


def test_the_phases_of_a_start_follow_each_other():
    phases = server_log.startup(server_log.frame(SAMPLE), before_s=6.0, origin="recorded")
    assert phases["from_s"].tolist()[1:] == phases["to_s"].tolist()[:-1]
    assert phases["from_s"].iloc[0] == 0
    assert phases["to_s"].tolist() == [10.0, 18.0, 28.0, 37.0, 38.0, 41.0, 41.0]
    assert set(phases["origin"]) == {"recorded"}


def test_a_phase_that_is_not_in_the_log_is_in_the_next():
    text = "\n".join(line for line in SAMPLE.splitlines() if "Starting to load" not in line)
    phases = server_log.startup(server_log.frame(text))
    assert len(phases) == 6
    assert phases["from_s"].tolist()[1:] == phases["to_s"].tolist()[:-1]


@pytest.mark.parametrize(
    ("drill", "words"),
    [
        ("parser", "KeyError: 'invalid tool call parser: hermess"),
        ("port", "OSError: [Errno 98] Address already in use"),
        ("memory", "less than requested memory for kv"),
    ],
)
def test_the_cause_is_found_in_real_logs(drill, words):
    cause = server_log.cause(drills.recorded_start(drill).log)
    assert words in cause
    assert "pid=" not in cause


def test_the_last_word_of_a_real_log_is_only_the_messenger():
    log = drills.recorded_start("memory").log
    assert "See root cause above" in server_log.end(log, 1)[0]
    assert any("See root cause above" in error for error in server_log.exceptions(log))
    assert len(server_log.exceptions(log)) == len(set(server_log.exceptions(log)))


def test_a_warning_that_quotes_an_error_is_none():
    assert server_log.cause("WARNING 12-01 07:44:14 [a.py:1] errors like `OSError: [Errno 24] x`") is None


def test_where_every_error_points_up_the_first_is_given():
    died = "(APIServer pid=1) ERROR 12-01 07:44:14 [a.py:1] x.EngineDeadError: See stack trace (above)."
    assert server_log.cause(died).startswith("x.EngineDeadError")


def test_the_reason_is_taken_from_below_pydantics_exception():
    text = "pydantic_core.ValidationError: 1 validation error for ModelConfig\n  Value error, too long\n"
    assert server_log.cause(text) == "Value error, too long"


def test_an_unknown_flag_is_a_cause():
    text = "usage: a [--b]\napi_server.py: error: unrecognized arguments: --c\n"
    assert server_log.cause(text) == "api_server.py: error: unrecognized arguments: --c"


def test_the_end_leaves_pythons_clean_up_out():
    text = "last words\n/x/resource_tracker.py:254: UserWarning: 1 leaked\n  warnings.warn(1)\n\n"
    assert server_log.end(text, 2) == ["last words"]


def test_the_live_engines_log_has_every_phase(live_server):
    """If vLLM words its lines differently, this is where it shows."""
    start = drills.engine_log(live_server)
    phases = server_log.startup(server_log.frame(start.text), before_s=start.before_s, origin=start.origin)
    assert phases["phase"].tolist() == [phase for phase, _ in server_log.PHASES]
    assert (phases["to_s"] >= phases["from_s"]).all()
    assert len(server_log.explained(server_log.frame(start.text))) >= 12


# --- its figure -------------------------------------------------------------------------------------------


def phases(origin="measured"):
    return server_log.startup(server_log.frame(SAMPLE), before_s=6.0, origin=origin)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("origin", ["measured", "recorded"])
def test_the_figure_says_where_the_time_went(origin, theme):
    figure = figures.startup_phases(phases(origin).assign(server="vLLM on CPU"), title="A start", theme=theme)
    assert "load the weights: 1 s" in figures.alt_text(figure)
    assert "open the HTTP server: under 1 s" in figures.alt_text(figure)
    assert "41 seconds" in figures.alt_text(figure)
    assert figure.note == f"{origin} on vLLM on CPU, n = 1"  # one start, however many phases
    assert any(origin in text.get_text() for legend in figure.legends for text in legend.get_texts())


def test_the_figure_refuses_a_phase_that_ends_before_it_begins():
    wrong = phases()
    wrong.loc[2, "to_s"] = 1.0
    with pytest.raises(CourseError, match="Row 2"):
        figures.startup_phases(wrong)
    with pytest.raises(CourseError, match="origin"):
        figures.startup_phases(pd.DataFrame(phases()).drop(columns="origin"))


def test_a_line_of_another_process_that_comes_late_costs_no_phase():
    """The log's last line has no time of its own and takes that of the line before, whoever wrote it."""
    lines = SAMPLE.splitlines()
    last = next(n for n, line in enumerate(lines) if "Application startup complete" in line)
    late = next(line for line in lines if server_log.LINE.match(line))  # the oldest time there is
    mixed = server_log.frame("\n".join([*lines[:last], late, *lines[last:]]))
    assert server_log.startup(mixed)["phase"].tolist() == [phase for phase, _ in server_log.PHASES]
