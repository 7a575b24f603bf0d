"""One client in a room: what it and the server say to each other at ``/rtc``.

Two peer connections, as LiveKit has them. The client offers the one it publishes over: its audio
and its data packets. The server offers the other, which carries the guest's.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from typing import Any

from aiohttp import WSMsgType, web
from aiortc import MediaStreamTrack, RTCDataChannel, RTCPeerConnection, RTCSessionDescription
from aiortc.exceptions import InvalidStateError
from aiortc.mediastreams import MediaStreamError
from aiortc.sdp import candidate_from_sdp
from livekit.protocol import models, rtc

from tests.rooms.guest import MICROPHONE_SID, SID, Guest
from tests.rooms.media import hurry, packet, peer


class Connection:
    """From a client's coming to its leaving.

    Args:
        socket: To the client.
        guest: Who waits in the room it comes to.
        identity: The client's, as its token says.
    """

    def __init__(self, socket: web.WebSocketResponse, guest: Guest, identity: str) -> None:
        self._socket, self._guest = socket, guest
        self._info = models.ParticipantInfo(
            sid=f"PA_{identity}",
            identity=identity,
            state=models.ParticipantInfo.State.ACTIVE,
            kind=models.ParticipantInfo.Kind.AGENT,
            permission=models.ParticipantPermission(
                can_publish=True, can_subscribe=True, can_publish_data=True
            ),
        )
        self._publisher, self._subscriber = peer(), peer()
        self._reliable: RTCDataChannel | None = None
        self._candidates: dict[rtc.SignalTarget, list[dict[str, Any]]] = {}
        self._listening: set[asyncio.Task[None]] = set()

    def send(self, packet: models.DataPacket) -> None:
        """To the client, over the reliable data channel."""
        assert self._reliable
        self._reliable.send(packet.SerializeToString())

    async def run(self) -> None:
        """Talk until the client leaves."""
        self._publisher.on("track", self._on_track)
        self._publisher.on("datachannel", self._on_channel)
        self._guest.agents.append(self._info.identity)
        await self._say(join=self._welcome())
        await self._offer()
        async for message in self._socket:
            if message.type is not WSMsgType.BINARY:
                continue
            request = rtc.SignalRequest.FromString(message.data)
            if request.HasField("leave"):
                break
            await self._answer(request)

    async def close(self) -> None:
        """Let go of the client."""
        if self._info.identity in self._guest.agents:
            self._guest.agents.remove(self._info.identity)
        if self._guest.line is self:
            self._guest.line = None
        self._guest.look()
        for task in self._listening:
            task.cancel()
        await self._publisher.close()
        await self._subscriber.close()
        await self._socket.close()

    async def _say(self, **response: object) -> None:
        with suppress(ConnectionError):  # it may have left meanwhile
            answer = rtc.SignalResponse(**response)  # type: ignore[arg-type]
            await self._socket.send_bytes(answer.SerializeToString())

    def _welcome(self) -> rtc.JoinResponse:
        return rtc.JoinResponse(
            room=models.Room(sid=f"RM_{self._guest.room}", name=self._guest.room),
            participant=self._info,
            other_participants=[self._guest.info],
            server_info=models.ServerInfo(version="1.9.0", protocol=16),
            subscriber_primary=False,
            ping_interval=5,
            ping_timeout=15,
        )

    async def _offer(self) -> None:
        """Offer what the guest sends."""
        self._reliable = self._subscriber.createDataChannel("_reliable")
        self._subscriber.createDataChannel("_lossy", ordered=False, maxRetransmits=0)
        self._reliable.on("open", self._on_open)
        sender = self._subscriber.addTrack(self._guest.microphone)
        # How a client knows whose track it is.
        sender._stream_id, sender._track_id = f"{SID}|{MICROPHONE_SID}", MICROPHONE_SID
        await self._subscriber.setLocalDescription(await self._subscriber.createOffer())
        ours = self._subscriber.localDescription
        await self._say(offer=rtc.SessionDescription(type="offer", sdp=ours.sdp, id=1))

    async def _answer(self, request: rtc.SignalRequest) -> None:
        match request.WhichOneof("message"):
            case "offer":
                theirs = RTCSessionDescription(request.offer.sdp, "offer")
                await self._publisher.setRemoteDescription(theirs)
                await self._reach(rtc.SignalTarget.PUBLISHER)
                await self._publisher.setLocalDescription(await self._publisher.createAnswer())
                sdp = self._publisher.localDescription.sdp
                answer = rtc.SessionDescription(type="answer", sdp=sdp, id=request.offer.id)
                await self._say(answer=answer)
            case "answer":
                theirs = RTCSessionDescription(request.answer.sdp, "answer")
                await self._subscriber.setRemoteDescription(theirs)
                await self._reach(rtc.SignalTarget.SUBSCRIBER)
            case "trickle":
                target = request.trickle.target
                if request.trickle.candidateInit:
                    said = json.loads(request.trickle.candidateInit)
                    self._candidates.setdefault(target, []).append(said)
                if self._peer(target).remoteDescription:
                    await self._reach(target)
            case "add_track":
                await self._publish(request.add_track)
            case "update_metadata":
                wanted = request.update_metadata
                self._guest.attributes.update(wanted.attributes)
                self._info.attributes.update(wanted.attributes)
                self._guest.look()
                await self._say(update=rtc.ParticipantUpdate(participants=[self._info]))
                ok = rtc.RequestResponse(
                    request_id=wanted.request_id, reason=rtc.RequestResponse.Reason.OK
                )
                await self._say(request_response=ok)
            case "ping":
                await self._say(pong=request.ping)
            case "ping_req":
                now = int(time.time() * 1000)
                pong = rtc.Pong(last_ping_timestamp=request.ping_req.timestamp, timestamp=now)
                await self._say(pong_resp=pong)
            case _:  # what changes nothing here: settings of tracks, muting, subscriptions
                pass

    async def _reach(self, target: rtc.SignalTarget) -> None:
        """Use what the client told of where it can be reached, once it is clear what for."""
        connection = self._peer(target)
        for said in self._candidates.pop(target, ()):
            candidate = candidate_from_sdp(said["candidate"].removeprefix("candidate:"))
            candidate.sdpMid, candidate.sdpMLineIndex = said["sdpMid"], said["sdpMLineIndex"]
            with suppress(InvalidStateError):  # it was closed meanwhile
                await connection.addIceCandidate(candidate)

    def _peer(self, target: rtc.SignalTarget) -> RTCPeerConnection:
        publishing = target == rtc.SignalTarget.PUBLISHER
        return self._publisher if publishing else self._subscriber

    async def _publish(self, wanted: rtc.AddTrackRequest) -> None:
        track = models.TrackInfo(
            sid=f"TR_{wanted.name}",
            type=wanted.type,
            name=wanted.name,
            source=wanted.source,
            mime_type="audio/opus",
        )
        self._info.tracks.append(track)
        await self._say(track_published=rtc.TrackPublishedResponse(cid=wanted.cid, track=track))

    def _on_open(self) -> None:
        self._guest.line = self
        self._guest.look()

    def _on_channel(self, channel: RTCDataChannel) -> None:
        if channel.label in ("_reliable", "_lossy"):
            channel.on("message", self._on_packet)

    def _on_packet(self, message: bytes) -> None:
        self._guest.receive(models.DataPacket.FromString(message))

    def _on_track(self, track: MediaStreamTrack) -> None:
        [receiver] = [r for r in self._publisher.getReceivers() if r.track is track]
        hurry(receiver)
        task = asyncio.create_task(self._listen(track))
        self._listening.add(task)
        task.add_done_callback(self._listening.discard)

    async def _listen(self, track: MediaStreamTrack) -> None:
        with suppress(MediaStreamError):  # the end
            self._guest.hear(await packet(track))
            # An agent waits for this before it speaks; earlier, its first words would be lost.
            for published in self._info.tracks:
                await self._say(track_subscribed=rtc.TrackSubscribed(track_sid=published.sid))
            while True:
                self._guest.hear(await packet(track))
