"""Integrations: refold inside other people's clients and frameworks. Each module is imported only when it is used."""
