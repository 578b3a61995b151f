"""The gateway and the HTTP interface: any agent, any client, one URL.

What needs no compression passes through byte for byte, both ways. If refold itself fails, the original request goes
through and a header says so. A client never chooses an upstream, and no credential is stored or logged.
"""
