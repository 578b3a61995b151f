"""The official OpenAI client through the gateway: the address is all that changes.

Run it anywhere: ``python examples/gateway_client.py``. Gateway and provider run here for as long as it takes; in life
``refold serve`` is the gateway. It needs the extras ``server`` and ``llm``.
"""

from __future__ import annotations

import tempfile

from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam

from refold import CompressionConfig, ContextCompressionManager
from refold.server.app import Application
from refold.server.serve import BackgroundServer
from refold.server.settings import GatewaySettings
from refold.testing import ScriptedProvider

WINDOW = 16_000


def main() -> None:
    with ScriptedProvider("Noted.", window=WINDOW) as provider, tempfile.TemporaryDirectory() as folder:
        manager = ContextCompressionManager(CompressionConfig(window=WINDOW), folder)
        settings = GatewaySettings(port=0, openai_upstream=provider.openai_url)
        with BackgroundServer(Application(manager, settings)) as gateway:
            client = OpenAI(base_url=f"{gateway.url}/v1", api_key="any")
            said = "".join(f"On day {day} the harbour was quiet and the nets stayed dry. " for day in range(4_000))
            diary: list[ChatCompletionMessageParam] = [
                {"role": "assistant", "content": said[at : at + 2_000]} for at in range(0, len(said), 2_000)
            ]
            answer = client.chat.completions.with_raw_response.create(
                model="scripted-1",
                messages=[
                    {"role": "user", "content": "Keep the harbour's diary."},
                    *diary,
                    {"role": "user", "content": "And today?"},
                ],
            )
            print("tokens:", answer.headers["x-refold-tokens"])
            print("answer:", answer.parse().choices[0].message.content)
        manager.close()


if __name__ == "__main__":
    main()
