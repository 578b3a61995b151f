"""The page: sessions, folds and figures in a browser, served by the gateway's own process under ``/ui``.

Nothing here is loaded before somebody opens the page (``mount.py``). It reaches data through ``source.py`` only, says
everything through ``words``, draws every page inside ``shell.frame``, and takes its looks from ``static/page.css``.
Text of a conversation is never HTML: labels, text nodes, or ``markup.py``. Nothing is fetched from outside.
"""
