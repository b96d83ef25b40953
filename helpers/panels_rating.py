"""The panel of lesson 01: hear the clips without knowing their gaps, rate them, and see your own tolerance.

Nothing about a gap is shown until all clips of a sitting are rated: their order is drawn by chance, and all
have the same length, so a player does not give them away. Each rating is kept the moment it is given
(:mod:`helpers.ratings`); a sitting that was broken off goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import ipywidgets

from helpers import cards, clips, figures, ratings, telephone
from helpers.panels import _Panel
from helpers.settings import CourseError

ONCE, TWICE = "Begin: each clip once", "Begin: each clip twice"
LOOKS = {
    "fine": "as quick as you would wish",
    "noticeable": "you notice the wait and do not mind it",
    "annoying": "you mind it",
    "would hang up": "you would not stay for a second one",
}


class RatingPanel(_Panel):
    """Clips to hear and four buttons each; then the ratings against the gaps.

    Attributes:
        sitting: the one that is being rated, or the finished one that is shown; None before the first.
    """

    def __init__(self, gaps_ms: Sequence[float] | None = None) -> None:
        """``gaps_ms``: the gaps to rate; those of lesson 01 if left out."""
        self.gaps_ms = [float(gap) for gap in (clips.gaps()["gap_ms"] if gaps_ms is None else gaps_ms)]
        self.clips = clips.same_length(self.gaps_ms)
        self.sitting: ratings.Sitting | None = None
        self.status = ipywidgets.HTML()
        self.audio = ipywidgets.Audio(format="wav", autoplay=False, loop=False)
        self.audio.add_class("course-clip")
        self.rate = [
            ipywidgets.Button(description=word, tooltip=LOOKS[word], layout=ipywidgets.Layout(width="10em"))
            for word in ratings.WORDS
        ]
        self.once = ipywidgets.Button(description=ONCE, layout=ipywidgets.Layout(width="16em"))
        self.twice = ipywidgets.Button(description=TWICE, layout=ipywidgets.Layout(width="16em"))
        self.hearing = ipywidgets.VBox([self.audio, ipywidgets.HBox(self.rate)])
        self.start = ipywidgets.HBox([self.once, self.twice])
        super().__init__("How long is too long?", [self.status, self.start, self.hearing])
        self.answer.value = ""  # the status says what to do first
        for number, button in enumerate(self.rate, start=1):
            button.on_click(partial(self._rated, number))
        self.once.on_click(lambda _: self.begin(1))
        self.twice.on_click(lambda _: self.begin(2))
        self._take_up()

    def begin(self, rounds: int = 1) -> None:
        """Begin a new sitting; earlier ones stay as they are."""
        try:
            self.sitting = ratings.begin(self.gaps_ms, rounds=rounds)
        except CourseError as error:
            return self._fail(error)
        self.picture.clear_output()
        self._say(cards.prose("Play the clip, as often as you like, then press one of the four buttons."))
        return self._next()

    def _take_up(self) -> None:
        """Go on with a sitting that was broken off, or show the last finished one, or wait."""
        open_one = ratings.newest(finished=False)
        if open_one is not None and sorted(set(open_one.order)) == sorted(self.gaps_ms):
            self.sitting = open_one
            done = len(open_one.given)
            self._say(cards.prose(f"You have rated {done} of these clips already. Go on with the next one."))
            return self._next()
        self.sitting = ratings.newest(finished=True)
        if self.sitting is None:
            self._wait("Nothing is rated yet. Find a quiet moment, or headphones, and begin.")
            return None
        return self._finish()

    def _rated(self, rating: int, _: object = None) -> None:
        try:
            self.sitting.rate(rating)
        except CourseError as error:
            return self._fail(error)
        if self.sitting.next_ms is None:
            return self._finish()
        word = ratings.WORDS[rating - 1]
        self._say(cards.prose(f"Clip {len(self.sitting.given)}: {word}. Kept. Here is the next one."))
        return self._next()

    def _next(self) -> None:
        gap_ms, number = self.sitting.next_ms, len(self.sitting.given) + 1
        self.audio.value = telephone.wav(self.clips[gap_ms])
        self._show(hearing=True, status=f"Clip {number} of {len(self.sitting.order)}")

    def _finish(self) -> None:
        frame = self.sitting.table().assign(server="yourself")
        self._wait(f"All clips are rated. Your ratings are kept in {self.sitting.path}.")
        self._say(cards.prose(ratings.tolerance(frame).sentence()), "good")
        self.picture.clear_output()
        with self.picture:
            figures.show(figures.tolerance, frame, title="Your own tolerance")

    def _wait(self, status: str) -> None:
        self.audio.value = b""
        self._show(hearing=False, status=status)

    def _show(self, *, hearing: bool, status: str) -> None:
        self.hearing.layout.display = "" if hearing else "none"
        self.start.layout.display = "none" if hearing else ""
        self.status.value = f'<div style="{cards.FONT}">{cards.prose(status)}</div>'

    def _static(self) -> tuple[str, str]:
        count = len(self.gaps_ms)
        seconds = max(len(samples) for samples in self.clips.values()) / telephone.RATE_HZ
        said = (
            f"{count} clips of one exchange, {seconds:.0f} s each, that differ in one thing: how long the "
            f"caller waits. Rate each before you know its gap. Four answers: "
        )
        words = "; ".join(f"{word} ({LOOKS[word]})" for word in ratings.WORDS)
        plain = f"{said}{words}. The panel needs JupyterLab."
        return f"{cards.prose(said)}{cards.prose(words)}.", plain


def rate(gaps_ms: Sequence[float] | None = None) -> RatingPanel:
    """Show the panel, and return it."""
    panel = RatingPanel(gaps_ms)
    panel.show()
    return panel
