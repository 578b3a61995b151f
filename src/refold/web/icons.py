"""The page's own icons: strokes on a grid of 24, drawn with the colour of the text around them."""

from __future__ import annotations

from nicegui import ui

_STROKES = {
    "list": "M4 6h16M4 12h16M4 18h10",
    "chat": "M4 5h16v11H10l-5 4v-4H4z",
    "search": "M11 4a7 7 0 1 0 0 14a7 7 0 0 0 0-14M16 16l5 5",
    "book": "M5 4h10a3 3 0 0 1 3 3v13H8a3 3 0 0 1-3-3zM5 17a3 3 0 0 1 3-3h10",
    "chart": "M4 20V4M4 20h16M8 16l4-5l3 3l5-7",
    "sliders": "M4 7h9M17 7h3M15 5v4M4 17h3M11 17h9M9 15v4M4 12h14M20 12h0",
    "sun": "M12 8a4 4 0 1 0 0 8a4 4 0 0 0 0-8M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1 1M18 18l1 1M5 19l1-1M18 6l1-1",
    "moon": "M19 14.5A8 8 0 0 1 9.5 5a7.5 7.5 0 1 0 9.5 9.5z",
    "half": "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
    "pen": "M4 20l1-5L16 4l4 4L9 19zM14 6l4 4",
    "down": "M12 4v11M7 11l5 5l5-5M5 20h14",
    "trash": "M5 7h14M9 7V4h6v3M7 7l1 13h8l1-13M10.5 11v5M13.5 11v5",
    "fold": "M4 4h10l6 6v10H4zM14 4v6h6M8 14h8",
    "unfold": "M12 9V3M9 6l3-3l3 3M12 15v6M9 18l3 3l3-3M4 12h16",
    "open": "M9 6l6 6l-6 6",
    "close": "M6 6l12 12M18 6L6 18",
    "more": "M5 12h.01M12 12h.01M19 12h.01",
    "plus": "M12 5v14M5 12h14",
    "stop": "M7 7h10v10H7z",
    "play": "M8 5l11 7l-11 7z",
    "pause": "M9 6v12M15 6v12",
    "send": "M4 12l16-8l-5 17l-3-7z",
    "copy": "M9 9h11v11H9zM5 15H4V4h11v1",
    "leave": "M14 4h5v16h-5M10 8l-4 4l4 4M6 12h9",
    "tool": "M14 6a4 4 0 0 1 5 5l-2-1l-2 2l1 2a4 4 0 0 1-5-5L5 4L4 5z",
    "pin": "M9 4h6l-1 6l3 3H7l3-3zM12 13v7",
    "compress": "M12 3v6M9 6l3 3l3-3M12 21v-6M9 18l3-3l3 3M4 12h16",
    "undo": "M8 5L4 9l4 4M4 9h10a5 5 0 0 1 0 10h-4",
    "redo": "M16 5l4 4l-4 4M20 9H10a5 5 0 0 0 0 10h4",
    "back": "M15 6l-6 6l6 6",
    "check": "M5 12l5 5l9-10",
    "upload": "M12 16V4M7 9l5-5l5 5M5 20h14",
    "end": "M12 4v13M7 12l5 5l5-5M5 20h14",
}


def write_styles() -> str:
    """Return the style rules of all icons; the drawings are data within them, nothing is fetched."""
    rules = []
    for name, strokes in _STROKES.items():
        drawing = (
            "%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24' fill='none' stroke='black' "
            f"stroke-width='1.8' stroke-linecap='round' stroke-linejoin='round'%3E%3Cpath d='{strokes}'/%3E%3C/svg%3E"
        )
        rules.append(f'.icon-{name}{{--icon:url("data:image/svg+xml,{drawing}")}}')
    return "\n".join(rules)


def icon(name: str) -> ui.element:
    """Draw an icon; what it means must be said in words beside it or in the label of its button."""
    assert name in _STROKES, name
    return ui.element("i").classes(f"icon icon-{name}").props("aria-hidden=true")
