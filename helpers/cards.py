"""A framed message in a notebook, and the same as plain text where there is no browser.

The colours are JupyterLab's own variables, so that a card fits the light and the dark theme; their fallbacks
can be read on both. The HTML needs no kernel and no script: it still works when a notebook is opened later.
"""

from __future__ import annotations

import contextlib
import html
import re

COLOURS = {
    "good": "var(--jp-success-color1, #3a9a43)",
    "open": "var(--jp-info-color1, #2b8fc4)",
    "bad": "var(--jp-warn-color1, #d9822b)",
    "plain": "var(--jp-border-color1, #8a8a8a)",
}
CODE = (
    "font-family: var(--jp-code-font-family, monospace); font-size: var(--jp-code-font-size, 13px); "
    "background: var(--jp-layout-color2, #8a8a8a22); color: inherit; padding: 8px 12px; margin: 4px 0; "
    "border-radius: 3px; overflow-x: auto; white-space: pre;"
)
FONT = (
    "font-family: var(--jp-content-font-family, sans-serif); font-size: var(--jp-content-font-size1, 14px);"
)
QUIET = "opacity: 0.75; font-size: 0.92em;"


def card(inner: str, plain: str, *, look: str = "plain") -> None:
    """Show ``inner`` (HTML) in a frame whose colour says what it is; print ``plain`` outside a notebook.

    ``look`` is one of the keys of COLOURS. The HTML needs no kernel and no script to work later.
    """
    framed = (
        f'<div style="{FONT} line-height: 1.5; border: 1px solid var(--jp-border-color2, #8a8a8a66); '
        f"border-left: 4px solid {COLOURS[look]}; border-radius: 4px; padding: 8px 14px; margin: 4px 0; "
        f'max-width: 56em; color: inherit;">{inner}</div>'
    )
    if in_notebook():
        from IPython.display import display

        display({"text/html": framed, "text/plain": plain}, raw=True)
    else:
        print(plain)


def in_notebook() -> bool:
    """Whether this code runs in a Jupyter kernel (or IPython), where rich output can be shown."""
    with contextlib.suppress(ImportError):
        from IPython import get_ipython

        return get_ipython() is not None
    return False


def prose(text: str) -> str:
    """Plain text as HTML; what stands between backticks is shown as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))


def details(summary: str, inner: str) -> str:
    """HTML that shows ``summary`` as a button and opens to ``inner``: no script, works with the keyboard."""
    button = (
        "cursor: pointer; display: inline-block; padding: 1px 10px; margin: 6px 0 2px 0; border-radius: 3px; "
        "border: 1px solid var(--jp-border-color1, #8a8a8a); background: var(--jp-layout-color2, #8a8a8a22);"
    )
    return f'<details><summary style="{button}">{summary}</summary>{inner}</details>'
