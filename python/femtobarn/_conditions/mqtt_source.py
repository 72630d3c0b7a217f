"""Readings from an MQTT broker: each message is a value. Needs paho-mqtt, the extra ``mqtt``.

The broker keeps the messages of a recorder that is offline, and sends unacknowledged messages again: each
message arrives at least once. Messages are acknowledged on arrival, or once they are durable.
"""

from __future__ import annotations

import os
import queue
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from .._exceptions import DeniedError, InvalidError, UnsupportedError
from .reading_lines import Result, messages_to_readings, row_of_message
from .readings import PLAIN_ROW, WITHOUT_ROW_MAX, ReadingForm, Readings

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage

__all__ = ["Broker", "MqttSource", "is_broker"]

PORTS = {"mqtt": 1883, "mqtts": 8883}

PASSWORD = "FEMTOBARN_MQTT_PASSWORD"
"""Environment variable with the password of a broker whose address has a user without one."""

MESSAGES_MAX = 100_000
"""Limit of messages in the queue. While it is full, none is read from the network."""

RECONNECT_SECONDS_MAX = 30
"""The longest pause before the broker is tried again."""

QOS = 1
"""At least once."""

REFUSED = {"Bad user name or password", "Not authorized", "Banned", "Bad authentication method"}
"""Answers of a broker that do not change if it is asked again."""


class Broker(NamedTuple):
    """The address of a topic."""

    host: str
    port: int
    topic: str
    user: str | None = None
    password: str | None = None
    is_encrypted: bool = False

    @classmethod
    def parse(cls, text: str) -> Broker:
        """Return the address that a text is.

        Raises
        ------
        InvalidError
            If it is none.

        Examples
        --------
        >>> Broker.parse("mqtt://broker.example/dcs/hv/#")[:3]
        ('broker.example', 1883, 'dcs/hv/#')
        """
        # '#' in a topic is no fragment, and '?' no query.
        found = re.fullmatch(r"(mqtts?://[^/]+)/(.+)", text)
        try:
            address = urlsplit(found[1] if found else text)
            host, port = address.hostname, address.port
        except ValueError:
            host = None
        if found is None or not host:
            raise InvalidError(f"{text!r} is not a topic; write one such as mqtt://localhost:1883/dcs/hv/#")
        password = address.password or (os.environ.get(PASSWORD) if address.username else None)
        return cls(
            host,
            port or PORTS[address.scheme],
            unquote(found[2]),
            unquote(address.username) if address.username else None,
            unquote(password) if address.password and password else password,
            address.scheme == "mqtts",
        )


def is_broker(text: str) -> bool:
    """Tell whether a text is meant as the address of a topic."""
    return text.partition("://")[0] in PORTS


class Message(NamedTuple):
    """A message that arrived."""

    topic: str
    payload: bytes
    arrival: int
    """When it arrived, in nanoseconds."""
    mid: int
    qos: int


class MqttSource:
    """Messages of a topic; a thread of paho receives them.

    The channel of a message is the part of its topic from the first wildcard on, or its last part if there is
    no wildcard; the payload may name another.
    """

    def __init__(
        self,
        broker: Broker,
        client_id: str,
        *,
        acknowledges_durable: bool = False,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._broker, self._tell = broker, tell
        self._acknowledges_durable = acknowledges_durable
        levels = broker.topic.split("/")
        wildcards = [level for level, name in enumerate(levels) if name in ("+", "#")]
        self._first_level = wildcards[0] if wildcards else len(levels) - 1
        self._queue: queue.Queue[Message] = queue.Queue(MESSAGES_MAX)
        self._held: list[Message] = []
        self._rows: list[Any] = []
        self._unacknowledged: list[Message] = []
        self._number = 0
        self._error: Exception | None = None
        self._is_lost = False
        self._client = self._connected(client_id)

    def wait(self, seconds: float) -> bool:
        """Wait for a message."""
        if self._error is not None:
            raise self._error
        if self._held:
            return True
        try:
            self._held.append(self._queue.get(timeout=max(seconds, 0.001)))
        except queue.Empty:
            return False
        return True

    def first_row(self) -> dict[str, Any] | None:
        """Return the first message that is well-formed."""
        row = next((row for row in self._rows if row is not None), None)
        return PLAIN_ROW if row is None and len(self._rows) > WITHOUT_ROW_MAX else row

    def read(self, form: ReadingForm | None) -> Result | None:
        """Return the readings of the messages that came."""
        messages, self._held = self._held, []
        for _ in range(self._queue.qsize()):
            messages.append(self._queue.get_nowait())
        self._rows += [
            row_of_message(self._channel(each.topic), each.payload, each.arrival) for each in messages
        ]
        if self._acknowledges_durable:
            self._unacknowledged += messages
        if form is None:
            return Readings.empty(), []
        rows, self._rows = self._rows, []
        numbers = range(self._number + 1, self._number + 1 + len(rows))
        self._number += len(rows)
        return messages_to_readings(rows, numbers, form)

    def committed(self) -> None:
        """Acknowledge the messages that were read, if they wait for it."""
        for message in self._unacknowledged:
            self._client.ack(message.mid, message.qos)
        self._unacknowledged = []

    def close(self) -> None:
        """Disconnect. The broker keeps later messages for the next recorder of the same name."""
        self._client.disconnect()
        self._client.loop_stop()

    def _channel(self, topic: str) -> str:
        return "/".join(topic.split("/")[self._first_level :])

    def _connected(self, client_id: str) -> Client:
        try:
            from paho.mqtt import client as mqtt
            from paho.mqtt.enums import CallbackAPIVersion
        except ImportError:
            raise UnsupportedError(
                "recording from MQTT needs paho-mqtt; install it with: pip install femtobarn[mqtt]"
            ) from None
        client = mqtt.Client(
            CallbackAPIVersion.VERSION2, client_id, clean_session=False, manual_ack=self._acknowledges_durable
        )
        broker = self._broker
        if broker.user is not None:
            client.username_pw_set(broker.user, broker.password)
        if broker.is_encrypted:
            import ssl

            client.tls_set_context(ssl.create_default_context())
        client.reconnect_delay_set(1, RECONNECT_SECONDS_MAX)
        client.on_connect = self._on_connect
        client.on_connect_fail = self._on_connect_fail
        client.on_disconnect = self._on_disconnect
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        client.connect_async(broker.host, broker.port)
        client.loop_start()
        return client

    # Callbacks, in paho's thread.

    def _on_connect(self, client: Client, _data: Any, _flags: Any, code: Any, _properties: Any) -> None:
        if code.is_failure:
            reason = f"{self._place} refuses the connection: {code}"
            if str(code) in REFUSED:
                self._error = DeniedError(f"{reason}; give another user or password")
            else:
                self._tell(f"{reason}; trying again")
            return
        if self._is_lost:
            self._tell(f"{self._place} is connected again")
        self._is_lost = False
        # The broker has forgotten the subscription if it was started anew.
        client.subscribe(self._broker.topic, QOS)

    def _on_connect_fail(self, _client: Client, _data: Any) -> None:
        self._lose(f"{self._place} cannot be reached; trying again")

    def _on_disconnect(self, _client: Client, _data: Any, _flags: Any, code: Any, _properties: Any) -> None:
        if code.is_failure:
            self._lose(f"{self._place} is lost: {code}; trying again")

    def _on_subscribe(self, _client: Client, _data: Any, _mid: int, codes: Any, _properties: Any) -> None:
        if any(code.is_failure for code in codes):
            self._error = DeniedError(f"{self._place} refuses the topic {self._broker.topic!r}: {codes[0]}")

    def _on_message(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        # Blocks while too many wait: the network then carries no more.
        self._queue.put(
            Message(message.topic, bytes(message.payload), time.time_ns(), message.mid, message.qos)
        )

    def _lose(self, text: str) -> None:
        if not self._is_lost:
            self._tell(text)
        self._is_lost = True

    @property
    def _place(self) -> str:
        return f"the broker {self._broker.host}:{self._broker.port}"
