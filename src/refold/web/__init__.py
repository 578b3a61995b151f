"""The page: sessions, folds and figures in a browser, served by the gateway's own process under ``/ui``.

The framework is not loaded before somebody opens the page (``app.py``). Pages reach data through ``visit.DataSource``
only, take every text from the catalogue through ``visit.say``, and draw inside ``shell.frame`` with the classes of
``static/*.css``. Conversation text is never HTML: it becomes labels, text nodes, or nodes of ``markup.py``. The browser
fetches nothing from outside.
"""
