"""A company's proxy and certificates on the way to the provider: a real CONNECT proxy on this machine ends TLS."""

import datetime
import select
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from refold.config import CompressionConfig
from refold.errors import ConfigError
from refold.manager import ContextCompressionManager
from refold.server.app import Application
from refold.server.serve import BackgroundServer
from refold.server.settings import GatewaySettings
from refold.server.upstream import find_proxy, read_authorities
from refold.testing import ScriptedProvider

x509 = pytest.importorskip("cryptography.x509")
HOST = "api.company.test"
BODY = {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}


def write_certificate(folder: Path) -> Path:
    """Write a key and a certificate for the company's host; return their one file."""
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOST)])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
    signed = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(
        key, hashes.SHA256()
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    path = folder / "company.pem"
    path.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain) + signed.public_bytes(pem),
    )
    return path


class Proxy:
    """Accepts CONNECT, ends TLS with the company's certificate, and forwards to a provider on this machine."""

    def __init__(self, provider: ScriptedProvider, certificate: Path, *, status: str = "200 ok") -> None:
        self.heads: list[str] = []
        self._provider, self._status = provider, status
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(certificate)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://user:word@127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.recv(4_096)
        self.heads.append(head.decode())
        client.sendall(f"HTTP/1.1 {self._status}\r\ncontent-length: 0\r\n\r\n".encode())
        if not self._status.startswith("200"):
            client.close()
            return
        port = int(self._provider.url.rpartition(":")[2])
        with suppress(OSError), self._tls.wrap_socket(client, server_side=True) as inner:
            inner.settimeout(0.05)
            with socket.create_connection(("127.0.0.1", port)) as upstream:
                self._relay(inner, upstream)

    def _relay(self, inner: socket.socket, upstream: socket.socket) -> None:
        while True:
            try:
                data = inner.recv(65_536)
                if not data:
                    return
                upstream.sendall(data)
            except TimeoutError:
                pass
            if select.select([upstream], [], [], 0.01)[0]:
                inner.sendall(upstream.recv(65_536))

    def close(self) -> None:
        self._listener.close()


@contextmanager
def start_gateway(folder: Path, upstream: str, environ: Mapping[str, str]) -> Iterator[str]:
    settings = GatewaySettings(port=0, openai_upstream=f"{upstream}/v1", anthropic_upstream=upstream, shutdown_s=2)
    manager = ContextCompressionManager(CompressionConfig(), folder)
    with BackgroundServer(Application(manager, settings, environ=environ)) as server:
        yield server.url


def ask(url: str) -> tuple[int, str]:
    import httpx2

    done = httpx2.post(f"{url}/v1/messages", json=BODY, headers={"anthropic-version": "2023-06-01", "x-api-key": "key"})
    return done.status_code, done.text


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    return write_certificate(tmp_path)


def test_requests_go_through_the_companys_proxy_with_its_certificates(tmp_path: Path, certificate: Path) -> None:
    with ScriptedProvider("hello") as provider:
        proxy = Proxy(provider, certificate)
        environ = {"HTTPS_PROXY": proxy.url, "NODE_EXTRA_CA_CERTS": str(certificate)}
        with start_gateway(tmp_path, f"https://{HOST}", environ) as url:
            status, text = ask(url)
        proxy.close()
    assert status == 200, text
    assert "hello" in text
    assert proxy.heads[0].startswith(f"CONNECT {HOST}:443 ")
    assert "proxy-authorization: basic dxnlcjp3b3jk" in proxy.heads[0].lower()
    assert [one.headers["x-api-key"] for one in provider.requests] == ["key"]
    assert "proxy-authorization" not in provider.requests[0].headers


def test_the_providers_certificate_is_still_checked(tmp_path: Path, certificate: Path) -> None:
    with ScriptedProvider("hello") as provider:
        proxy = Proxy(provider, certificate)
        with start_gateway(tmp_path, f"https://{HOST}", {"https_proxy": proxy.url}) as url:
            status, text = ask(url)
        proxy.close()
    assert (status, provider.requests) == (503, [])
    assert "cannot be reached" in text


def test_a_proxy_that_refuses_is_named(tmp_path: Path, certificate: Path) -> None:
    with ScriptedProvider("hello") as provider:
        proxy = Proxy(provider, certificate, status="407 Proxy Authentication Required")
        with start_gateway(tmp_path, f"https://{HOST}", {"HTTPS_PROXY": proxy.url}) as url:
            status, text = ask(url)
        proxy.close()
    assert status == 503
    assert "the proxy on the way to the anthropic upstream answered 407" in text


PROXY = "http://proxy.company.test:3128"


@pytest.mark.parametrize(
    ("url", "environ", "proxy"),
    [
        ("https://api.anthropic.com", {"HTTPS_PROXY": PROXY}, PROXY),
        ("https://api.anthropic.com", {"https_proxy": "proxy.company.test:3128"}, PROXY),
        ("https://api.anthropic.com", {"HTTP_PROXY": PROXY}, None),
        ("http://llm.company.test/v1", {"HTTP_PROXY": PROXY}, PROXY),
        ("https://api.anthropic.com", {"ALL_PROXY": PROXY}, PROXY),
        ("https://api.anthropic.com", {"HTTPS_PROXY": PROXY, "NO_PROXY": "localhost,.anthropic.com"}, None),
        ("https://api.anthropic.com", {"HTTPS_PROXY": PROXY, "no_proxy": "*"}, None),
        ("https://llm.company.test:8443/v1", {"HTTPS_PROXY": PROXY, "NO_PROXY": "company.test"}, None),
        ("http://127.0.0.1:9000/v1", {"HTTP_PROXY": PROXY, "ALL_PROXY": PROXY}, None),
        ("http://localhost:9000/v1", {"HTTP_PROXY": PROXY}, None),
        ("http://[::1]:9000/v1", {"HTTP_PROXY": PROXY}, None),
    ],
)
def test_the_environment_names_the_proxy_of_an_address(url: str, environ: dict[str, str], proxy: str | None) -> None:
    assert find_proxy(url, environ) == proxy


def test_a_proxy_of_another_kind_is_refused_rather_than_passed_by() -> None:
    with pytest.raises(ConfigError, match=r"socks5://proxy.company.test:1080 .* is not an HTTP proxy"):
        find_proxy("https://api.anthropic.com", {"ALL_PROXY": "socks5://me:word@proxy.company.test:1080"})


def test_certificates_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"NODE_EXTRA_CA_CERTS names .*absent.pem"):
        read_authorities({"NODE_EXTRA_CA_CERTS": str(tmp_path / "absent.pem")})
