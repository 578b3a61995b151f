"""Language models: the ports, the clients of the providers, and the summariser.

A failed summary is no error: the summariser returns a Reply that carries the reason. The SDKs are imported with the
first request. Keys appear in no repr, message or log.
"""
