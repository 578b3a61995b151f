"""Writers of the sample sessions in examples/sessions: seeded, so the same bytes come out of every run.

Everything in them is invented: projects, people, companies, prices. They must never hold text from a real session,
and never depend on the clock, the environment, or the machine. Run ``python -m examples.make_sessions``.
"""
