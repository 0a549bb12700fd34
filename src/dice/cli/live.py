"""The denoising, live: masked positions filling in on a terminal, plain lines elsewhere."""

import time
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from dice.engine import StepEvent

MASK_GLYPH = "▒▒"
_VIEW_LINES = 14
_PLAIN_EVERY_S = 3.0


class Track:
    """What is known of one sequence: the text of every position, `None` where it is masked."""

    def __init__(self) -> None:
        self.texts: list[str | None] = []
        self.forwards = 0
        self.fresh: frozenset[int] = frozenset()
        self.finish_reason: str | None = None

    def apply(self, event: StepEvent) -> None:
        self.texts += [None] * (event.generated_stop - len(self.texts))
        for position, text in zip(event.positions, event.texts, strict=True):
            self.texts[position] = text
        self.forwards += 1
        self.fresh = frozenset(event.positions)
        self.finish_reason = event.finish_reason or self.finish_reason

    @property
    def tokens(self) -> int:
        return sum(text is not None for text in self.texts)

    def summary(self) -> str:
        rate = self.tokens / max(1, self.forwards)
        return f"{self.tokens} tokens, {self.forwards} forwards, {rate:.1f} tokens/forward"

    def view(self, lines: int) -> Text:
        """The last lines: committed text, what this forward placed, masks."""
        whole = Text(no_wrap=True, overflow="ellipsis")
        for position, text in enumerate(self.texts):
            if text is None:
                whole.append(MASK_GLYPH, style="magenta")
            elif not text.startswith("<|"):
                whole.append(text, style="bold green" if position in self.fresh else "")
        shown = whole.split("\n", allow_blank=True)[-lines:]
        padding = [Text("")] * (lines - len(shown))
        return Text("\n").join([*shown, *padding])


class DenoisingView(Protocol):
    """Shows step events between `__enter__` and `__exit__`."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def on_step(self, event: StepEvent) -> None: ...


def denoising_view(console: Console, candidates: int) -> DenoisingView:
    """The view that fits the console."""
    if console.is_terminal:
        return _LiveView(console, candidates)
    return _PlainView(console, candidates)


class _LiveView:
    def __init__(self, console: Console, candidates: int) -> None:
        self._tracks = [Track() for _ in range(candidates)]
        self._shown = 0
        self._live = Live(
            console=console, refresh_per_second=12, get_renderable=self._render, transient=True
        )
        self._console = console

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, traceback)
        if kind is None:
            self._console.print(self._table())

    def on_step(self, event: StepEvent) -> None:
        self._tracks[event.request].apply(event)

    def _render(self) -> RenderableType:
        if self._tracks[self._shown].finish_reason:  # follow one that is still being written
            running = [i for i, t in enumerate(self._tracks) if not t.finish_reason]
            self._shown = running[0] if running else self._shown
        track = self._tracks[self._shown]
        title = f"candidate {self._shown + 1}: {MASK_GLYPH} = masked"
        body = Panel(track.view(_VIEW_LINES), title=title, title_align="left", border_style="dim")
        return Group(self._table(), body)

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for index, track in enumerate(self._tracks):
            state = {None: "writing", "stop": "finished", "length": "cut at its length limit"}
            table.add_row(
                f"candidate {index + 1}",
                track.summary(),
                Text(state.get(track.finish_reason, ""), style="dim"),
            )
        return table


class _PlainView:
    def __init__(self, console: Console, candidates: int) -> None:
        self._tracks = [Track() for _ in range(candidates)]
        self._console = console
        self._last = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None

    def on_step(self, event: StepEvent) -> None:
        track = self._tracks[event.request]
        track.apply(event)
        if event.finish_reason:
            how = "finished" if event.finish_reason == "stop" else "cut at its length limit"
            self._console.print(f"candidate {event.request + 1}: {how}, {track.summary()}")
        elif time.monotonic() - self._last > _PLAIN_EVERY_S:
            self._last = time.monotonic()
            masked = track.texts.count(None)
            self._console.print(
                f"candidate {event.request + 1}: {track.summary()}, {masked} masked in its block"
            )
