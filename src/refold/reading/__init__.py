"""Reading: every message once, into events; the state of the work; everything that is written from it.

``events`` has the types. ``read`` turns one message into events, a pure function that is cached by content. ``state``
folds events into what is true now. Rules are data: ``rules/en.toml`` and ``rules/zh.toml``; weights are in
``weights.toml``. Nothing outside this package looks for sentences, calls, outcomes or values in a text.
"""
